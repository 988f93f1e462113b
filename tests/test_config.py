"""A recipe as YAML, under overrides, and as a hash."""

from dataclasses import replace

import pytest

from robustvit import config
from robustvit.attacks import FGSM, PGD, Restarts
from robustvit.config import Recipe, from_data, override, to_data
from robustvit.errors import UserError
from robustvit.objectives import TRADES, Standard
from robustvit.recipes import RECIPES, get_recipe
from robustvit.training.schedule import Linear


@pytest.fixture
def robust() -> Recipe:
    return RECIPES["digits-robust"]()


@pytest.mark.parametrize("name", RECIPES)
def test_yaml_gives_back_the_same_recipe_and_hash(name, tmp_path):
    recipe = RECIPES[name]()
    config.save(recipe, tmp_path / "recipe.yaml")
    again = get_recipe(str(tmp_path / "recipe.yaml"))
    assert again == recipe
    assert again.hash() == recipe.hash()


def test_nested_attacks_survive_the_round_trip(robust):
    nested = replace(robust, select=Restarts(PGD(robust.select.threat, steps=2, seed=1), count=3))
    assert from_data(Recipe, to_data(nested)) == nested


@pytest.mark.parametrize("same", ["name=other", "data.path=/elsewhere.npz", "data.workers=2", "keep_every=1"])
def test_hash_ignores_names_and_places(robust, same):
    assert override(robust, [same]).hash() == robust.hash()


@pytest.mark.parametrize(
    "other", ["optim.lr=1e-4", "seed=1", "phases.0.objective.adversary.threat.eps=0.2", "batch_size=32", "ema=0.9"]
)
def test_hash_changes_with_what_changes_the_result(robust, other):
    assert override(robust, [other]).hash() != robust.hash()


def test_hash_does_not_depend_on_how_a_number_is_written(robust):
    whole = replace(robust, optim=replace(robust.optim, weight_decay=1))
    assert whole.hash() == replace(robust, optim=replace(robust.optim, weight_decay=1.0)).hash()


@pytest.mark.parametrize(("text", "value"), [("8/255", 8 / 255), ("1e-3", 1e-3), ("0.25", 0.25), ("1", 1.0)])
def test_numbers_are_accepted_as_people_write_them(robust, text, value):
    assert override(robust, [f"optim.lr={text}"]).optim.lr == value
    assert override(robust, [f"select.threat.eps={text}"]).select.threat.eps == value


def test_a_changed_kind_keeps_the_fields_it_shares(robust):
    changed = override(robust, ["phases.0.objective.type=trades", "phases.0.objective.beta=3"])
    assert changed.phases[0].objective == TRADES(robust.phases[0].objective.adversary, beta=3.0)
    assert override(changed, ["phases.0.objective.type=standard"]).phases[0].objective == Standard()
    assert override(robust, ["select.type=fgsm"]).select == FGSM(robust.select.threat, step=2.5, random_start=True, seed=0)
    assert override(robust, ["optim.schedule.type=linear"]).optim.schedule == Linear()


def test_overrides_apply_in_order_and_reach_free_arguments(robust):
    changed = override(robust, ["optim.type=sgd", "optim.type=lion", "optim.args.betas=[0.9, 0.95]", "clip=1", "clip=null"])
    assert (changed.optim.type, changed.optim.args, changed.clip) == ("lion", {"betas": [0.9, 0.95]}, None)
    assert changed.optim.schedule == robust.optim.schedule


BAD = {
    "optm.lr=1": ["optm.lr", "did you mean optim.lr?"],
    "optim.tpye=lion": ["optim.tpye", "did you mean 'optim.type'"],
    "optim.lr=fast": ["optim.lr", "'fast'", "8/255"],
    "optim.lr=1/0": ["optim.lr", "'1/0'"],
    "optim.lr.x=1": ["optim.lr.x", "has no field 'x'"],
    "optim.schedule.type=cosin": ["optim.schedule.type", "did you mean 'cosine'"],
    "phases.0.objective.type=trade": ["phases.0.objective.type", "did you mean 'trades'"],
    "phases.0.objective.type=[1]": ["phases.0.objective.type", "[1]", "trades"],
    "phases.0.objective.adversary.type=pdg": ["phases.0.objective.adversary.type", "did you mean 'pgd'"],
    "phases.0.objective.adversary.steps=many": ["phases.0.objective.adversary.steps", "'many'", "a whole number"],
    "phases.0.objective.adversary.steps=0": ["phases.0.objective.adversary", "steps: 0", "1 or more"],
    "phases.0.objective.adversary.loss=cv": ["phases.0.objective.adversary", "'cv'", "cross_entropy"],
    "phases.0.objective.adversary.seed=3": ["adversary.seed: 3", "accepted: null"],
    "phases.0.objective.adversary.threat.eps=8": ["phases.0.objective.adversary.threat", "did you mean 8/255"],
    "phases.0.objective.adversary.threat.eps=-1": ["phases.0.objective.adversary.threat", "-1"],
    "phases.0.objective.adversary.threat.norm=l3": ["'l3'", "linf, l2, l1"],
    "phases.0.epochs=0": ["phases.0", "epochs: 0", "1 or more"],
    "phases.0.epochs=1.5": ["phases.0.epochs", "1.5", "a whole number"],
    "phases.3.epochs=1": ["phases.3.epochs", "'3'", "Known: 0"],
    "phases=[]": ["phases", "one phase or more"],
    "select=pgd": ["select", "'pgd'", "fields of Attack"],
    "select.seed=null": ["select.seed", "a number"],
    "model.mean=0.5": ["model.mean", "0.5", "a list"],
    "model.num_classes=1": ["model.num_classes: 1", "2 or more"],
    "precision=fp16": ["precision", "'fp16'", "fp32, tf32, bf16"],
    "batch_size=0": ["batch_size: 0", "1 or more"],
    "accumulate=7": ["accumulate: 7", "64"],
    "ema=1.5": ["ema: 1.5", "between 0 and 1"],
    "clip=-1": ["clip: -1", "above 0"],
    "seed=true": ["seed", "True", "a whole number"],
    "seed={": ["seed", "'{'", "YAML"],
    "batch_size": ["'batch_size'", "dotted.field=value"],
}


@pytest.mark.parametrize("assignment", BAD)
def test_a_bad_override_names_field_value_and_what_is_accepted(robust, assignment):
    with pytest.raises(UserError) as error:
        override(robust, [assignment])
    for fragment in BAD[assignment]:
        assert fragment in str(error.value)


@pytest.mark.parametrize(
    "assignment",
    ["optim.lr=.nan", "optim.lr=-1", "data.augment=[{type: pad_crop, pad: -3}]", "optim.schedule.warmup=-1"],
)
def test_numbers_that_no_run_can_use_are_refused(robust, assignment):
    with pytest.raises(UserError, match=assignment.partition("=")[0].rpartition(".")[2]):
        override(robust, [assignment])


@pytest.mark.parametrize("text", ["", "- 1", "name: x", "name: [", "\0"])
def test_a_file_that_is_no_recipe_is_refused_by_path(tmp_path, text):
    (tmp_path / "broken.yaml").write_text(text)
    with pytest.raises(UserError, match=r"broken\.yaml"):
        get_recipe(str(tmp_path / "broken.yaml"))


def test_unknown_and_missing_recipes_are_named(tmp_path):
    with pytest.raises(UserError, match="did you mean 'digits-robust'"):
        get_recipe("digits-robst")
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        get_recipe(str(tmp_path / "nowhere.yaml"))
