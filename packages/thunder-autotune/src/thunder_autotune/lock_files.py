"""Lock files: entries as TOML, one table for each call or region and profile."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from thunder.core.errors import InvalidArgument
from thunder_autotune.entries import KINDS, Entries, Entry, Figure
from thunder_autotune.ways import Way

__all__ = ["FORMAT", "digest_of", "merged", "parsed", "read"]

#: the number that a reader of another form of the file refuses
FORMAT: Final = 1


def read(path: str | os.PathLike[str]) -> Entries:
    """Return the entries of a lock file.

    Raises InvalidArgument for a file that does not exist, or is not a lock file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"there is no lock file {str(path)!r}",
            hint="thunder.autotune(compiled, ..., lock=path) writes one.",
        ) from error
    return parsed(text, str(path))


def parsed(text: str, path: str) -> Entries:
    """Return the entries of the text of a lock file; `path` is for errors."""
    try:
        return _parsed(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidArgument(
            f"{path} is not a lock file of thunder-autotune", found={"error": repr(error)}
        ) from error


def _parsed(document: Mapping[str, Any]) -> Entries:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}, and not {FORMAT}")
    entries = Entries()
    for kind in KINDS:
        for key, profiles in document.get(kind, {}).items():
            for profile, table in profiles.items():
                spreads = table.get("spread", {})
                figures = {
                    name: Figure(float(us), float(spreads.get(name, 0.0))) for name, us in table["us"].items()
                }
                entries.add(
                    Entry(
                        kind=kind,
                        key=key,
                        profile=profile,
                        executor=str(Way.of(table["executor"])),
                        default=str(table["default"]),
                        figures=figures,
                        refused=dict(table.get("refused", {})),
                        versions=dict(table.get("versions", {})),
                        calls=str(table.get("calls", "")),
                        reason=str(table.get("reason", "")),
                        sizes=str(table.get("sizes", "")),
                    )
                )
    return entries


def merged(*lists: Iterable[Entry]) -> Entries:
    """Return the entries of several lists; of two about the same on one profile, the last."""
    return Entries(entry for entries in lists for entry in entries)


@cache
def _digest(path: str, changed: int, size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def digest_of(path: str | os.PathLike[str]) -> str:
    """Return the digest of a file's content, read again only where its time or size has changed."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "absent"
    return _digest(os.fspath(path), status.st_mtime_ns, status.st_size)
