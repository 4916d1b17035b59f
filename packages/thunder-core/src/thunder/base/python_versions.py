"""The versions of CPython that the interpreter knows.

This module imports the standard library only, and any Python 3 runs it: ``import thunder`` reads it first.
"""

from __future__ import annotations

import sys
from typing import Final

SUPPORTED: Final = ((3, 11), (3, 12), (3, 13))
"""Versions of CPython that have a table of operations (:mod:`thunder.interpreter.opcode_tables`)."""


def python_refusal() -> str | None:
    """Return a sentence that says why the running Python is not supported, None if it is."""
    running = sys.version_info[:2]
    if running in SUPPORTED and sys.implementation.name == "cpython":
        return None
    name = "CPython" if sys.implementation.name == "cpython" else sys.implementation.name
    *others, newest = (f"{major}.{minor}" for major, minor in SUPPORTED)
    return (
        f"thunder interprets the byte code of CPython {', '.join(others)} and {newest}; "
        f"this is {name} {running[0]}.{running[1]}."
    )
