"""`thunder.use` and the option `program`: entries of compiled objects get edited programs."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from thunder.core.entries import CacheEntry, CompileData, ThunderError, dispatcher_of
from thunder_store.edited.entry import EditedEntry
from thunder_store.edited.recompile import OtherProgram, edited_entry, edits_for
from thunder_store.edited.refusals import EditedProgramError, EditedProgramWarning, OtherSignature
from thunder_store.edited.texts import Definition, definitions_of, read_text

__all__ = ["EditedFile", "bound_use", "edited_files", "has_edits", "revised", "use"]


class EditedFile(NamedTuple):
    """A file with an edited program, and whether its first call is compared with the unedited one."""

    path: str
    definitions: Sequence[Definition]
    check: bool

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, check: bool) -> EditedFile:
        """Return what a file has; raise EditedProgramError for one that has no program."""
        name = os.fspath(path)
        return cls(name, definitions_of(read_text(path), name), check)

    def entry(self, entry: CacheEntry, data: CompileData) -> EditedEntry:
        """Return an entry with the edited program in the place of its own.

        Raises OtherSignature for one for which the program is not, and EditedProgramError.
        """
        try:
            return edited_entry(entry, edits_for(entry, self.definitions, self.path), data, check=self.check)
        except EditedProgramError as error:
            if self.path not in str(error):
                error.found = {"file": self.path, **(error.found if isinstance(error.found, Mapping) else {})}
            raise
        except ThunderError as error:
            raise EditedProgramError(
                f"{self.path} cannot be compiled: {error.asked}", found=error.found, hint=error.hint
            ) from error


#: id of the settings of a compiled object → the files that `use` was called with, newest last
_used: dict[int, list[EditedFile]] = {}


def edited_files(data: CompileData) -> list[EditedFile]:
    """Return the edited programs of a compiled object: those of `use`, newest first, and its option's."""
    files = _used.get(id(data), [])[::-1]
    path = data.compile_options.value("program")
    if path is None:
        return files
    return [*files, EditedFile.read(path, check=data.compile_options["check_program"])]


def has_edits(data: CompileData) -> bool:
    """Return whether a compiled object has edited programs."""
    return id(data) in _used or data.compile_options.value("program") is not None


def use(compiled: Any, path: str | os.PathLike[str] | None, *, check: bool = True) -> tuple[str, ...]:
    """Run an edited program in the place of a compiled one; return the names of what is replaced.

        path.write_text(str(thunder.last_traces(compiled)[0]))    # then edit it
        thunder.use(compiled, path)                               # or compiled.use(path)

    The file has what thunder prints: a computation before autograd, whose gradients and executors are found
    as always; a forward or a backward, which are taken as they are; or both. It replaces that of the entry
    with its inputs: the one that ran last, if it is for it. Later compiles for such inputs use it too, others
    do not, and say so.

    Args:
        compiled: what `thunder.jit` returned, after a call.
        path: the file; None for the unedited programs again.
        check: whether the first call compares results, written inputs and gradients with the unedited one.

    Raises EditedProgramError: with line and column for a text that is not that of a program, for another
    interface, and where no entry has such inputs. NotCompiled for another object.
    """
    dispatcher = dispatcher_of(compiled)
    if dispatcher is None:
        raise EditedProgramError(f"{compiled!r} is not compiled", hint="Pass what thunder.jit returned.")
    data, stats = dispatcher.data, dispatcher.stats
    if path is None:
        _used.pop(id(data), None)
        for entry in stats.interpreter_cache:
            if isinstance(entry, EditedEntry):
                dispatcher.replace_entry(entry, entry.unedited)
        return ()
    file = EditedFile.read(path, check=check)
    found, reasons = _first(file, _by_use(stats), data)
    if found is None:
        raise EditedProgramError(
            f"no program of the compiled object is one that {file.path} replaces",
            found={"reasons": "; ".join(reasons) or "it was not called yet"},
            hint="Call it first with such inputs; or write thunder.jit(fn, program=path).",
        )
    entry, edited = found
    dispatcher.replace_entry(entry, edited)
    if id(data) not in _used:
        weakref.finalize(dispatcher, _used.pop, id(data), None)
    _used.setdefault(id(data), []).append(file)
    return _names(file)


def _by_use(stats: Any) -> list[CacheEntry]:
    return sorted(stats.interpreter_cache, key=lambda e: (e is not stats.last_entry, -e.last_use))


def _names(file: EditedFile) -> tuple[str, ...]:
    return tuple(d.name for d in file.definitions)


def _first(
    file: EditedFile, entries: Sequence[CacheEntry], data: CompileData
) -> tuple[tuple[CacheEntry, EditedEntry] | None, list[str]]:
    """Return the first entry for which a program is, with its edited one, and why others are not."""
    reasons = list[str]()
    for entry in entries:
        try:
            unedited = entry.unedited if isinstance(entry, EditedEntry) else entry
            return (entry, file.entry(unedited, data)), reasons
        except OtherSignature as reason:
            reasons.append(str(reason))
    return None, reasons


def bound_use(compiled: Any) -> Callable[..., tuple[str, ...]]:
    """Return the method `use` of a compiled object."""
    return partial(use, compiled)


def revised(entry: CacheEntry, data: CompileData) -> CacheEntry:
    """Return a new entry with the edited program that is for it, or itself, and say so."""
    reasons: list[OtherProgram] = []
    for file in edited_files(data):
        try:
            return file.entry(entry, data)
        except OtherSignature as reason:
            reasons.append(OtherProgram(file.path, str(reason)))
    for note in reasons:
        warnings.warn(str(note), EditedProgramWarning, stacklevel=2)
    entry.notes = (*entry.notes, *reasons)
    return entry
