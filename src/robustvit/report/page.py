"""write_report(): the page itself."""

import os
from collections.abc import Sequence
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from robustvit import storage
from robustvit.errors import UserError
from robustvit.report.contents import RunContents, check_comparable, main_threat, read_run
from robustvit.report.drawing import COLOURS
from robustvit.report.figures import HELD_OUT, accuracy_against_eps, examples, training_curves
from robustvit.report.sections import sections


def write_report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Path:
    """One page of one run or several, by default in the run or beside the runs; it opens from disk and loads nothing."""
    if not runs:
        raise UserError("runs: none given; accepted: one folder or more")
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    path = Path(out) if out is not None else _place(folders)
    if path.is_dir() or (path.exists() and path.suffix not in (".html", ".htm")):
        raise UserError(f"out: {str(path)!r} is there and no page; accepted: a new file, or an .html to replace")
    contents = [read_run(folder) for folder in folders]
    check_comparable(contents)
    threat = main_threat(contents)
    curves = [
        training_curves(contents, HELD_OUT, "held-out accuracy"),
        training_curves(contents, "loss", "training loss"),
    ]
    page = (
        environment("robustvit.report")
        .get_template("page.html")
        .render(
            runs=contents,
            colours=COLOURS * 8,
            threat=threat,
            headlines=[run.headline(threat) for run in contents],
            sweep=accuracy_against_eps(contents, threat[0]) if threat else None,
            examples=examples,
            curves=[curve for curve in curves if curve],
            sections=sections,
            columns=_columns(contents),
        )
    )
    storage.replace_file(path, lambda: page.encode("utf-8"))  # as its <meta> says, whatever the machine prefers
    return path


def _place(folders: list[Path]) -> Path:
    if len(folders) == 1:
        return folders[0] / "report.html"
    beside = Path(os.path.commonpath([folder.resolve() for folder in folders]))
    if beside == beside.parent:
        raise UserError("out: missing; the runs lie in no common folder, so say where the page goes, as in --out report.html")
    return beside / "report.html"


def environment(package: str) -> Environment:
    """Templates of a package, which may extend the base of all pages."""
    loader = ChoiceLoader([PackageLoader(package, "."), PackageLoader("robustvit.report", ".")])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    made.filters["code"] = _code
    made.filters["pixels"] = _in_pixels
    return made


def _in_pixels(eps: float) -> str:
    """As people write it, where it is a number of the 255 steps of a pixel."""
    steps = 255 * eps
    return f"{steps:.0f}/255" if eps and abs(steps - round(steps)) < 1e-6 else f"{eps:.4g}"


def _code(text: str) -> Markup:
    """What stands between backticks, as code; all else escaped."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


def _columns(contents: list[RunContents]) -> list[str]:
    """Every outcome's name once, in the order of the runs."""
    return list(dict.fromkeys(outcome.name for run in contents for outcome in run.outcomes))
