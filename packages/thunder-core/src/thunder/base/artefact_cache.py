"""Compiled artefacts on disk: files that packages keep from one process to the next.

A file is written whole or not at all, so that processes may share the directory. It is read only if the
user owns it and no other user can write to it, and if its content is what was written under the same key by
the same versions; any other file is ignored, with a warning.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from thunder.base.errors import InvalidArgument, ThunderWarning

__all__ = [
    "ArtefactCache",
    "ArtefactWarning",
    "Entry",
    "cache_directory",
    "clear",
    "entries",
    "is_intact",
    "prune",
    "size_limit",
]

_FORMAT = b"thunder artefact 1\n"
_SUFFIX = ".artefact"
_DEFAULT_LIMIT = 4 << 30


class ArtefactWarning(ThunderWarning):
    """A file of the cache was ignored, or could not be written."""


def cache_directory() -> Path:
    """Return the directory of all artefacts.

    It is `THUNDER_CACHE_DIR` if that is set, else `thunder` in the user's cache directory
    (`XDG_CACHE_HOME`, by default `~/.cache`).
    """
    chosen = os.environ.get("THUNDER_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thunder"


def size_limit() -> int:
    """Return the most bytes of all artefacts together: `THUNDER_CACHE_LIMIT`, by default 4 GiB.

    Raises InvalidArgument if the variable is no number of bytes.
    """
    text = os.environ.get("THUNDER_CACHE_LIMIT", str(_DEFAULT_LIMIT))
    if not text.isdecimal():
        raise InvalidArgument(f"THUNDER_CACHE_LIMIT is {text!r}", hint="It is a number of bytes: 1000000000.")
    return int(text)


@dataclass(frozen=True)
class Entry:
    """A file of the cache."""

    path: Path
    package: str
    size: int  # bytes
    used: float  # time of the last use, in seconds since the epoch


class ArtefactCache:
    """The artefacts of one package.

    Args:
        package: the name of the distribution, which names the directory. Letters, digits, `-`, `_`, `.`.
        versions: what an artefact depends on beside its key: the package, the compiler, the device, … An
            artefact that was written under other versions is not found.
        directory: where they are; by default `cache_directory`.

    Raises InvalidArgument for another name of a package.
    """

    def __init__(self, package: str, versions: Mapping[str, str], *, directory: Path | None = None) -> None:
        if not re.fullmatch(r"\w[\w.-]*", package):
            raise InvalidArgument(f"{package!r} does not name a package", hint="It names a directory.")
        self.package, self.versions, self.directory = package, dict(versions), directory

    def path(self, key: str) -> Path:
        """Return the path of the artefact of a key, which need not exist."""
        name = hashlib.sha256(self._header(key)).hexdigest()
        return (self.directory or cache_directory()) / self.package / f"{name}{_SUFFIX}"

    def get(self, key: str) -> bytes | None:
        """Return the artefact of a key, or None; with an ArtefactWarning if its file cannot be trusted."""
        path = self.path(key)
        try:
            content = _read(path, self._header(key))
            os.utime(path)
        except FileNotFoundError:
            return None
        except (_Untrusted, OSError) as error:
            warnings.warn(f"{path} is ignored: {error}", ArtefactWarning, stacklevel=2)
            return None
        return content

    def put(self, key: str, artefact: bytes) -> None:
        """Write the artefact of a key; with one ArtefactWarning for a directory if that is not possible.

        If all artefacts together are larger than `size_limit`, those that were not used for the longest time
        are removed.
        """
        path, header = self.path(key), self._header(key)
        try:
            _write(path, b"".join((_FORMAT, _digest(header, artefact), header, artefact)))
        except OSError as error:
            _warn_once(f"nothing can be written to {path.parent}: {error.strerror or error}")
            return
        prune(size_limit(), self.directory)

    def get_or_make(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the artefact of a key; if there is none, make it and write it."""
        artefact = self.get(key)
        if artefact is None:
            artefact = make()
            self.put(key, artefact)
        return artefact

    def _header(self, key: str) -> bytes:
        facts = {"package": self.package, "versions": self.versions, "key": key}
        return json.dumps(facts, sort_keys=True).encode() + b"\n"


class _Untrusted(Exception):
    """The content of a file is not what was written."""


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, ArtefactWarning, stacklevel=3)


def _write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # it is removed whatever happens
        whole = Path(folder) / path.name
        whole.write_bytes(content)
        whole.chmod(0o600)
        os.replace(whole, path)


def _read(path: Path, header: bytes) -> bytes:
    """Return the artefact in a file with this header; raises _Untrusted and OSError."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if hasattr(os, "getuid"):  # Windows has access lists: the user's folders are the user's
            if status.st_uid != os.getuid():
                raise _Untrusted("another user owns it")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _Untrusted("other users can write to it")
        content = file.read()
    start = len(_FORMAT) + hashlib.sha256().digest_size
    artefact = content[start + len(header) :]
    if content[: start + len(header)] != _FORMAT + _digest(header, artefact) + header:
        raise _Untrusted("its content is not what was written")
    return artefact


def _digest(header: bytes, artefact: bytes) -> bytes:
    return hashlib.sha256(header + artefact).digest()


def entries(directory: Path | None = None) -> Iterator[Entry]:
    """Yield the files of the cache, of all packages."""
    for path in sorted((directory or cache_directory()).glob(f"*/*{_SUFFIX}")):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process removed it
            continue
        yield Entry(path, path.parent.name, status.st_size, status.st_mtime)


def clear(package: str | None = None, directory: Path | None = None) -> int:
    """Remove the artefacts of a package, or of all; return how many there were."""
    chosen = [entry for entry in entries(directory) if package in (None, entry.package)]
    for entry in chosen:
        entry.path.unlink(missing_ok=True)
    return len(chosen)


def is_intact(path: Path) -> bool:
    """Return whether the content of a file of the cache is what was written."""
    content = path.read_bytes()
    start = len(_FORMAT) + hashlib.sha256().digest_size
    return content[:start] == _FORMAT + hashlib.sha256(content[start:]).digest()


def prune(limit: int, directory: Path | None = None) -> None:
    """Remove the artefacts that were not used for the longest time, until the others fit into `limit`."""
    files = sorted(entries(directory), key=lambda entry: entry.used)
    excess = sum(entry.size for entry in files) - limit
    for entry in files:
        if excess <= 0:
            return
        entry.path.unlink(missing_ok=True)
        excess -= entry.size
