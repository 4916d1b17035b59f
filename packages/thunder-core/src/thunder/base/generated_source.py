"""Compilation of generated text under a file name that ``linecache`` has, for tracebacks."""

from __future__ import annotations

import itertools
import linecache
import weakref
from types import CodeType
from typing import Any

_serial = itertools.count()


class _Lifetime:
    """An object in the namespace of a compiled text, whose ``linecache`` entry ends with it."""


def compile_text(text: str, label: str, namespace: dict[str, Any]) -> CodeType:
    """Compile ``text`` and execute it in ``namespace``; return the code.

    The text stays in ``linecache`` as long as the namespace exists.
    """
    filename = f"<{label} #{next(_serial)}>"
    code = compile(text, filename, "exec", dont_inherit=True)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    lifetime = namespace["__text_lifetime__"] = _Lifetime()
    weakref.finalize(lifetime, linecache.cache.pop, filename, None).atexit = False
    exec(code, namespace)
    return code
