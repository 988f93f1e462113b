"""Scales: what stands for the paper's data, models and budget. One table; all else is the same code at each scale."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from robustvit.config import Optim, Recipe
from robustvit.data import DataSpec
from robustvit.data.augment import Augmentation, Flip, PadCrop
from robustvit.data.mixing import Generated
from robustvit.errors import unknown
from robustvit.threat import Threat
from robustvit.training.schedule import Cosine, Linear, Phase, Schedule

FOUR, EIGHT, L2 = Threat("linf", 4 / 255), Threat("linf", 8 / 255), Threat("l2", 3.0)


@dataclass(frozen=True, slots=True)
class Net:
    """A model by timm's name and what its constructor takes."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Set:
    """Images under the name that `--data NAME=PATH` knows; `basic` stands for transforms of whole images.

    `classes` and `channels` are None where a recipe's own are right; `where` is empty for what needs no file.
    """

    name: str
    spec: DataSpec
    where: str = ""
    classes: int | None = None
    channels: int | None = None
    basic: tuple[Augmentation, ...] = ()


@dataclass(frozen=True, slots=True)
class Scale:
    """What stands for the paper's, by the paper's own; what a mapping lacks stands for itself.

    `rates` are factors of the learning rate by optimiser. `iterations`, `restarts` and `queries` bound AutoAttack and APGD,
    `longest`, `points` and `starts` the analyses; `every` so many epochs a checkpoint is kept. The device computes `flops` a
    second and needs `overhead` seconds a model call at least, which is a guess: for estimates alone.
    """

    name: str
    about: str
    hardware: str
    seeds: int
    sets: Mapping[str, Set]
    images: int | None = None
    models: Mapping[str, Net] = field(default_factory=dict)
    threats: Mapping[Threat, Threat] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    batch_size: int | None = None
    full_precision: bool = False
    iterations: int = 100
    restarts: int = 5
    queries: int = 5000
    longest: int = 500
    points: int = 32
    starts: int = 20
    every: int = 10
    flops: float = 1e14
    overhead: float = 0.01

    def threat(self, papers: Threat) -> Threat:
        return self.threats.get(papers, papers)

    def steps(self, *papers: int) -> tuple[int, ...]:
        """Numbers of attack steps, none above the longest."""
        return tuple(sorted({min(steps, self.longest) for steps in papers}))

    def set_of(self, data: DataSpec) -> Set:
        return self.sets[data.source]

    def stand_in(self, recipe: Recipe, seed: int, paths: Mapping[str, str]) -> Recipe:
        """The recipe that stands for the paper's; `paths` say where sets lie."""
        epochs = self.epochs.get(recipe.epochs, recipe.epochs)
        pace = epochs / recipe.epochs
        stands = self.set_of(recipe.data)
        model = self._model(recipe, stands)
        return replace(
            recipe,
            name=f"{recipe.name} {recipe.model.name} ({self.name}, seed {seed})",
            model=model,
            data=self._data(recipe.data, stands, paths),
            phases=tuple(self._phase(phase, epochs, pace) for phase in recipe.phases),
            optim=self._optim(recipe.optim, pace),
            batch_size=min(recipe.batch_size, self.batch_size or recipe.batch_size),
            precision="fp32" if self.full_precision else recipe.precision,
            select=self._against(recipe.select),
            seed=seed,
        )

    def _model(self, recipe: Recipe, stands: Set) -> Any:
        net = self.models.get(recipe.model.name, Net(recipe.model.name))
        return replace(
            recipe.model,
            name=net.name,
            args=recipe.model.args | net.args,
            num_classes=stands.classes or recipe.model.num_classes,
            channels=stands.channels or recipe.model.channels,
            init=None,
        )

    def _data(self, data: DataSpec, stands: Set, paths: Mapping[str, str]) -> DataSpec:
        own = stands.spec.source == data.source
        augment = data.augment if own else (stands.basic if data.transform is not None else ()) + data.augment
        generated = data.generated and Generated(paths.get("generated", data.generated.path), data.generated.share)
        base = data if own else stands.spec
        return replace(base, path=paths.get(stands.name, base.path), augment=augment, generated=generated)

    def _phase(self, phase: Phase, epochs: int, pace: float) -> Phase:
        changed = replace(phase, eps=_paced(phase.eps, pace), augment=_paced(phase.augment, pace), epochs=epochs)
        return replace(changed, objective=self._against(changed.objective))

    def _optim(self, optim: Optim, pace: float) -> Optim:
        rate = optim.lr * self.rates.get(optim.type, 1.0)
        return replace(optim, lr=rate, schedule=_paced(optim.schedule, pace))

    def _against(self, value: Any) -> Any:
        """With every threat in it replaced."""
        if isinstance(value, Threat):
            return self.threat(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {f.name: self._against(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return replace(value, **changes)
        return tuple(map(self._against, value)) if isinstance(value, tuple) else value


def _paced(schedule: Schedule, pace: float) -> Schedule:
    """Warm-ups keep their share of the training."""
    if isinstance(schedule, Linear):
        return Linear(schedule.epochs * pace)
    if isinstance(schedule, Cosine):
        return replace(schedule, warmup=schedule.warmup * pace, cooldown=schedule.cooldown * pace)
    return schedule


def _xcit(**shape: Any) -> Net:
    return Net("xcit_mini", {"img_size": 8, "patch_size": 2, "num_heads": 2, "cls_attn_layers": 1} | shape)


_STAGES = {"depths": [1, 1, 1, 1], "dims": [16, 32, 48, 64]}
_STAGED = {"layers": [1, 1, 1, 1], "channels": [16, 32, 48, 64]}
DIGITS = Set("digits", DataSpec("digits"), classes=10, channels=1, basic=(PadCrop(1),))

TINY = Scale(
    name="tiny",
    about="the digits of scikit-learn for every set, models of some ten thousand weights, short attacks",
    hardware="one CPU core",
    seeds=1,
    sets=dict.fromkeys(("imagenet", "caltech101", "flowers102", "cifar10", "cifar100"), DIGITS),
    images=120,
    models={
        "xcit_nano_12_p16_224": _xcit(embed_dim=32, depth=2),
        **dict.fromkeys(("xcit_small_12_p16_224", "xcit_small_12_p4_32"), _xcit(embed_dim=48, depth=2)),
        **dict.fromkeys(("xcit_medium_12_p16_224", "xcit_medium_12_p4_32"), _xcit(embed_dim=64, depth=2)),
        **dict.fromkeys(("xcit_large_12_p16_224", "xcit_large_12_p4_32"), _xcit(embed_dim=80, depth=3)),
        "deit_small_patch16_224": Net("deit_tiny_patch2_32", {"img_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}),
        "cait_s12_224": Net("cait_s12_patch2_32", {"img_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}),
        "convnext_tiny": Net("convnext_tiny_patch1_32", _STAGES),
        "poolformer_m12": Net("poolformer_m12_stride1_32", _STAGES),
        "resnet50_gelu": Net("resnet_mini", {"act_layer": "gelu", **_STAGED}),
        **dict.fromkeys(("resnet50", "resnet50_32"), Net("resnet_mini", _STAGED)),
    },
    threats={FOUR: Threat("linf", 0.06), EIGHT: Threat("linf", 0.12), L2: Threat("l2", 0.5)},
    epochs={110: 10, 330: 20, 20: 3, 300: 20},
    rates={"adamw": 8.0},
    batch_size=128,
    full_precision=True,
    iterations=20,
    restarts=1,
    queries=100,
    longest=100,
    points=8,
    starts=4,
    every=2,
    flops=5e9,
    overhead=0.01,
)

SMALL = Scale(
    name="small",
    about="CIFAR-10 for ImageNet, small sets at 32×32 pixels, models of some million weights, 1,000 images",
    hardware="one GPU",
    seeds=3,
    sets={
        "imagenet": Set(
            "cifar10", DataSpec("cifar10"), "https://www.cs.toronto.edu/~kriz/cifar.html", 10, 3, (PadCrop(4), Flip())
        ),
        # Fine-tuning needs another set than the one before it.
        **dict.fromkeys(
            ("cifar10", "caltech101"),
            Set("imagenette", DataSpec("folder", size=32), "https://github.com/fastai/imagenette", 10, 3, (PadCrop(4), Flip())),
        ),
        "cifar100": Set("cifar100", DataSpec("cifar100"), "https://www.cs.toronto.edu/~kriz/cifar.html", 100, 3),
        "flowers102": Set(
            "flowers102",
            DataSpec("flowers102", size=32),
            "https://www.robots.ox.ac.uk/~vgg/data/flowers/102",
            102,
            3,
            (PadCrop(4), Flip()),
        ),
    },
    images=1000,
    models={
        "xcit_nano_12_p16_224": Net("xcit_nano_12_p4_32"),
        **dict.fromkeys(("xcit_small_12_p16_224", "xcit_small_12_p4_32"), Net("xcit_mini")),
        **dict.fromkeys(("xcit_medium_12_p16_224", "xcit_medium_12_p4_32"), Net("xcit_tiny_12_p4_32")),
        **dict.fromkeys(("xcit_large_12_p16_224", "xcit_large_12_p4_32"), Net("xcit_small_12_p4_32")),
        "deit_small_patch16_224": Net("deit_tiny_patch4_32", {"depth": 6}),
        "cait_s12_224": Net("cait_s12_patch4_32", {"embed_dim": 192, "depth": 6, "num_heads": 6}),
        "convnext_tiny": Net("convnext_tiny_patch2_32", {"depths": [2, 2, 4, 2], "dims": [48, 96, 192, 384]}),
        "poolformer_m12": Net("poolformer_s12_stride2_32"),
        "resnet50_gelu": Net("resnet_mini", {"act_layer": "gelu"}),
        **dict.fromkeys(("resnet50", "resnet50_32"), Net("resnet_mini")),
    },
    threats={L2: Threat("l2", 0.5)},
    epochs={110: 30, 330: 60, 20: 10, 300: 60},
    rates={"adamw": 2.0},
    batch_size=256,
    every=5,
    flops=2e13,
    overhead=0.02,
)

PAPER = Scale(
    name="paper",
    about="the paper's own data, models and budget",
    hardware="eight TPUv3 cores in the paper, counted here as one GPU of 100 useful TFLOP/s",
    seeds=1,
    sets={
        "imagenet": Set("imagenet", DataSpec("imagenet"), "https://image-net.org/download.php"),
        "caltech101": Set("caltech101", DataSpec("caltech101"), "https://data.caltech.edu/records/mzrjq-6wc02"),
        "flowers102": Set("flowers102", DataSpec("flowers102"), "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"),
        "cifar10": Set("cifar10", DataSpec("cifar10"), "https://www.cs.toronto.edu/~kriz/cifar.html"),
        "cifar100": Set("cifar100", DataSpec("cifar100"), "https://www.cs.toronto.edu/~kriz/cifar.html"),
    },
)

SCALES = {scale.name: scale for scale in (TINY, SMALL, PAPER)}


def get_scale(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]
