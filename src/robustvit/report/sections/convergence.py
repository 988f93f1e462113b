"""The section of loss convergence, and the figures that the light recipe has of one image."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator, ScalarFormatter

from robustvit.analysis import Finding
from robustvit.report.drawing import colours, panels, svg, title
from robustvit.report.sections.section import Drawing, Section, label

PANELS = 32
Layout = tuple[tuple[float, float], int]  # a panel's size in inches, and panels a row


def convergence(finding: Finding) -> Section:
    rows, figures = finding.data["models"], []
    steps = _steps(finding)
    length = len(rows[0]["path"]) - 1
    for row, final, path in zip(rows, finding.arrays["final"], finding.arrays["path"], strict=True):
        figures.append(Drawing(_by_point(steps, final, f"{label(row)}: final loss against steps, an image a panel"), wide=True))
        heading = f"{label(row)}: loss at each of {length} steps, an image a panel"
        figures.append(Drawing(_by_point(finding.data["moments"], path, heading), wide=True))
    of_steps = [f"PGD-{k}" for k in steps]
    table = [[f"mean loss of {rows[0]['n']} images", *of_steps, f"spread, {of_steps[-1]}", "steps until within 1%"]]
    for row in rows:
        losses = [f"{attack['loss']:.4g}" for attack in row["attacks"]]
        table.append([label(row), *losses, f"{row['attacks'][-1]['spread']:.2g}", f"{row['steps_until_near']:.0f}"])
    return Section(
        "Do attacks converge?",
        f"For each of {rows[0]['n']} images, the median (line) and the range (band) of the loss from {rows[0]['restarts']} "
        "random starts; each panel has its own scale. Where curves end in a plateau and bands close, more steps and other "
        "starts find nothing new.",
        figures,
        table,
    )


def final_losses(finding: Finding) -> str:
    """Figure 5 of the light recipe: of the first image, the final loss of separate attacks, a line a start, a panel a model."""
    return _of_first_image(finding, "final", _steps(finding), "separate attacks of so many steps")


def losses_on_the_way(finding: Finding) -> str:
    """Figure 6: of the first image, the loss at the steps of one long attack with a large step."""
    return _of_first_image(finding, "path", finding.data["moments"], "steps of one attack with a large step")


def _of_first_image(finding: Finding, array: str, at: list[int], x: str) -> str:
    rows = finding.data["models"]
    with panels(len(rows), x, "cross-entropy", (3.6, 2.8), columns=2, same_y=False) as (grid, figure):
        for axes, row, losses in zip(grid, rows, finding.arrays[array], strict=True):
            title(axes, f"{label(row)}, {losses.shape[1]} starts")
            for of_start in losses[0]:
                axes.plot(at, of_start, color=colours()[1], linewidth=0.9, alpha=0.7)
            _step_axis(axes, at)
        return svg(figure)


def _by_point(at: list[int], losses: np.ndarray, heading: str) -> str:
    """`losses`: [points, restarts, places on the axis]."""
    shown = losses[:PANELS]
    size, columns = _layout(len(shown))
    with panels(len(shown), "steps", "cross-entropy", size, columns, same_y=False, heading=heading) as (grid, figure):
        for axes, of_point in zip(grid, shown, strict=True):
            low, high = of_point.min(0), of_point.max(0)
            axes.fill_between(at, low, high, color=colours()[0], alpha=0.3, linewidth=0)
            axes.plot(at, np.median(of_point, 0), color=colours()[0], linewidth=1.2)
            _step_axis(axes, at)
            axes.tick_params(labelsize=7)
        return svg(figure)


def _layout(count: int) -> Layout:
    """Few panels are larger ones, so that their labels fit."""
    if count <= 2:
        return (4.2, 2.8), count
    return ((2.6, 2.0), 4) if count <= 8 else ((1.6, 1.2), 8)


def _step_axis(axes: Axes, at: list[int]) -> None:
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([n for n in (1, 10, 100, 1000) if n <= max(at)])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def _steps(finding: Finding) -> list[int]:
    return [attack["steps"] for attack in finding.data["models"][0]["attacks"]]
