"""Cost: closed forms of layers and attention, and the papers' tables beside our own counts."""

import pytest
from torch import Tensor, nn
from torch.nn.functional import linear

from robustvit.models import ModelSpec, build
from robustvit.models.flops import Cost, cost, cost_of

# Light recipe, tables II (a) and VI, at 224 px: millions of parameters (some rounded, some cut off) and G multiply–adds.
LIGHT_RECIPE = {
    "deit_small_patch16_224": (22, 4.61),
    "cait_s12_224": (25, 4.76),
    "xcit_nano_12_p16_224": (3, 0.56),
    "xcit_small_12_p16_224": (26, 4.82),
    "xcit_medium_12_p16_224": (46, 8.54),
    "xcit_large_12_p16_224": (104, 18.97),
    "poolformer_m12": (22, 3.22),
    "convnext_tiny": (29, 4.50),
    "resnet50_gelu": (25, 4.11),
    "wide_resnet50_2": (68, 11.47),
}
# ViT and diffusion data, table 6 and the text, at 32 px with ten classes; FLOPs are given for two, of linear layers only.
DIFFUSION_VIT = {
    "vit_base_patch2_32": (85, 21.85),
    "vit_large_patch2_32": (302, None),
    "wrn_28_10": (36, None),
    "wrn_70_16_swish": (267, 38.81),
}


class Attention(nn.Module):
    """Tokens that attend to each other, fused or written out."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.project = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x.flatten(2))
        if self.fused:
            return nn.functional.scaled_dot_product_attention(x, x, x)
        return (x @ x.mT).softmax(-1) @ x


class Called(nn.Module):
    """A layer whose weight is used without the layer's own forward, as BEiT does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, weight=self.inner.weight)


@pytest.mark.parametrize(
    ("model", "parameters", "multiply_adds"),
    [
        (nn.Linear(6, 5), 35, 3 * 4 * 6 * 5),
        (nn.Conv2d(3, 8, 3, padding=1), 224, 4 * 6 * 8 * 3 * 9),
        (nn.Conv2d(3, 9, 3, stride=2, padding=1, groups=3, bias=False), 81, 2 * 3 * 9 * 9),
        (nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Softmax(-1)), 12, 0),
        (Called(), 14, 3 * 4 * 6 * 2),
    ],
)
def test_a_layer_costs_the_product_of_its_sizes(model: nn.Module, parameters: int, multiply_adds: int) -> None:
    assert cost(model, (3, 4, 6)) == Cost(parameters, multiply_adds, multiply_adds)


@pytest.mark.parametrize("fused", [True, False])
def test_attention_costs_two_products_of_tokens_with_tokens(fused: bool) -> None:
    layers = 5 * 6 * 6
    assert cost(Attention(fused), (5, 2, 3)) == Cost(42, layers, layers + 2 * 5 * 5 * 6)


def test_an_untouched_vit_is_counted_the_same_with_and_without_memory() -> None:
    spec = ModelSpec("vit_mini")
    model = build(spec).train()
    model.backbone.blocks[0].eval()
    counted = cost(model, (3, 32, 32))
    assert counted == cost_of(spec)
    # 64 tokens, 6 blocks of 12·192² weights, patches of 48 numbers, 10 classes; two products of 64×64×192 a block.
    layers = 6 * 64 * 12 * 192**2 + 64 * 48 * 192 + 10 * 192
    assert (counted.linear_only, counted.with_attention) == (layers, layers + 6 * 2 * 64 * 64 * 192)
    assert model.training
    assert not model.backbone.blocks[0].training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", LIGHT_RECIPE)
def test_the_light_recipes_models_cost_what_its_tables_say(name: str) -> None:
    ours, (parameters, multiply_adds) = cost_of(ModelSpec(name, num_classes=1000), (3, 224, 224)), LIGHT_RECIPE[name]
    print(f"{name}: {ours}; paper: {parameters}M, {multiply_adds} G")
    assert abs(ours.parameters / 1e6 - parameters) < 1
    # fvcore, by which the paper counts, has norms too: its figures lie above ours, by 2% at most.
    assert 0.98 * multiply_adds < ours.with_attention / 1e9 < multiply_adds


@pytest.mark.parametrize("name", DIFFUSION_VIT)
def test_the_diffusion_papers_models_cost_what_it_says(name: str) -> None:
    ours, (parameters, multiply_adds) = cost_of(ModelSpec(name)), DIFFUSION_VIT[name]
    print(f"{name}: {ours}; paper: {parameters}M, {multiply_adds or '–'} G")
    assert abs(ours.parameters / 1e6 - parameters) < 1
    if multiply_adds:
        assert 0.998 * multiply_adds < ours.linear_only / 1e9 < multiply_adds


def test_attention_adds_a_twentieth_to_the_vit_of_the_diffusion_paper() -> None:
    assert cost_of(ModelSpec("vit_base_patch2_32")).with_attention / 1e9 == pytest.approx(23.0, abs=0.06)


def test_a_cost_reads_as_a_sentence() -> None:
    assert str(Cost(2_690_000, 170_000_000, 180_000_000)) == (
        "2.69M parameters, 0.17 G multiply–adds an image in linear layers and convolutions, 0.18 G with attention"
    )
