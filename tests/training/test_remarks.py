"""What a recipe says and will not do is said before it trains."""

import re

import pytest

from robustvit.config import override
from robustvit.recipes import RECIPES
from robustvit.training.remarks import remarks


@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_of_the_project_says_what_it_will_not_do(name: str) -> None:
    assert list(remarks(RECIPES[name]())) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            ["phases.0.epochs=2"],
            ["phases.0.eps comes to 33% of its full value in 2 epochs; phases.0.eps.epochs=1", "optim.schedule comes to 50%"],
        ),
        (["phases.0.objective.adversary.threat.eps=0.06"], ["selected under linf 0.12.* trained against linf 0.06"]),
        (["phases.0.objective.adversary.threat.norm=l2"], ["selected under linf 0.12.* trained against l2 0.12"]),
        (["phases.0.awp={gamma: 0.005, start_epoch: 20}"], ["phases.0.awp begins at epoch 20 of 20: never"]),
        (["data.augment=[{type: rand_augment}]", "phases.0.augment={type: linear, epochs: 40}"], ["augment comes to 50%"]),
        (["select=null"], []),
    ],
)
def test_what_overrides_contradict_is_said(changes: list[str], said: list[str]) -> None:
    found = list(remarks(override(RECIPES["digits-robust"](), changes)))
    assert len(found) == len(said)
    for pattern, remark in zip(said, found, strict=True):
        assert re.search(pattern, remark)
