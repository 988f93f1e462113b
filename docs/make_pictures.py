"""Make the pictures of the documents: by name, as in `python docs/make_pictures.py augmentations`, or all.

make docs
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from robustvit.data.augment import (
    Augmentation,
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
)
from robustvit.data.augment.rand_augment import MOVES, OPERATIONS, operated
from robustvit.demo import demo
from robustvit.evaluation import Outcome

REPORT = Path("runs/demo/report.html")
PICTURES = Path(__file__).parent / "pictures"
SIDE = 128  # of the photographs, in pixels
DRAWS = 3  # of each photograph by each augmentation
SEED = 4
DIRECTED = ("contrast", "brightness", "saturation", "sharpness", *MOVES)
SHOWN: dict[str, tuple[Augmentation, str]] = {
    "pad_crop": (PadCrop(24), "pad 24"),
    "flip": (Flip(), "prob 0.5"),
    "resized_crop": (ResizedCrop(), "scale 0.08 to 1\nratio 3/4 to 4/3"),
    "rotation": (Rotation(20), "degrees 20"),
    "colour_jitter": (ColourJitter(hue=0.1), "0.4 each, hue 0.1"),
    "rand_augment": (RandAugment(), "magnitude 9, std 0.5\n2 layers"),
    "erasing": (Erasing(prob=1.0), "prob 1"),
    "mixup": (Mixup(), "alpha 0.8"),
    "cutmix": (CutMix(), "alpha 1"),
    "mixup_or_cutmix": (MixupOrCutMix(), "alphas 0.8 and 1\nswitch_prob 0.5"),
}


def picture_of_report(target: Path) -> None:
    """The demo's report, as a browser shows it. Needs Chromium on the path."""
    browser = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
    if browser is None:
        raise SystemExit("make_pictures: report needs Chromium or Chrome on the path")
    if not REPORT.exists():
        demo(REPORT.parent)
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
        size = ["--window-size=1180,960", f"--user-data-dir={profile}", f"--screenshot={target}"]
        subprocess.run([browser, *flags, *size, REPORT.resolve().as_uri()], check=True, capture_output=True)
    target.with_suffix(".json").write_text(json.dumps(numbers(), indent=1) + "\n")


def numbers() -> dict[str, Any]:
    """What stands behind the picture, by run and outcome."""
    found: dict[str, Any] = {"command": "robustvit demo"}
    for run in sorted(path.parent for path in REPORT.parent.glob("*/outcomes")):
        outcomes = sorted(map(Outcome.load, (run / "outcomes").glob("*.json")), key=lambda outcome: (outcome.eps, outcome.name))
        found[run.name] = {outcome.name: outcome.summary for outcome in outcomes}
        found["versions"] = outcomes[0].provenance["versions"]
    return found


def photographs() -> Tensor:
    """The central squares of the two photographs that scikit-learn carries, [2, 3, SIDE, SIDE]."""
    from sklearn.datasets import load_sample_image

    squares = []
    for name in ("china.jpg", "flower.jpg"):
        photograph = Image.fromarray(load_sample_image(name))
        side, (width, height) = min(photograph.size), photograph.size
        left, top = (width - side) // 2, (height - side) // 2
        square = photograph.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        squares.append(torch.from_numpy(np.array(square)).permute(2, 0, 1) / 255)
    return torch.stack(squares)


def picture_of_augmentations(target: Path) -> None:
    """Each augmentation on two photographs, the original and some draws; those that are mixed are mixed with each other."""
    x, y = photographs().repeat(DRAWS, 1, 1, 1), torch.eye(2).repeat(DRAWS, 1)
    columns = [1.45, *[1] * (1 + DRAWS), 0.12, *[1] * (1 + DRAWS)]
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 10}):
        figure = Figure(figsize=(1.12 * sum(columns), 1.16 * len(SHOWN) + 0.3))
        margins = {"left": 0.015, "right": 0.995, "top": 0.97, "bottom": 0.005}
        cells = figure.add_gridspec(len(SHOWN), len(columns), width_ratios=columns, wspace=0.05, hspace=0.05, **margins)
        for row, (name, (augmentation, fields)) in enumerate(SHOWN.items()):
            mixed, shares = augmentation(x, y, Luck.of(torch.arange(2 * DRAWS), SEED, epoch=0))
            write(figure.add_subplot(cells[row, 0]), name, fields)
            for photograph, first in enumerate((1, 3 + DRAWS)):
                original = figure.add_subplot(cells[row, first])
                show(original, x[photograph], title="" if row else "original")
                for draw, number in enumerate(range(photograph, 2 * DRAWS, 2)):
                    note = f"{shares[number, photograph]:.0%} own" if augmentation.mixes else ""
                    axes = figure.add_subplot(cells[row, first + 1 + draw])
                    show(axes, mixed[number], "" if row else f"draw {draw + 1}", note)
        figure.savefig(target, dpi=100, pil_kwargs={"quality": 88})


def picture_of_operations(target: Path) -> None:
    """The operations that RandAugment draws from, in both directions at magnitude 9, where they have one."""
    x, columns = photographs()[:1], 5
    signed = [(name, sign) for name in OPERATIONS for sign in ((1, -1) if name in DIRECTED else (1,))]
    numbers = torch.tensor([float(OPERATIONS.index(name)) for name, _ in signed])
    signs = torch.tensor([float(sign) for _, sign in signed])
    images = operated(x.expand(len(signed), -1, -1, -1), numbers, torch.full_like(signs, 0.9), signs, fill=0.5)
    titles = ["original", *(f"{name} {'+' if sign > 0 else '−'}" if name in DIRECTED else name for name, sign in signed)]
    rows = -(-len(titles) // columns)
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=(1.5 * columns, 1.72 * rows))
        axes = figure.subplots(rows, columns, gridspec_kw={"wspace": 0.05, "hspace": 0.2})
        figure.subplots_adjust(left=0.005, right=0.995, top=0.965, bottom=0.005)
        for place in axes.flat:
            place.set_axis_off()
        for place, image, title in zip(axes.flat, [x[0], *images], titles, strict=False):
            show(place, image, title)
        figure.savefig(target, dpi=100, pil_kwargs={"quality": 88})


def show(axes: Axes, image: Tensor, title: str = "", note: str = "") -> None:
    axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(title, fontsize=9, color="#444444", pad=4)
    if note:
        box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "boxstyle": "round,pad=0.25"}
        axes.text(0.04, 0.05, note, transform=axes.transAxes, fontsize=7.5, va="bottom", bbox=box)


def write(axes: Axes, name: str, fields: str) -> None:
    axes.set_axis_off()
    axes.text(0, 0.6, name, fontsize=10.5, fontweight="bold", va="center", transform=axes.transAxes)
    axes.text(0, 0.45, fields, fontsize=8.5, color="#555555", va="top", linespacing=1.4, transform=axes.transAxes)


MAKERS: dict[str, tuple[str, Callable[[Path], None]]] = {  # photographs are small as JPEG only
    "augmentations": ("augmentations.jpg", picture_of_augmentations),
    "operations": ("operations.jpg", picture_of_operations),
    "report": ("report.png", picture_of_report),
}


def main() -> None:
    for name in sys.argv[1:] or MAKERS:
        if name not in MAKERS:
            raise SystemExit(f"make_pictures: {name!r}; accepted: {', '.join(MAKERS)}")
        file, make = MAKERS[name]
        make(PICTURES / file)
        print(f"picture: {PICTURES / file}")


if __name__ == "__main__":
    main()
