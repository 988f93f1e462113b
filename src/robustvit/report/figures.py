"""The figures of outcomes and training, as SVG text or embedded PNG, so that the page needs nothing beside it."""

from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from robustvit.evaluation.outcome import Outcome
from robustvit.report.contents import RunContents
from robustvit.report.drawing import colours, legend, one_axes, png, svg


def accuracy_against_eps(runs: list[RunContents], norm: str) -> str:
    """One line a run: its clean accuracy and its worst outcome at each eps, with 95% intervals."""
    with one_axes("eps (pixels in [0, 1])", "accuracy") as (axes, figure):
        names = []
        for run, colour in zip(runs, colours(), strict=False):
            if points := run.curve(norm):
                at = [eps for eps, _ in points]
                low, high = zip(*(outcome.interval for _, outcome in points), strict=True)
                axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
                axes.plot(at, [o.accuracy for _, o in points], color=colour, marker="o", markersize=4)
                names.append(run.name)
        axes.set_ylim(-0.02, 1.02)
        legend(axes, names)
        return svg(figure)


HELD_OUT = "held_out_accuracy"


def training_curves(runs: list[RunContents], key: str, label: str) -> str | None:
    """A logged value over the epochs; None if no run logged it."""
    logged = [(run, [r for r in run.metrics if key in r]) for run in runs]
    if not any(records for _, records in logged):
        return None
    with one_axes("epoch", label) as (axes, figure):
        names = []
        for (run, records), colour in zip(logged, colours(), strict=False):
            if records:
                marker = "o" if len(records) < 3 else None  # a line of one point would not be seen
                axes.plot([r["epoch"] for r in records], [r[key] for r in records], color=colour, marker=marker, markersize=4)
                names.append(f"{run.name}, {run.selected_by}" if key == HELD_OUT else run.name)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        legend(axes, names)
        return svg(figure)


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
                "image": png(image),
                "change": png(0.5 + change / (2 * size)),
                "attacked": png(attacked),
                "label": _class(classes, int(outcome.arrays["y"][i])),
                "before": _class(classes, before),
                "after": _class(classes, after),
                "correct": bool(outcome.correct[i]),
            }
        )
    return shown


def _class(classes: list[str] | None, index: int) -> str:
    return classes[index] if classes else str(index)
