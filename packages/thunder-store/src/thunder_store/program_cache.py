"""The persistent cache of programs: a first call looks for its program before it reads it.

Each program is one file of thunder's cache of artefacts, which writes a file whole or not at all, and ignores
one that was not written as it is. The key has the callable with the digest of its code, the settings and the
environment; what else a program depends on is in its facts, which are checked before it is used. Of several
processes that need one program, as the ranks of a training, one compiles it.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any, Final

import torch

from thunder.core.entries import (
    ArtefactCache,
    CacheEntry,
    CompileData,
    TraceRequest,
    own_name,
)
from thunder_store.artefacts import Artefact
from thunder_store.digests import digest_of
from thunder_store.entries import read_entry, write_entry
from thunder_store.environment import changed_file, environment, files_of_modules, refuse_newer_files
from thunder_store.outcomes import note
from thunder_store.program_store import directory_of
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.settings import key_of
from thunder_store.turns import Turns

__all__ = ["PACKAGE", "ProgramCache", "cache_of"]

PACKAGE: Final = "thunder-store"
#: the most programs of one key; beyond it the one is replaced that was not used for the longest time
_SLOTS: Final = 8


def cache_of(directory: Path) -> ArtefactCache:
    """Return the files of programs in a directory, for the environment of now."""
    return ArtefactCache(PACKAGE, environment(), directory=directory)


class ProgramCache:
    """Finds and keeps programs, in the directory that the option or the environment names."""

    def find(self, request: TraceRequest, data: CompileData) -> CacheEntry | None:
        """Return a kept program whose facts hold for the call, or None."""
        artefact, directory = data.compile_options.value("artefact"), directory_of(data)
        found = artefact.find(request, data) if isinstance(artefact, Artefact) else None
        if found is not None or directory is None:
            return found
        try:
            key = key_of(request, data)
        except NotKept:  # `keep` says why
            return None
        cache, turns = cache_of(directory), Turns.of(directory)
        entry = self._entry(cache, key, request, data)
        if entry is None and cache.get(_not_kept(key)) is None and turns.wait(_turn(key, request), request):
            entry = self._entry(cache, key, request, data)
        if entry is not None:
            turns.end(_turn(key, request))
        return entry

    def _entry(
        self, cache: ArtefactCache, key: str, request: TraceRequest, data: CompileData
    ) -> CacheEntry | None:
        """Return the first program of a key whose facts hold, or None; what does not hold is noted."""
        for slot in range(_SLOTS):
            content = cache.get(f"{key} {slot}")
            if content is None:
                continue
            try:
                document = opened(content)
                if request.sizes is not None and document.get("sizes") is None:
                    raise NotUsed("its sizes are numbers, and those of the call have been others before")
                entry = read_entry(document, request, data)
            except NotUsed as reason:
                note("not used", _name(data), str(reason))
                continue
            note("hit", _name(data))
            return entry
        return None

    def keep(self, entry: CacheEntry, request: TraceRequest, data: CompileData) -> None:
        """Keep a program that was compiled, or note why not."""
        directory = directory_of(data)
        if directory is None:
            return
        try:
            key = key_of(request, data)
        except NotKept as reason:
            note("not kept", _name(data), str(reason))
            return
        cache = cache_of(directory)
        try:
            content = closed(write_entry(entry, request, data))
        except NotKept as reason:
            cache.put(_not_kept(key), str(reason).encode())
            note("not kept", _name(data), str(reason))
        else:
            cache.put(_slot(cache, key), content)
            note("kept", _name(data))
        finally:
            Turns.of(directory).end(_turn(key, request))


def _turn(key: str, request: TraceRequest) -> str:
    """Return the key of a turn: calls with tensors of other shapes are most often of other programs."""
    values = (*request.args, *request.kwargs.values())
    with torch._C.DisableTorchFunction():
        shapes = [(x.dtype, x.shape) for x in values if issubclass(type(x), torch.Tensor)]
    return digest_of(f"{key} {shapes}")


def _not_kept(key: str) -> str:
    """Return the key of the note that a program of a key could not be kept: nobody waits for it."""
    return f"{key} not kept"


def _slot(cache: ArtefactCache, key: str) -> str:
    """Return the key of a free slot, or of that which was not used for the longest time."""
    used = {}
    for slot in range(_SLOTS):
        try:
            used[f"{key} {slot}"] = cache.path(f"{key} {slot}").stat().st_mtime
        except OSError:
            return f"{key} {slot}"
    return min(used, key=used.__getitem__)


def closed(document: dict[str, Any]) -> bytes:
    """Return a program as bytes, with the files of the modules that are loaded."""
    files = files_of_modules()
    refuse_newer_files(files)
    text = json.dumps({**document, "files": files}, separators=(",", ":"))
    return zlib.compress(text.encode(), 1)


def opened(content: bytes) -> dict[str, Any]:
    """Return the document of a program; raise NotUsed without one, and if a file of a module has changed."""
    try:
        document: dict[str, Any] = json.loads(zlib.decompress(content))
        files = document["files"]
    except (ValueError, zlib.error, KeyError, TypeError, RecursionError) as error:
        raise NotUsed(f"the file has no program: {error!r}") from error
    changed = changed_file(files)
    if changed is not None:
        raise NotUsed(f"the file of the module {changed} is another one")
    return document


def _name(data: CompileData) -> str:
    return own_name(data.fn, "__qualname__") or type(data.fn).__qualname__
