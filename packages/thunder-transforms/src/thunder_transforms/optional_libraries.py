"""Libraries that reports need, and which need not be installed."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType

from thunder.core.errors import RequirementNotMet

__all__ = ["needed"]


def needed(module: str, purpose: str) -> ModuleType:
    """Import and return a module, such as `rich.table`.

    Raises RequirementNotMet, which says what to install, if its library is not installed.
    """
    library = module.partition(".")[0]
    if find_spec(library) is None:
        raise RequirementNotMet(
            f"{purpose} needs {library}, which is not installed", hint=f"python -m pip install {library}"
        )
    return importlib.import_module(module)
