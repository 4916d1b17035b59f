"""The state that a program has written so far, and whether a function may read it."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from thunder.base.cache_queries import CACHED
from thunder.base.provenance import cell_content, lookup_slot
from thunder.base.tags import OpTags
from thunder.frontend.epilogue.reconstruction import state_of
from thunder.frontend.natives.libraries import is_library, is_library_class, is_library_module
from thunder.frontend.objects.class_kinds import LEAVES, is_foreign
from thunder.frontend.session import TracingSession
from thunder.ir.symbol import has_tags

_LIMIT = 20_000  # objects that are looked at; a function that reaches more may read anything


class _Written:
    """The objects and variables that wait to be written, by id, with their descriptions."""

    def __init__(self, session: TracingSession, *, tensors: bool) -> None:
        self.objects = {id(w.owner): w.name for w in session.writes if w.owner is not None}
        self.objects |= {identity: path.source for identity, path in session.objects.overridden.items()}
        self.globals = {w.variable for w in session.writes}
        self.tensors = tensors and any(has_tags(b, {OpTags.IN_PLACE}) for b in session.trace.bound_symbols)

    def __bool__(self) -> bool:
        return bool(self.objects or self.globals or self.tensors)


def reached_write(
    session: TracingSession, fn: Any, values: Iterable[Any], *, tensors: bool = True
) -> str | None:
    """Return what of the program's writes a function may read that runs as it is, or None.

    The function may read its arguments, the variables that its code names, and whatever these hold; without
    ``tensors``, no elements of tensors.
    """
    for write in session.writes:
        if write.read_anywhere:
            return write.name
    return written_part(session, [fn, *values], tensors=tensors)


def written_part(session: TracingSession, values: Iterable[Any], *, tensors: bool = False) -> str | None:
    """Return what of the program's writes values hold or their methods name, or None."""
    written = _Written(session, tensors=tensors)
    return _Reach(written).first(values) if written else None


def reached(session: TracingSession, values: Iterable[Any]) -> dict[int, Any] | None:
    """Return what a function may read that is passed values, by id; None where that may be anything."""
    walk = _Reach(_Written(session, tensors=False))
    walk.written.objects.clear()
    walk.written.globals.clear()
    return walk.seen if walk.first(values) is None else None


class _Reach:
    """A walk over what a function may read."""

    def __init__(self, written: _Written) -> None:
        self.written = written
        self.seen: dict[int, Any] = {}  # held, so that ids stay those of the objects

    def first(self, roots: Iterable[Any]) -> str | None:
        """Return the first written value that is reached, or None."""
        pending = list(roots)
        while pending:
            value = pending.pop()
            if type(value) in LEAVES or id(value) in self.seen:
                continue
            self.seen[id(value)] = value
            found = self.written.objects.get(id(value))
            if found is not None:
                return found
            if isinstance(value, torch.Tensor) and self.written.tensors:
                return "a tensor"
            if len(self.seen) > _LIMIT:
                return "state"
            for part in self._parts(value):
                if isinstance(part, str):
                    return part
                pending.append(part[0])
        return None

    def _parts(self, value: Any) -> Iterator[tuple[Any] | str]:
        """Yield what an object holds, each in a tuple; a string for a variable that is written."""
        if isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, types.MethodType):
            yield from ((value.__func__,), (value.__self__,))
        elif isinstance(value, types.CellType):
            yield (cell_content(value),)
        elif isinstance(value, dict):
            yield from ((v,) for pair in dict.items(value) for v in pair)
        elif isinstance(value, list | set | frozenset):
            yield from ((v,) for v in value)
        elif isinstance(value, type):
            if not is_library_class(value):
                yield from (
                    (v,) for base in value.__mro__ if not is_library_class(base) for v in vars(base).values()
                )
        elif isinstance(value, property):
            yield from ((value.fget,), (value.fset,))
        elif isinstance(value, (staticmethod, classmethod, CACHED)):
            yield (value.__wrapped__,)
        elif isinstance(value, torch.Tensor):
            yield from ((type(value),), (object.__getattribute__(value, "__dict__"),))
        elif isinstance(value, tuple) or (hasattr(type(value), "__next__") and is_foreign(type(value))):
            # what an iterator iterates over, variables of its body; in a tuple of its own there may be holes
            yield from ((v,) for v in gc.get_referents(value))
        elif not isinstance(value, types.ModuleType):
            yield from ((type(value),), (lookup_slot(value, "__dict__"),))
            if not is_foreign(type(value)):
                yield from ((v,) for v in state_of(value).values())

    def _of_function(self, fn: types.FunctionType) -> Iterator[tuple[Any] | str]:
        if is_library(fn.__globals__):
            return
        yield from ((v,) for v in (fn.__closure__ or ()))
        yield from ((v,) for v in (fn.__defaults__ or ()))
        yield from ((v,) for v in (fn.__kwdefaults__ or {}).values())
        if id(fn.__globals__) in self.written.objects:  # as a dictionary
            yield self.written.objects[id(fn.__globals__)]
        names = set(_names(fn.__code__))
        for name in names & fn.__globals__.keys():
            if (id(fn.__globals__), name) in self.written.globals:
                yield name
            yield from self._variable(fn.__globals__[name], names)

    def _variable(self, value: Any, names: set[str]) -> Iterator[tuple[Any] | str]:
        """Yield a variable; of a module, its variables with the names that the code has."""
        if not isinstance(value, types.ModuleType):
            yield (value,)
        elif id(value) not in self.seen and not is_library_module(value):
            self.seen[id(value)] = value
            for name in names & vars(value).keys():
                if (id(vars(value)), name) in self.written.globals:
                    yield name
                yield from self._variable(vars(value)[name], names)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
