"""The figures of a result: what its analysis shows, its training curves, or the paper's numbers and ours side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from robustvit import storage
from robustvit.analysis import Finding
from robustvit.papers.artefact import Artefact
from robustvit.papers.result import Result
from robustvit.report.contents import read_run
from robustvit.report.drawing import COLOURS, panels, svg, title
from robustvit.report.figures import training_curves
from robustvit.report.sections import sections
from robustvit.report.sections.picture_grid import picture_grid

PAPER, OURS = COLOURS[0], COLOURS[1]


def draw(
    artefact: Artefact, result: Result, findings: Sequence[Finding], logs: Mapping[str, Path], results: Path
) -> tuple[str, ...]:
    """Write them beside the result; -> their file names."""
    drawn = [*_of_findings(artefact, findings), *(_of_training(logs) if artefact.curves else [])]
    if not drawn and (numbers := side_by_side(result)):
        drawn = [numbers]
    place = result.path(results)
    for old in place.parent.glob(f"{place.stem}.*svg"):
        old.unlink()
    names = [f"{place.stem}.svg", *(f"{place.stem}.{number}.svg" for number in range(2, len(drawn) + 1))][: len(drawn)]
    for name, figure in zip(names, drawn, strict=True):
        storage.replace_file(place.with_name(name), figure.encode)
    return tuple(names)


def _of_findings(artefact: Artefact, findings: Sequence[Finding]) -> list[str]:
    """As the look draws them, or all that a report shows of them."""
    if artefact.look and artefact.look.draw:
        return [artefact.look.draw(finding) for finding in findings]
    drawn = []
    for section in sections(findings):
        drawn += [drawing.svg for drawing in section.figures]
        if section.pictures:
            drawn.append(picture_grid(section.pictures))
    return drawn


def _of_training(logs: Mapping[str, Path]) -> list[str]:
    runs = [replace(read_run(folder), name=label) for label, folder in logs.items()]
    keys = (("adversarial_accuracy", "training accuracy under attack"), ("held_out_accuracy", "held-out accuracy under attack"))
    return [curve for key, label in keys if (curve := training_curves(runs, key, label))]


def side_by_side(result: Result) -> str | None:
    """A panel a column with numbers of ours: the paper's hollow, ours full with the range over seeds."""
    shown = [i for i, _ in enumerate(result.columns) if any(line.entries[i].ours for line in result.lines)]
    if not shown:
        return None
    height = 0.6 + 0.3 * len(result.lines)
    same_unit = len({result.columns[column]["name"].rpartition("[")[2] for column in shown}) == 1
    with panels(len(shown), "", "", (3.2, max(1.6, height)), len(shown), same_x=same_unit) as (grid, figure):
        for axes, column in zip(grid, shown, strict=True):
            title(axes, result.columns[column]["name"])
            _points(axes, result, column)
            axes.tick_params(axis="x", labelbottom=True)
        _key(figure)
        return svg(figure)


def _points(axes: Axes, result: Result, column: int) -> None:
    places = range(len(result.lines))
    for place, line in zip(places, result.lines, strict=True):
        entry = line.entries[column]
        if entry.paper is not None:
            axes.plot([entry.paper], [place], marker="D", markersize=6, markerfacecolor="none", color=PAPER, linestyle="")
        if entry.mean is not None:
            axes.plot([min(entry.ours), max(entry.ours)], [place, place], color=OURS)
            axes.plot([entry.mean], [place], marker="o", markersize=5, color=OURS, linestyle="")
    axes.set_yticks(list(places))
    axes.set_yticklabels([line.label for line in result.lines])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.set_ylim(len(result.lines) - 0.5, -0.5)


def _key(figure: Figure) -> None:
    marks = [
        Line2D([], [], marker="D", markerfacecolor="none", color=PAPER, linestyle=""),
        Line2D([], [], marker="o", color=OURS, linestyle=""),
    ]
    figure.legend(marks, ["paper", "ours"], loc="outside lower right", ncols=2, frameon=False, fontsize=9)
