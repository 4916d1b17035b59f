"""What is wrong with a page as a browser draws it: nothing drawn, texts over each other, too wide."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

__all__ = ["colours_of", "overlaps", "width_of"]

#: the visible pieces of text that cover each other, as pairs; each is cut to the boxes that hide the rest
_OVERLAPS = """
() => {
  const pieces = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("script, style, noscript, select, svg title, .skip")) continue;
    if (!parent.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true })) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom];
      for (let up = parent; up && up !== document.body; up = up.parentElement) {
        const style = getComputedStyle(up);
        if (style.overflowX === "visible" && style.overflowY === "visible") continue;
        const clip = up.getBoundingClientRect();
        [left, top] = [Math.max(left, clip.left), Math.max(top, clip.top)];
        [right, bottom] = [Math.min(right, clip.right), Math.min(bottom, clip.bottom)];
      }
      if (right - left > 1 && bottom - top > 1) {
        pieces.push({ text: node.data.trim().slice(0, 40), node, left, top, right, bottom });
      }
    }
  }
  const found = [];
  for (let i = 0; i < pieces.length; i++) for (let j = i + 1; j < pieces.length; j++) {
    const [a, b] = [pieces[i], pieces[j]];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (a.node !== b.node && wide > 3 && high > 4) found.push([a.text, b.text]);
  }
  return found;
}
"""


def overlaps(tab: Any) -> list[list[str]]:
    """Return the pairs of texts of a page that are drawn over each other."""
    found: list[list[str]] = tab.evaluate(_OVERLAPS)
    return found


def width_of(tab: Any) -> int:
    """Return the width of a page in pixels, which is that of the window unless something is wider."""
    width: int = tab.evaluate("document.documentElement.scrollWidth")
    return width


def colours_of(picture: bytes) -> dict[tuple[int, ...], float]:
    """Return the colours of a picture (PNG), each with its part of all pixels."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    counts = image.getcolors(maxcolors=1 << 24)
    assert counts is not None, "a picture has fewer colours than that"
    total = image.width * image.height
    return {colour: count / total for count, colour in counts}  # type: ignore[misc]
