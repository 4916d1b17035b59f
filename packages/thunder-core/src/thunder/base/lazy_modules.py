"""Packages whose modules load at the first touch, so that `thunder.core.transforms.Node` works after
`import thunder`.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType:
    """The module `package.name`, imported; AttributeError if there is none. Serves as a package's
    `__getattr__`.
    """
    path = f"{package}.{name}"
    if name.startswith("_"):
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name not in (None, path):  # the module is there, and something that it imports is not
            raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}: {error}", name=name) from error
