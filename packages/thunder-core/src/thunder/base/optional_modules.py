"""Libraries that need not be installed, as rich, which shows tables in terminals."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

__all__ = ["optional_module"]


def optional_module(name: str) -> ModuleType | None:
    """Import and return a module, such as `rich.table`, or return None if its library is not installed."""
    if find_spec(name.partition(".")[0]) is None:
        return None
    return importlib.import_module(name)
