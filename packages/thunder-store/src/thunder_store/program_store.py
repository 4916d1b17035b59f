"""What the hook provides: it asks the cache, or the artefact of a compiled object, where one is chosen."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from thunder.core.entries import CacheEntry, CompileData, TraceRequest

__all__ = ["Store", "directory_of"]

_VARIABLE: Final = "THUNDER_PROGRAM_CACHE"


def directory_of(data: CompileData) -> Path | None:
    """Return the directory of the cache that a compile uses: the option, else the variable; None for none."""
    chosen = data.compile_options.value("program_cache") or os.environ.get(_VARIABLE)
    return Path(chosen).expanduser() if chosen else None


class Store:
    """Finds and keeps programs; a process that has chosen neither imports nothing for it."""

    def find(self, request: TraceRequest, data: CompileData) -> CacheEntry | None:
        """Return a kept program whose facts hold for the call, or None."""
        if data.compile_options.value("artefact") is None and directory_of(data) is None:
            return None
        return self._programs().find(request, data)  # type: ignore[no-any-return]

    def keep(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
        """Keep a program that was compiled, if it can be kept."""
        if directory_of(data) is not None:
            self._programs().keep(entry, request, data)

    def _programs(self) -> Any:
        return import_module("thunder_store.program_cache").ProgramCache()
