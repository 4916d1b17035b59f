"""Compiles generated text under a pseudo file name that ``linecache`` knows: tracebacks show its lines."""

from __future__ import annotations

import itertools
import linecache
import weakref
from types import CodeType
from typing import Any

_serial = itertools.count()


class _Lifetime:
    """Lives in the namespace of a compiled text; when it goes, so does the text's entry in ``linecache``."""


def compile_text(text: str, label: str, namespace: dict[str, Any]) -> CodeType:
    """Executes ``text`` in ``namespace``. The text stays in ``linecache`` as long as the namespace lives."""
    filename = f"<{label} #{next(_serial)}>"
    code = compile(text, filename, "exec", dont_inherit=True)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    lifetime = namespace["__text_lifetime__"] = _Lifetime()
    weakref.finalize(lifetime, linecache.cache.pop, filename, None).atexit = False
    exec(code, namespace)
    return code
