"""`thunder.report`: compiled objects as one page in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thunder_report.collection import collect
from thunder_report.rendering import render

__all__ = ["report"]


def report(compiled: Any, path: str | Path = "report.html", *, title: str | None = None) -> Path:
    """Write a page about a compiled object, or several, to a file; return its path.

    The page has everything inside, and opens in any browser: the program beside its traces, the executor of
    each call with the reasons of the others, the compiles with their reasons, memory, and times. Times and
    memory are measured if the object was compiled with `transforms=[thunder.transforms.MeasureTransform()]`,
    and estimated otherwise.

    Args:
        compiled: what `thunder.jit` or `thunder.plan` returned, or a list or tuple of these.
        path: the file.
        title: of the page; by default the names of the objects.

    Raises NotCompiled for another object, and OSError if the file cannot be written.
    """
    objects: Sequence[Any] = compiled if isinstance(compiled, (list, tuple)) else (compiled,)
    target = Path(path)
    target.write_text(render(collect(*objects, title=title)), encoding="utf-8")
    return target
