"""Results that are computed from plugins, once between two changes of plugins."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from thunder.plugins.manager import PluginManager

__all__ = ["PerGeneration"]

T = TypeVar("T")


class PerGeneration(Generic[T]):
    """A function of a plugin manager, called again only after a change of its plugins."""

    def __init__(self, compute: Callable[[PluginManager], T]) -> None:
        self._compute = compute
        self._results: weakref.WeakKeyDictionary[PluginManager, tuple[object, T]] = (
            weakref.WeakKeyDictionary()
        )

    def __call__(self, manager: PluginManager) -> T:
        """Return the result for the plugins of now."""
        manager.load()
        computed = self._results.get(manager)
        if computed is not None and computed[0] is manager.generation:
            return computed[1]
        result = self._compute(manager)  # it may disable a faulty plugin, which is a change
        self._results[manager] = manager.generation, result
        return result
