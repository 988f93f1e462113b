"""Sections whose evidence is a curve or a table of numbers."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter, ScalarFormatter

from robustvit.analysis import Finding
from robustvit.report.drawing import colours, legend, one_axes, panels, svg, title
from robustvit.report.sections.section import Drawing, Section, label

PANELS = 32
MOMENTS = 40  # of a long path that are drawn


def effectiveness(finding: Finding) -> Section:
    rows = finding.data["models"]
    steps = [attack["steps"] for attack in rows[0]["attacks"]]
    series: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        series.setdefault(row["model"], []).append(row)
    over_epochs = max(map(len, series.values())) > 1
    table = [["model", *(f"d_{k} (median)" for k in steps)]]
    for row in rows:
        cells = [f"{_share(a['mean'], a['std'])} ({_share(_mean(a['median_of_images']))})" for a in row["attacks"]]
        table.append([label(row), *cells])
    oracle, seeds = rows[0]["oracle"]["steps"], len(rows[0]["oracle"]["loss"])
    return Section(
        "How much of a strong attack a few steps find",
        f"d_k is what the mean loss under PGD-k falls short of that under PGD-{oracle}, as a share of the latter: mean ± "
        f"standard deviation over {seeds} seeds. Near 0, training with k steps sees attacks as strong as there are; below 0, k "
        f"steps beat the strong attack. The median is of the same difference for each of {rows[0]['n']} images.",
        [Drawing(_over_epochs(series, steps) if over_epochs else _over_steps(rows, steps), wide=over_epochs)],
        table,
    )


def _over_epochs(series: dict[str, list[dict[str, Any]]], steps: list[int]) -> str:
    with panels(len(steps), "epoch", "d_k", (2.9, 2.6), columns=4) as (grid, figure):
        for number, (axes, k) in enumerate(zip(grid, steps, strict=True)):
            title(axes, f"k = {k}")
            for rows, colour in zip(series.values(), colours(), strict=False):
                known = sorted((row["epoch"] or 0, row["attacks"][number]) for row in rows)
                _band(axes, [epoch for epoch, _ in known], [attack for _, attack in known], colour)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        legend(grid[0], list(series))
        return svg(figure)


def _over_steps(rows: list[dict[str, Any]], steps: list[int]) -> str:
    with one_axes("steps k", "d_k") as (axes, figure):
        for row, colour in zip(rows, colours(), strict=False):
            _band(axes, steps, row["attacks"], colour)
        _log_steps(axes, steps)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        legend(axes, [label(row) for row in rows])
        return svg(figure)


def _band(axes: Axes, at: list[Any], attacks: list[dict[str, Any]], colour: str) -> None:
    mean = np.array([np.nan if attack["mean"] is None else attack["mean"] for attack in attacks])
    std = np.array([attack["std"] or 0.0 for attack in attacks])
    axes.fill_between(at, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
    axes.plot(at, mean, color=colour, marker="o", markersize=4)


def convergence(finding: Finding) -> Section:
    rows, figures = finding.data["models"], []
    steps = [attack["steps"] for attack in rows[0]["attacks"]]
    length = finding.arrays["path"].shape[3] - 1
    moments = np.unique(np.geomspace(1, length + 1, MOMENTS).round().astype(int)) - 1
    for row, final, path in zip(rows, finding.arrays["final"], finding.arrays["path"], strict=True):
        figures.append(Drawing(_by_point(steps, final), f"{label(row)}: final loss against steps, an image a panel", True))
        figures.append(Drawing(_by_point(moments, path[:, :, moments]), f"{label(row)}: loss at each of {length} steps", True))
    table = [["mean loss", *(f"PGD-{k}" for k in steps), f"spread, PGD-{steps[-1]}", "steps until within 1%"]]
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


def _by_point(at: np.ndarray | list[int], losses: np.ndarray) -> str:
    """`losses`: [points, restarts, places on the axis]."""
    shown = losses[:PANELS]
    with panels(len(shown), "steps", "cross-entropy", (1.6, 1.2), columns=8, same_y=False) as (grid, figure):
        for axes, of_point in zip(grid, shown, strict=True):
            low, high = of_point.min(0), of_point.max(0)
            axes.fill_between(at, low, high, color=colours()[0], alpha=0.3, linewidth=0)
            axes.plot(at, np.median(of_point, 0), color=colours()[0], linewidth=1.2)
            axes.set_xscale("symlog", linthresh=1)
            axes.set_xticks([n for n in (1, 10, 100, 1000) if n <= max(at)])
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_locator(NullLocator())
            axes.tick_params(labelsize=7)
        return svg(figure)


def eps_sweep(finding: Finding) -> Section:
    rows, attack = finding.data["models"], finding.data["attack"]
    stages = [stage["name"] for stage in rows[0]["points"][-1]["stages"]]
    table = [["model", "eps", "clean", *stages, "accuracy"]]
    with one_axes("eps (pixels in [0, 1])", "accuracy") as (axes, figure):
        for row, colour in zip(rows, colours(), strict=False):
            points = row["points"]
            at = [point["eps"] for point in points]
            _with_interval(axes, at, points, colour)
            for point in points[1:]:
                standing = [str(stage["standing"]) for stage in point["stages"]]
                share = f"{point['accuracy']:.1%}"
                table.append([label(row), f"{point['eps']:.4g}", str(points[0]["correct"]), *standing, share])
        axes.set_ylim(-0.02, 1.02)
        legend(axes, [label(row) for row in rows])
        drawn = svg(figure)
    return Section(
        f"Accuracy under {attack} against eps",
        "Under a reliable attack it falls without exception, and to 0. The table counts the images that still stand after each "
        f"stage, of {rows[0]['n']}. " + " ".join(f"{label(row)}: {_verdict(row)}." for row in rows),
        [Drawing(drawn)],
        table,
    )


def _verdict(row: dict[str, Any]) -> str:
    falls = "falls without exception" if row["falls_monotonically"] else "does not always fall"
    ends = "and reaches 0" if row["reaches_zero"] else "and does not reach 0 within this range"
    missed = row["broken_by_less"]
    return f"{falls} {ends}" + (f"; {missed} images stand at an eps although a smaller one broke them" if missed else "")


def pgd_steps(finding: Finding) -> Section:
    rows = finding.data["models"]
    table = [["model", "clean", *(f"PGD-{attack['steps']}" for attack in rows[0]["attacks"]), "n"]]
    for row in rows:
        table.append([label(row), *(f"{each['accuracy']:.2%}" for each in (row["clean"], *row["attacks"])), str(row["n"])])
    with one_axes("steps", "accuracy") as (axes, figure):
        steps = [attack["steps"] for attack in rows[0]["attacks"]]
        for row, colour in zip(rows, colours(), strict=False):
            _with_interval(axes, steps, row["attacks"], colour)
        _log_steps(axes, steps)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        legend(axes, [label(row) for row in rows])
        drawn = svg(figure)
    return Section(
        "Accuracy under PGD of more and more steps",
        "Where accuracy no longer falls, more steps find nothing new. Bands are 95% intervals.",
        [Drawing(drawn)],
        table,
    )


def _with_interval(axes: Axes, at: list[Any], accuracies: list[dict[str, Any]], colour: str) -> None:
    low, high = zip(*(each["interval_95"] for each in accuracies), strict=True)
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(at, [each["accuracy"] for each in accuracies], color=colour, marker="o", markersize=4)


def _log_steps(axes: Axes, steps: list[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(steps)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _share(mean: float | None, std: float | None = None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.2%}" if std is None else f"{mean:.2%} ± {std:.2%}"
