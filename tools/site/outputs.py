"""Colours programs among blocks of text, and takes the paths of the machine out of outputs."""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from docutils import nodes
from sphinx.transforms import SphinxTransform

#: languages of blocks whose text may be a trace: outputs of cells, blocks of pages without a language
_PLAIN: Final = {"myst-ansi", "text", "none", "ipythontb", "default"}

#: paths of the machine → what stands in their place
_PATHS: Final = (
    (re.compile(r"(?:/[^\s/\"']+)+/ipykernel_\d+/\d+\.py"), "cell.py"),
    (re.compile(r"(?:/[^\s/\"']+)+/site-packages/"), ""),
)


def is_program(text: str) -> bool:
    """Return whether a text is Python that defines a function, as each trace does."""
    if "def " not in text:
        return False
    try:
        return any(isinstance(part, ast.FunctionDef) for part in ast.parse(text).body)
    except SyntaxError:
        return False


def without_paths(text: str) -> str:
    """Return an output whose files have the names that they have everywhere.

    A cell of a tutorial is `cell.py`, a file of an installed package begins with the package.
    """
    for path, name in _PATHS:
        text = path.sub(name, text)
    return text


class ReadableOutputs(SphinxTransform):
    """Colours traces, and takes paths out of what cells print."""

    default_priority = 900

    def apply(self, **kwargs: Any) -> None:
        """Change the blocks of one page."""
        for block in self.document.findall(nodes.literal_block):
            if block.get("language", "default") not in _PLAIN:
                continue
            text = without_paths(block.astext())
            if text != block.astext():
                block.rawsource = text
                block.children = [nodes.Text(text)]
                block.children[0].parent = block
            if is_program(text):
                block["language"] = "python"
