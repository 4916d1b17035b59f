"""Packages whose modules load at the first touch, so that `thunder.core.transforms.Node` works after
`import thunder`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType


def submodules_of(package: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package: imports the module of that name, or raises AttributeError."""

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        try:
            if not name.startswith("_"):
                return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:  # the module is there, and something that it imports is not
                raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)

    return load
