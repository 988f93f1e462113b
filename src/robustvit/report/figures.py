"""The figures of a report, as SVG text or embedded PNG, so that the page needs nothing beside it."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from robustvit.evaluation.outcome import Outcome
from robustvit.report.contents import RunContents, threat_of

COLOURS = ("#c8553d", "#28666e", "#b08a2e", "#5b5f97", "#7a8f3c", "#8d5a97")


def accuracy_against_eps(runs: list[RunContents], norm: str) -> str:
    """One line a run: its clean accuracy and its worst outcome at each eps, with 95% intervals."""
    with _axes("eps (pixels in [0, 1])", "accuracy") as (axes, figure):
        names = []
        for run, colour in zip(runs, _colours(), strict=False):
            worst: dict[float, Outcome] = {0.0: run.clean} if run.clean else {}
            for outcome in run.attacked:
                of_norm, eps = threat_of(outcome)
                if of_norm == norm and (eps not in worst or outcome.accuracy < worst[eps].accuracy):
                    worst[eps] = outcome
            points = sorted(worst.items())
            if points:
                at = [eps for eps, _ in points]
                low, high = zip(*(outcome.interval for _, outcome in points), strict=True)
                axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
                axes.plot(at, [o.accuracy for _, o in points], color=colour, marker="o", markersize=4)
                names.append(run.name)
        axes.set_ylim(-0.02, 1.02)
        _legend(axes, names)
        return _svg(figure)


def training_curves(runs: list[RunContents], key: str, label: str) -> str | None:
    """A logged value over the epochs; None if no run logged it."""
    logged = [(run, [r for r in run.metrics if key in r]) for run in runs]
    if not any(records for _, records in logged):
        return None
    with _axes("epoch", label) as (axes, figure):
        names = []
        for (run, records), colour in zip(logged, _colours(), strict=False):
            if records:
                axes.plot([r["epoch"] for r in records], [r[key] for r in records], color=colour)
                names.append(run.name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        _legend(axes, names)
        return _svg(figure)


def examples(outcome: Outcome) -> list[dict[str, Any]]:
    """The first images of an outcome: before, the change (grey is none, full contrast is eps), after."""
    classes = outcome.provenance["data"]["classes"]
    scale = max(outcome.eps, 1e-9) if outcome.provenance["threat"]["norm"] == "linf" else None
    shown = []
    for i, (image, attacked) in enumerate(
        zip(outcome.arrays["example_image"], outcome.arrays["example_attacked"], strict=True)
    ):
        change = attacked - image
        size = scale or max(float(np.abs(change).max()), 1e-9)
        before, after = int(outcome.arrays["clean_prediction"][i]), int(outcome.arrays["attacked_prediction"][i])
        shown.append(
            {
                "image": _png(image),
                "change": _png(0.5 + change / (2 * size)),
                "attacked": _png(attacked),
                "label": _class(classes, int(outcome.arrays["y"][i])),
                "before": _class(classes, before),
                "after": _class(classes, after),
                "correct": bool(outcome.correct[i]),
            }
        )
    return shown


def _class(classes: list[str] | None, index: int) -> str:
    return classes[index] if classes else str(index)


def _colours() -> list[str]:
    return list(COLOURS) * 8


@contextmanager
def _axes(x: str, y: str) -> Iterator[tuple[Axes, Figure]]:
    style: Any = {
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
    with mpl.rc_context(style):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.set_axisbelow(True)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        yield axes, figure


def _legend(axes: Axes, names: list[str]) -> None:
    """Names as they are: matplotlib would read $…$ as mathematics and leave out a label that begins with _."""
    legend = axes.legend(axes.get_lines(), ["run"] * len(names), frameon=False)
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    return text[text.index("<svg") :]  # without the XML prologue, which has no place inside HTML


def _png(image: np.ndarray) -> str:
    pixels = (np.clip(image, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
