"""Pictures within a page, in the colours of the page."""

from __future__ import annotations

import html
import re
from typing import Final

_HEAD: Final = re.compile(r"^.*?(?=<svg)", re.DOTALL)


def inline(svg: str, description: str, *, kind: str) -> str:
    """Return an SVG file as a figure of a page: as wide as it was drawn, and no wider than the text.

    `description` is what a screen reader says of it.
    """
    svg = _HEAD.sub("", svg)
    width = re.search(r'width="([\d.]+)(?:pt)?"', svg)
    points = float(width[1]) if width else 640.0
    svg = re.sub(r'\s(?:width|height)="[\d.]+(?:pt)?"', "", svg, count=2)
    said = html.escape(description, quote=True)
    opening = f'<svg role="img" aria-label="{said}" style="width: {points * 4 / 3:.0f}px"'
    return f'<figure class="picture {kind}">{svg.replace("<svg", opening, 1)}</figure>'
