"""How lock files are written: in a stable order, in one step, while no other process writes.

Each process adds its entries to those that the file has then.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from filelock import FileLock

from thunder_autotune.entries import KINDS, Entries, Entry
from thunder_autotune.lock_files import FORMAT, merged, read

__all__ = ["add_to", "as_text", "write"]

_HEADER: Final = "Placement by measurement, written by thunder-autotune: python -m thunder tune show"
#: how long a process waits for others to write, in seconds
_WAIT: Final = 60


def as_text(entries: Iterable[Entry]) -> str:
    """Return the text of a lock file."""
    document = tomlkit.document()
    document.add(tomlkit.comment(_HEADER))
    document["format"] = FORMAT
    tables: dict[str, Any] = {kind: tomlkit.table(is_super_table=True) for kind in KINDS}
    keys: dict[tuple[str, str], Any] = {}
    for entry in Entries(entries):
        by_profile = keys.get((entry.kind, entry.key))
        if by_profile is None:
            by_profile = keys[entry.kind, entry.key] = tomlkit.table(is_super_table=True)
            tables[entry.kind].append(tomlkit.key(entry.key), by_profile)
        by_profile.append(tomlkit.key(entry.profile), _table(entry))
    for kind, table in tables.items():
        if len(table):
            document.append(kind, table)
    return tomlkit.dumps(document)


def _table(entry: Entry) -> Any:
    def inline(values: Mapping[str, Any]) -> Any:
        table = tomlkit.inline_table()
        for name in sorted(values):
            table.append(tomlkit.key(name), values[name])
        return table

    table = tomlkit.table()
    table.append("executor", entry.executor)
    table.append("default", entry.default)
    table.append("us", inline({name: _rounded(figure.us) for name, figure in entry.figures.items()}))
    table.append("spread", inline({name: _rounded(figure.spread) for name, figure in entry.figures.items()}))
    for name, value in (("refused", entry.refused), ("versions", entry.versions)):
        if value:
            table.append(name, inline(value))
    for name, text in (("calls", entry.calls), ("sizes", entry.sizes), ("reason", entry.reason)):
        if text:
            table.append(name, text)
    return table


def _rounded(us: float) -> float:
    return float(f"{us:.4g}")


def write(path: str | os.PathLike[str], entries: Iterable[Entry]) -> None:
    """Write a lock file in one step: a reader finds the old file or the new one."""
    target = Path(path)
    text = as_text(entries)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def add_to(path: str | os.PathLike[str], entries: Iterable[Entry]) -> Entries:
    """Add entries to those that a lock file has, while no other process writes it; return all."""
    target = Path(path)
    with FileLock(target.parent / f".{target.name}.writing", timeout=_WAIT):
        both = merged(read(target) if target.exists() else (), entries)
        write(target, both)
    return both
