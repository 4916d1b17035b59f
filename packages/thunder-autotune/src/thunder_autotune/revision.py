"""What puts the tuned program in the place of the default one, where the option `placement` says so."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunder.core.entries import CacheEntry, CompileData, TraceRequest

__all__ = ["Revision"]


class Revision:
    """A program store that keeps nothing; a process that measures nothing imports nothing for it."""

    def find(self, request: TraceRequest, data: CompileData) -> CacheEntry | None:
        """Return None: there are no kept programs."""
        return None

    def keep(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
        """Do nothing."""

    def revise(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> Any:
        """Return the tuned program for a call, or the entry itself."""
        if data.compile_options.value("placement") != "measured":
            return entry
        return import_module("thunder_autotune.measured").tuned_entry(entry, request, data)
