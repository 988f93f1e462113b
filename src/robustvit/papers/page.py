"""write_page(): all results that a folder holds, on one self-contained page."""

from collections import Counter
from pathlib import Path

from robustvit import storage
from robustvit.errors import UserError
from robustvit.papers.result import Result, number
from robustvit.papers.verdict import FAILED, HELD, OPEN
from robustvit.report.page import environment

KINDS = {HELD: "held", FAILED: "failed", OPEN: "open"}  # CSS classes


def write_page(results: Path, order: list[str]) -> Path:
    """RESULTS/index.html; `order` are the names of all artefacts."""
    found = {result.artefact: result for path in sorted(results.glob("*/*.json")) for result in [Result.load(path)]}
    if not found:
        raise UserError(f"results: {str(results)!r} holds none; accepted: a folder that `robustvit reproduce` wrote to")
    shown = [found[name] for name in order if name in found]
    page = environment("robustvit.papers").get_template("page.html")
    html = page.render(
        results=shown,
        counts=Counter(result.verdict["text"] for result in shown),
        figures=lambda result: [result.path(results).with_name(name).read_text("utf-8") for name in result.figures],
        kind=lambda text: KINDS.get(text, "none"),
        number=number,
    )
    path = results / "index.html"
    storage.replace_file(path, lambda: html.encode("utf-8"))
    return path
