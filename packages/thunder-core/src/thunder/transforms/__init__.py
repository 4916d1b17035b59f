"""The transforms of installed plugins: `from thunder.transforms import <name>` finds them by name."""

from __future__ import annotations

from typing import Any

from thunder.plugins.contributions import load_transform, transform_names
from thunder.plugins.finders import missing_attribute
from thunder.plugins.manager import get_manager

# Packages of plugins add modules to this one.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in transform_names(get_manager()):
        return missing_attribute(__name__, name)
    return load_transform(get_manager(), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *transform_names(get_manager())})
