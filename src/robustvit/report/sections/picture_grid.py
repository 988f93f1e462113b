"""Pictures of a section as one SVG, for where there is no page."""

import textwrap
from collections.abc import Sequence
from html import escape

from robustvit.report.sections.section import Picture

GAP, LINE, LETTERS = 8, 14, 16  # pixels between pictures and from line to line; letters of a line


def picture_grid(rows: Sequence[Sequence[str | Picture]], cell: int = 96) -> str:
    """Rows of pictures and words as one SVG; the first row names the columns, and each row begins with its name."""
    captions = any(isinstance(what, Picture) and what.caption for row in rows for what in row)
    head = LINE * max(len(_lines(str(what))) for what in rows[0]) + GAP
    tall = cell + GAP + (LINE if captions else 0)
    width, height = max(map(len, rows)) * (cell + GAP), head + (len(rows) - 1) * tall
    parts = []
    for number, row in enumerate(rows):
        top = head + (number - 1) * tall if number else 0
        for column, what in enumerate(row):
            left = column * (cell + GAP)
            if isinstance(what, str):
                parts.append(_words(what, left, head - GAP if number == 0 else top + cell // 2))
                continue
            parts.append(
                f'<image x="{left}" y="{top}" width="{cell}" height="{cell}" href="{what.image}" '
                f'style="image-rendering: pixelated"><title>{escape(what.alt)}</title></image>'
            )
            parts.append(_words(what.caption, left, top + cell + LINE - 3) if what.caption else "")
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="max-width: {width}px"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">{"".join(parts)}</svg>\n'


def _lines(text: str) -> list[str]:
    """Of so many letters that they stay within their column."""
    return textwrap.wrap(text, LETTERS) or [""]


def _words(text: str, left: int, baseline: int) -> str:
    """The last line on the baseline, the others above it."""
    lines = _lines(text)
    spans = "".join(
        f'<tspan x="{left}" dy="{LINE if number else 0}">{escape(part)}</tspan>' for number, part in enumerate(lines)
    )
    return f'<text x="{left}" y="{baseline - LINE * (len(lines) - 1)}">{spans}</text>'
