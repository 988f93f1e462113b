"""Sections whose evidence is accuracies: the eps sweep and the table of PGD steps."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from robustvit.analysis import Finding
from robustvit.report.drawing import colours, legend, log_steps, one_axes, svg
from robustvit.report.sections.section import Drawing, Section, label


def eps_sweep(finding: Finding) -> Section:
    rows, attack = finding.data["models"], finding.data["attack"]
    stages = [stage["name"] for stage in rows[0]["points"][-1]["stages"]]
    table = [["images that stand, of each model and eps", "eps", "clean", *stages, "accuracy"]]
    with one_axes("eps (pixels in [0, 1])", "accuracy") as (axes, figure):
        for row, colour in zip(rows, colours(), strict=False):
            points = row["points"]
            _with_interval(axes, [point["eps"] for point in points], points, colour)
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
        log_steps(axes, steps)
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
