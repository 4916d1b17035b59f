"""Measurements that packages ship: the entries of the files that the hook `thunder_lock_files` names."""

from __future__ import annotations

from thunder.plugins import get_manager
from thunder_autotune.entries import Entries
from thunder_autotune.lock_files import merged, read

__all__ = ["shipped_entries"]


def shipped_entries() -> Entries:
    """Return the entries of all packages; of two about the same on one device, the last."""
    paths = [path for _, found in get_manager().call("thunder_lock_files") for path in found]
    return merged(*map(read, paths))
