"""Programs that a plugin keeps from one process to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from thunder.base.plugin_calls import plugin_call
from thunder.compiler.stats import CacheEntry, CompileData
from thunder.frontend.trace_request import TraceRequest
from thunder.plugins.contributions import isolated, program_store
from thunder.plugins.manager import get_manager

__all__ = ["ProgramStore", "keep_entry", "kept_entry"]


class ProgramStore(Protocol):
    """What the hook `thunder_program_store` provides."""

    def find(self, request: TraceRequest, data: CompileData) -> CacheEntry | None:
        """Return an entry whose guards hold for the call of a request, or None."""

    def keep(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
        """Keep an entry that was compiled for the call of a request, if it can be kept."""


def kept_entry(request: TraceRequest, data: CompileData) -> CacheEntry | None:
    """Return the entry that a store has for a call; None without a store."""
    with _store("find") as store:
        return None if store is None else store.find(request, data)


def keep_entry(entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
    """Let the store keep a new entry, if there is one."""
    with _store("keep") as store:
        if store is not None:
            store.keep(entry, request, data)


@contextmanager
def _store(method: str) -> Iterator[ProgramStore | None]:
    manager = get_manager()
    found = isolated(manager, lambda: program_store(manager))
    if found is None:
        yield None
        return
    plugin, store = found
    with plugin_call(f"{method} of the program store", lambda: manager.source_of(plugin)):
        yield store
