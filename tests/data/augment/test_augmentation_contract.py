"""What every augmentation promises, tested on every entry of the registry. A new one joins with one row in `TABLE`."""

import re
import shlex
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robustvit import config
from robustvit.config import Recipe, override
from robustvit.data import AUGMENTATIONS, Augmentation
from robustvit.data.augment import (
    ColourJitter,
    CutMix,
    Erasing,
    Flip,
    Luck,
    Mixup,
    MixupOrCutMix,
    PadCrop,
    RandAugment,
    ResizedCrop,
    Rotation,
    augmented,
)
from robustvit.errors import UserError
from robustvit.recipes import RECIPES

TABLE: dict[str, Augmentation] = {
    "pad_crop": PadCrop(2),
    "flip": Flip(),
    "resized_crop": ResizedCrop(),
    "rotation": Rotation(20),
    "colour_jitter": ColourJitter(hue=0.1),
    "rand_augment": RandAugment(),
    "erasing": Erasing(prob=0.5),
    "mixup": Mixup(prob=0.8),
    "cutmix": CutMix(prob=0.8),
    "mixup_or_cutmix": MixupOrCutMix(prob=0.8),
}
GEOMETRY = ("pad_crop", "flip", "resized_crop", "rotation")
NEVER_NOTHING = (*GEOMETRY, "rand_augment")  # at strength 0
every_augmentation = pytest.mark.parametrize("augmentation", TABLE.values(), ids=TABLE)
MakeLuck = Callable[..., Luck]


def batch(count: int = 16, channels: int = 3, height: int = 14, width: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(count, channels, height, width, generator=generator)
    x[:1] = torch.rand(1, channels, 1, 1, generator=generator)  # one image of a single colour
    return x, torch.eye(10)[torch.arange(count) % 10]


def test_every_augmentation_has_its_row() -> None:
    assert {name: type(augmentation) for name, augmentation in TABLE.items()} == AUGMENTATIONS


@every_augmentation
class TestEveryAugmentation:
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("count", [0, 1, 2, 16])
    def test_images_stay_images(self, augmentation: Augmentation, luck: MakeLuck, count: int, channels: int) -> None:
        x, y = batch(count, channels)
        result, _ = augmentation(x, y, luck(count))
        assert (result.shape, result.dtype) == (x.shape, torch.float32)
        assert ((result >= 0) & (result <= 1)).all()

    def test_black_and_white_images_stay_in_the_box(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        x = torch.stack([torch.zeros(3, 9, 9), torch.ones(3, 9, 9), (torch.arange(81).view(9, 9) % 2).expand(3, 9, 9)]).float()
        for epoch in range(10):
            result, _ = augmentation(x, torch.eye(3), luck(3, epoch=epoch))
            assert ((result >= 0) & (result <= 1)).all()

    def test_labels_stay_shares_of_one(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        x, y = batch()
        _, mixed = augmentation(x, y, luck(16))
        assert (mixed.shape, mixed.dtype) == (y.shape, torch.float32)
        torch.testing.assert_close(mixed.sum(1), torch.ones(16))
        assert (mixed >= 0).all()
        assert torch.equal(mixed, y) != augmentation.mixes

    def test_classes_pass_where_nothing_is_mixed_and_are_refused_where_it_is(
        self, augmentation: Augmentation, luck: MakeLuck
    ) -> None:
        x, _ = batch()
        y = torch.arange(16)
        if augmentation.mixes:
            with pytest.raises(UserError, match=r"labels: torch\.int64 .*accepted to mix images: shares of classes"):
                augmentation(x, y, luck(16))
        else:
            assert augmentation(x, y, luck(16))[1] is y

    def test_it_changes_images_and_writes_to_none(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        x, y = batch()
        before, labels = x.clone(), y.clone()
        result, _ = augmentation(x, y, luck(16))
        assert torch.equal(x, before)
        assert torch.equal(y, labels)
        assert (result != x).flatten(1).any(1).sum() >= 4

    def test_the_luck_alone_decides(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        (x, y), state = batch(), torch.get_rng_state()
        first = augmentation(x, y, luck(16))
        assert all(torch.equal(a, b) for a, b in zip(first, augmentation(x, y, luck(16)), strict=True))
        assert not torch.equal(first[0], augmentation(x, y, luck(16, seed=1))[0])
        assert not torch.equal(first[0], augmentation(x, y, luck(16, epoch=1))[0])
        assert torch.equal(state, torch.get_rng_state())

    def test_one_stream_gives_new_luck_at_each_call(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        (x, y), stream = batch(), luck(16)
        assert not torch.equal(augmentation(x, y, stream)[0], augmentation(x, y, stream)[0])

    def test_an_image_meets_the_same_fate_in_any_batch(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        """In a mix the partner is another one, so it is given the same one here: itself and its neighbour."""
        x, y = batch()
        whole, labels = augmentation(x, y, luck(16))
        chosen = torch.tensor([4, 5]) if augmentation.mixes else torch.tensor([11, 5, 6])
        part, part_labels = augmentation(x[chosen], y[chosen], Luck.of(chosen, 0, 0))
        alike = slice(1, None) if augmentation.mixes else slice(None)  # of two, only the second has its partner before it
        torch.testing.assert_close(part[alike], whole[chosen][alike], atol=1e-6, rtol=0)
        torch.testing.assert_close(part_labels[alike], labels[chosen][alike])

    def test_it_takes_no_gradient(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        x, y = batch()
        result, mixed = augmentation(x.requires_grad_(), y, luck(16))
        assert not result.requires_grad
        assert not mixed.requires_grad

    def test_it_reads_nothing_back_from_the_device(self, augmentation: Augmentation) -> None:
        """The meta device has no values: whatever asks for one fails there."""
        x, y = (tensor.to("meta") for tensor in batch())
        result, mixed = augmentation(x, y, Luck(torch.empty(16, dtype=torch.int32, device="meta")))
        assert (result.shape, mixed.shape) == (x.shape, y.shape)

    def test_full_strength_is_itself_and_no_strength_is_nothing_but_geometry(
        self, augmentation: Augmentation, luck: MakeLuck, request: pytest.FixtureRequest
    ) -> None:
        (x, y), name = batch(), request.node.callspec.id
        assert augmentation.scaled(1.0) == augmentation
        assert (augmentation.scaled(0.0) == augmentation) == (name in GEOMETRY)
        if name not in NEVER_NOTHING:
            result, labels = augmentation.scaled(0.0)(x, y, luck(16))
            assert torch.equal(result, x)
            assert torch.equal(labels, y)

    def test_strength_does_not_shift_the_stream(self, augmentation: Augmentation, luck: MakeLuck) -> None:
        x, y = batch()
        strong, weak = luck(16), luck(16)
        augmentation(x, y, strong)
        augmentation.scaled(0.3)(x, y, weak)
        assert torch.equal(strong.uniform(), weak.uniform())

    def test_a_recipe_carries_it(self, augmentation: Augmentation, tmp_path) -> None:
        digits = RECIPES["digits-standard"]()
        recipe = replace(digits, data=replace(digits.data, augment=(augmentation, Flip())))
        config.save(recipe, tmp_path / "recipe.yaml")
        assert config.load(tmp_path / "recipe.yaml") == recipe
        assert recipe.hash() != digits.hash()


def test_an_override_sets_and_changes_augmentations() -> None:
    recipe: Recipe = RECIPES["cifar10-standard"]()
    changed = override(recipe, ["data.augment.0.pad=2", "data.augment.1={type: erasing, area: [0.1, 1/3]}"])
    assert changed.data.augment == (PadCrop(2), Erasing(area=(0.1, 1 / 3)))
    assert override(recipe, ["data.augment=[]"]).data.augment == ()
    with pytest.raises(UserError, match="did you mean 'mixup'"):
        override(recipe, ["data.augment=[{type: mixip}]"])


BAD = [
    (lambda: PadCrop(-1), r"pad_crop\.pad: -1; accepted: 0 or more pixels"),
    (lambda: Flip(1.5), r"flip\.prob: 1\.5; accepted: 0 to 1"),
    (lambda: ResizedCrop(scale=(0.5, 0.1)), r"resized_crop\.scale: \[0\.5, 0\.1\]; accepted: two numbers, the smaller first"),
    (lambda: ResizedCrop(ratio=(0.0, 1.0)), r"resized_crop\.ratio: .*above 0"),
    (lambda: ResizedCrop(scale=(0.5,)), r"resized_crop\.scale: \[0\.5\]; accepted: two numbers"),  # type: ignore[arg-type]
    (lambda: ResizedCrop(scale=(0.5, float("inf"))), r"resized_crop\.scale"),
    (lambda: Rotation(200), r"rotation\.degrees: 200; accepted: 0 to 180"),
    (lambda: ColourJitter(contrast=-0.1), r"colour_jitter\.contrast: -0\.1; accepted: 0 to 1"),
    (lambda: ColourJitter(hue=0.6), r"colour_jitter\.hue: 0\.6; accepted: 0 to 0\.5"),
    (lambda: RandAugment(magnitude=11), r"rand_augment\.magnitude: 11; accepted: 0 to 10"),
    (lambda: RandAugment(std=float("nan")), r"rand_augment\.std: nan"),
    (lambda: RandAugment(layers=0), r"rand_augment\.layers: 0; accepted: 1 or more"),
    (lambda: RandAugment(fill=2), r"rand_augment\.fill: 2"),
    (lambda: Erasing(area=(0.1, 1.2)), r"erasing\.area: \[0\.1, 1\.2\]; accepted: .*1 at most"),
    (lambda: Erasing(fill="gray"), r"unknown erasing\.fill 'gray': did you mean 'grey'"),  # type: ignore[arg-type]
    (lambda: Mixup(alpha=0), r"mixup\.alpha: 0; accepted: a finite number above 0"),
    (lambda: CutMix(prob=-1), r"cutmix\.prob: -1; accepted: 0 to 1"),
    (lambda: MixupOrCutMix(cutmix_alpha=0), r"mixup_or_cutmix\.cutmix_alpha: 0"),
    (lambda: MixupOrCutMix(switch_prob=2), r"mixup_or_cutmix\.switch_prob: 2"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_fields_that_cannot_be_are_refused(make: Callable[[], Augmentation], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_a_chain_is_its_links_in_order_at_a_strength(luck: MakeLuck) -> None:
    x, y = batch()[0], torch.arange(16) % 10
    links = (PadCrop(2), RandAugment(), Mixup())
    mixed, labels = augmented(x, y, links, luck(16), classes=10, strength=0.5)
    stream, expected = luck(16), (x, torch.eye(10)[y])
    for link in (links[0], RandAugment(magnitude=4.5), Mixup(prob=0.5)):
        expected = link(*expected, stream)
    assert torch.equal(mixed, expected[0])
    assert torch.equal(labels, expected[1])


def test_a_chain_makes_shares_of_classes_only_where_something_is_mixed(luck: MakeLuck) -> None:
    x, y = batch()[0], torch.arange(16) % 10
    assert augmented(x, y, (), luck(16), classes=10) == (x, y)
    assert augmented(x, y, (Flip(), Erasing()), luck(16), classes=10)[1] is y
    # Also at a strength at which nothing is mixed yet: what a model is trained on does not change its type on the way.
    assert torch.equal(augmented(x, y, (Flip(), CutMix()), luck(16), classes=12, strength=0.0)[1], torch.eye(12)[y])


PAGE = (Path(__file__).parents[3] / "docs" / "augmentation.md").read_text()


@pytest.mark.parametrize("command", re.findall(r"^robustvit train .*$", PAGE, re.MULTILINE))
def test_what_the_page_overrides_can_be_overridden(command: str) -> None:
    recipe, *assignments = shlex.split(command)[2:]
    assert override(RECIPES[recipe](), assignments) != RECIPES[recipe]()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_page_has_a_row_with_every_field_of_every_augmentation(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|([^|]*)\|", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {field.name for field in fields(AUGMENTATIONS[name])}  # type: ignore[arg-type]
