"""The versions of CPython that the interpreter knows.

This module imports the standard library only, and any Python 3 runs it: ``import thunder`` reads it first.
"""

from __future__ import annotations

import sys
import sysconfig
from typing import Final

SUPPORTED: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
"""Versions of CPython that have a table of operations (:mod:`thunder.interpreter.opcode_tables`)."""


def python_refusal() -> str | None:
    """Return a sentence that says why the running Python is not supported, None if it is."""
    running = sys.version_info[:2]
    is_cpython = sys.implementation.name == "cpython"
    is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    if running in SUPPORTED and is_cpython and not is_free_threaded:
        return None
    name = "CPython" if is_cpython else sys.implementation.name
    kind, lock = ("a free-threaded ", " with the global interpreter lock") if is_free_threaded else ("", "")
    *others, newest = (f"{major}.{minor}" for major, minor in SUPPORTED)
    return (
        f"thunder interprets the byte code of CPython {', '.join(others)} and {newest}{lock}; "
        f"this is {kind}{name} {running[0]}.{running[1]}."
    )
