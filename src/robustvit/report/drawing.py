"""What every figure of a report is drawn with: axes in one style, SVG text and embedded PNG."""

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter
from PIL import Image

GROWS = 1.5  # CSS pixels a point at most: a small figure on a wide page keeps its proportions to the text
COLOURS = ("#c8553d", "#28666e", "#b08a2e", "#5b5f97", "#7a8f3c", "#8d5a97")
STYLE: Any = {
    "font.size": 10,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "robustvit",  # the same page from the same files
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8a85",
    "axes.labelcolor": "#44443f",
    "xtick.color": "#6b6b66",
    "ytick.color": "#6b6b66",
    "axes.grid": True,
    "grid.color": "#e6e5df",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2,
}


@contextmanager
def one_axes(x: str, y: str) -> Iterator[tuple[Axes, Figure]]:
    with panels(1, x, y, size=(6.4, 3.6)) as ((axes,), figure):
        yield axes, figure


@contextmanager
def panels(
    count: int,
    x: str,
    y: str,
    size: tuple[float, float],
    columns: int = 1,
    same_y: bool = True,
    same_x: bool = True,
    heading: str = "",
) -> Iterator[tuple[list[Axes], Figure]]:
    """`count` axes in rows of `columns`, each of `size`, and their figure, under a `heading`."""
    columns = min(columns, count)
    rows = -(-count // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=same_x, sharey=same_y, squeeze=False)
        for axes in grid.flat:
            axes.set_axisbelow(True)
        for axes in grid.flat[count:]:
            axes.set_visible(False)
        if count == 1:
            grid[0, 0].set(xlabel=x, ylabel=y)
        else:
            figure.supxlabel(x, fontsize=10, color=STYLE["axes.labelcolor"])
            figure.supylabel(y, fontsize=10, color=STYLE["axes.labelcolor"])
        if heading:
            figure.suptitle(heading, fontsize=11, color=STYLE["axes.labelcolor"], parse_math=False)
        yield list(grid.flat[:count]), figure


def colours() -> list[str]:
    return list(COLOURS) * 8


def legend(axes: Axes, names: Sequence[str]) -> None:
    """Names of the lines, as they are: matplotlib would read $…$ as mathematics and leave out a label that begins with _."""
    shown = axes.legend(axes.get_lines(), ["run"] * len(names), frameon=False)
    for text, name in zip(shown.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10, color=STYLE["axes.labelcolor"], parse_math=False)


def log_steps(axes: Axes, steps: Sequence[int]) -> None:
    """Numbers of attack steps along the axis, each at its place."""
    axes.set_xscale("log")
    axes.set_xticks(steps)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]  # without the XML prologue, which has no place inside HTML
    return text.replace("<svg ", f'<svg style="max-width: {72 * GROWS * figure.get_figwidth():.0f}px" ', 1)


def png(image: np.ndarray) -> str:
    """[C, H, W] on [0, 1], as the address of an <img>."""
    pixels = (np.clip(image, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
