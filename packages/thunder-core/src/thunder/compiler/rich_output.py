"""The optional library rich, which shows tables in terminals."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

__all__ = ["rich_module"]


def rich_module(name: str) -> ModuleType | None:
    """Import and return a module of rich, or return None if rich is not installed."""
    if find_spec("rich") is None:
        return None
    return importlib.import_module(f"rich.{name}")
