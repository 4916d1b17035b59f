"""Packages whose modules are imported at the first access to their attribute.

`thunder.core.transforms.Node` works after `import thunder`.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def submodule(package: str, name: str) -> ModuleType:
    """Import and return the module `package.name`, as a package's `__getattr__`.

    Raises AttributeError if there is no such module.
    """
    path = f"{package}.{name}"
    if name.startswith("_"):
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name not in (None, path):  # the module exists, and one that it imports does not
            raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}: {error}", name=name) from error
