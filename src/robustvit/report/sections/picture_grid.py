"""Pictures of a section as one SVG, for where there is no page."""

import textwrap
from collections.abc import Sequence
from html import escape

from robustvit.report.sections.section import Picture


def picture_grid(rows: Sequence[Sequence[str | Picture]], cell: int = 96) -> str:
    """Rows of pictures and words as one SVG; the first row names the columns, and each row begins with its name."""
    gap, line = 8, 16
    tall = cell + gap + (line if any(isinstance(c, Picture) and c.caption for row in rows for c in row) else 0)
    width, height = max(map(len, rows)) * (cell + gap), line * 2 + (len(rows) - 1) * tall
    parts = []
    for number, row in enumerate(rows):
        top = line * 2 + (number - 1) * tall if number else 0
        for column, what in enumerate(row):
            left = column * (cell + gap)
            if isinstance(what, str):
                parts.append(_words(what, left, top + (line if number == 0 else cell // 2)))
                continue
            parts.append(
                f'<image x="{left}" y="{top}" width="{cell}" height="{cell}" href="{what.image}" '
                f'style="image-rendering: pixelated"><title>{escape(what.alt)}</title></image>'
            )
            parts.append(_words(what.caption, left, top + cell + line - 3) if what.caption else "")
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">{"".join(parts)}</svg>\n'


def _words(text: str, left: int, baseline: int) -> str:
    """In lines of up to 16 letters, so that they stay within their column."""
    lines = textwrap.wrap(text, 16) or [""]
    spans = "".join(f'<tspan x="{left}" dy="{12 if number else 0}">{escape(part)}</tspan>' for number, part in enumerate(lines))
    return f'<text x="{left}" y="{baseline - 6 * (len(lines) - 1)}">{spans}</text>'
