"""The entry of an edited program."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.core.entries import CacheEntry

__all__ = ["EditedEntry"]


@dataclass(kw_only=True, eq=False)
class EditedEntry(CacheEntry):
    """An entry whose program was edited; ``unedited`` is the one that was compiled."""

    unedited: CacheEntry
