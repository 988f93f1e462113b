"""The section of attack effectiveness, and the figures that the light recipe has of it."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from robustvit.analysis import Finding
from robustvit.report.drawing import colours, legend, log_steps, one_axes, panels, svg, title
from robustvit.report.sections.section import Drawing, Section, label

Rows = list[dict[str, Any]]


def effectiveness(finding: Finding) -> Section:
    rows = finding.data["models"]
    steps = _steps(rows)
    table = [["model", *(f"d_{k} (median)" for k in steps)]]
    for row in rows:
        cells = [f"{_share(a['mean'], a['std'])} ({_share(_mean(a['median_of_images']))})" for a in row["attacks"]]
        table.append([label(row), *cells])
    oracle, seeds = rows[0]["oracle"]["steps"], len(rows[0]["oracle"]["loss"])
    over_epochs = max(map(len, _by_model(rows).values())) > 1
    return Section(
        "How much of a strong attack a few steps find",
        f"d_k is what the mean loss under PGD-k falls short of that under PGD-{oracle}, as a share of the latter: mean ± "
        f"standard deviation over {seeds} seeds. Near 0, training with k steps sees attacks as strong as there are; below 0, k "
        f"steps beat the strong attack. The median is of the same difference for each of {rows[0]['n']} images.",
        [Drawing(by_steps(finding), wide=True) if over_epochs else Drawing(_of_one_moment(rows))],
        table,
    )


def by_steps(finding: Finding) -> str:
    """Figure 12 of the light recipe: a panel for each number of steps, over the epochs of training."""
    rows = finding.data["models"]
    with panels(len(_steps(rows)), "epoch", "d_k", (2.9, 2.6), columns=4, heading="few steps against many") as (grid, figure):
        for number, (axes, k) in enumerate(zip(grid, _steps(rows), strict=True)):
            title(axes, f"k = {k}")
            _over_epochs(axes, rows, number)
        legend(grid[0], list(_by_model(rows)))
        return svg(figure)


def by_epoch(finding: Finding) -> str:
    """Figure 13: a panel for each epoch, over the numbers of steps."""
    rows = finding.data["models"]
    epochs = sorted({row["epoch"] or 0 for row in rows})
    with panels(len(epochs), "steps k", "d_k", (2.9, 2.6), columns=4, heading="few steps against many") as (grid, figure):
        for axes, epoch in zip(grid, epochs, strict=True):
            title(axes, f"epoch {epoch:g}")
            _over_steps(axes, [row for row in rows if (row["epoch"] or 0) == epoch])
        legend(grid[0], list(_by_model(rows)))
        return svg(figure)


def single_step_and_last_epoch(finding: Finding) -> str:
    """Figure 7: (a) the fewest steps over the epochs, (b) the last epoch over the steps."""
    rows = finding.data["models"]
    last = [of_model[-1] for of_model in _by_model(rows).values()]
    with panels(2, "", "d_k", (3.6, 3.0), columns=2, same_x=False) as ((left, right), figure):
        title(left, f"(a) k = {_steps(rows)[0]} over the epochs")
        _over_epochs(left, rows, 0)
        left.set_xlabel("epoch")
        title(right, "(b) the last epoch over the steps k")
        _over_steps(right, last)
        right.set_xlabel("steps k")
        legend(left, list(_by_model(rows)))
        return svg(figure)


def _of_one_moment(rows: Rows) -> str:
    with one_axes("steps k", "d_k") as (axes, figure):
        _over_steps(axes, rows)
        legend(axes, [label(row) for row in rows])
        return svg(figure)


def _over_epochs(axes: Axes, rows: Rows, number: int) -> None:
    for of_model, colour in zip(_by_model(rows).values(), colours(), strict=False):
        _band(axes, [row["epoch"] or 0 for row in of_model], [row["attacks"][number] for row in of_model], colour)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _over_steps(axes: Axes, rows: Rows) -> None:
    for row, colour in zip(rows, colours(), strict=False):
        _band(axes, _steps(rows), row["attacks"], colour)
    log_steps(axes, _steps(rows))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _band(axes: Axes, at: list[Any], attacks: Rows, colour: str) -> None:
    mean = np.array([np.nan if attack["mean"] is None else attack["mean"] for attack in attacks])
    std = np.array([attack["std"] or 0.0 for attack in attacks])
    axes.fill_between(at, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
    axes.plot(at, mean, color=colour, marker="o", markersize=4)


def _by_model(rows: Rows) -> dict[str, Rows]:
    """Each model's rows, by epoch."""
    series: dict[str, Rows] = {}
    for row in sorted(rows, key=lambda row: row["epoch"] or 0):
        series.setdefault(row["model"], []).append(row)
    return {row["model"]: series[row["model"]] for row in rows}


def _steps(rows: Rows) -> list[int]:
    return [attack["steps"] for attack in rows[0]["attacks"]]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _share(mean: float | None, std: float | None = None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.2%}" if std is None else f"{mean:.2%} ± {std:.2%}"
