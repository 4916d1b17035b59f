"""Packages whose modules are imported at the first access to their attribute.

`thunder.core.transforms.Node` works after `import thunder`.
"""

from __future__ import annotations

import importlib
from typing import Any

from thunder.base.errors import PluginNotInstalledError
from thunder.base.public_names import missing_name


def submodule(package: str, name: str) -> Any:
    """Import and return the module `package.name`, as a package's `__getattr__`.

    A name that is not a module has its declared meaning. Raises AttributeError for any other.
    """
    path = f"{package}.{name}"
    if name.startswith("_"):
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
    try:
        return importlib.import_module(path)
    except PluginNotInstalledError as error:  # it says what to install
        raise AttributeError(str(error), name=name) from error
    except ModuleNotFoundError as error:
        if error.name not in (None, path):  # the module exists, and one that it imports does not
            raise
    return missing_name(package, name)
