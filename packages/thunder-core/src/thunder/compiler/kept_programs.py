"""Programs that a plugin keeps from one process to the next."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from thunder.base.plugin_calls import plugin_call
from thunder.compiler.stats import CacheEntry, CompileData
from thunder.frontend.trace_request import TraceRequest
from thunder.plugins.contributions import isolated, program_stores
from thunder.plugins.manager import get_manager

__all__ = ["ProgramStore", "keep_entry", "kept_entry", "revised_entry"]


class ProgramStore(Protocol):
    """What the hook `thunder_program_store` provides.

    A store may also have `revise(entry, request, data)`, which returns the entry that takes the place of one
    that was compiled: the same one, or another with the same guards.
    """

    def find(self, request: TraceRequest, data: CompileData) -> CacheEntry | None:
        """Return an entry whose guards hold for the call of a request, or None."""

    def keep(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
        """Keep an entry that was compiled for the call of a request, if it can be kept."""


def kept_entry(request: TraceRequest, data: CompileData) -> CacheEntry | None:
    """Return the entry that the first store which has one has for a call, or None."""
    for plugin, store in _stores():
        with _calling("find", plugin):
            entry = store.find(request, data)
        if entry is not None:
            return entry
    return None


def revised_entry(entry: CacheEntry, request: TraceRequest, data: CompileData) -> CacheEntry:
    """Return the entry that the stores put in the place of one that was compiled for a call."""
    for plugin, store in _stores():
        revise = getattr(store, "revise", None)
        if revise is not None:
            with _calling("revise", plugin):
                entry = revise(entry, request, data)
    return entry


def keep_entry(entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
    """Let each store keep a new entry."""
    for plugin, store in _stores():
        with _calling("keep", plugin):
            store.keep(entry, request, data)


def _stores() -> Iterable[tuple[str, ProgramStore]]:
    manager = get_manager()
    return isolated(manager, lambda: program_stores(manager))


def _calling(method: str, plugin: str) -> AbstractContextManager[None]:
    """Within the context, an error is a fault of the plugin."""
    return plugin_call(f"{method} of the program store", lambda: get_manager().source_of(plugin))
