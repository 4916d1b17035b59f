"""What the hook provides: it asks the cache, or the artefact of a compiled object, where one is chosen."""

from __future__ import annotations

import os
import sys
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
        is_asked = data.compile_options.value("artefact") is not None or directory_of(data) is not None
        if not is_asked or self._has_edits(data):
            return None
        return self._programs().find(request, data)  # type: ignore[no-any-return]

    def keep(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
        """Keep a program that was compiled, if it can be kept."""
        if directory_of(data) is not None:
            self._programs().keep(entry, request, data)

    def revise(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> CacheEntry:
        """Return a new entry with the edited program that is for it, or itself."""
        if not self._has_edits(data):
            return entry
        return import_module("thunder_store.edited.use").revised(entry, data)  # type: ignore[no-any-return]

    def _has_edits(self, data: CompileData) -> bool:
        """Return whether edited programs were chosen; only their module knows those of `thunder.use`."""
        module = sys.modules.get("thunder_store.edited.use")
        return data.compile_options.value("program") is not None or (
            module is not None and module.has_edits(data)
        )

    def _programs(self) -> Any:
        return import_module("thunder_store.program_cache").ProgramCache()
