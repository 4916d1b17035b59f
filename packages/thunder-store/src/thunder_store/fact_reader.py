"""The facts of a program, read for a call of another process: see :mod:`~thunder_store.fact_writer`."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder.core.entries import (
    ABSENT,
    CACHED,
    CHECKS,
    COMPARISONS,
    STEPS,
    AbstractAnswers,
    CacheQuery,
    Fact,
    FreeSizes,
    Member,
    Path,
    Releases,
    SizeFacts,
    TensorFacts,
    TraceRequest,
    object_root,
    prims,
    root,
)
from thunder_store import fact_forms as forms
from thunder_store.descriptions import PARTS, description, named, parts_of
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.sizes import read_free, read_sizes
from thunder_store.values import read_value, state_text

__all__ = ["FactReader"]


class FactReader:
    """Reads the facts of a program for a call of another process.

    Raises NotUsed where an object is not found, or is not what it was.
    """

    def __init__(self, tables: Mapping[str, Any], request: TraceRequest) -> None:
        self._rows, self._forms = tables["paths"], tables["objects"]
        self.request = request
        self.roots = {"args": request.args, "kwargs": request.kwargs}
        self._paths: dict[int, Path] = {}
        self._values: dict[int, Any] = {}
        self._found: dict[int, Any] = {}
        self._ids: dict[int, int] = {}
        self.facts: list[Fact] = []
        self._free: dict[Path, FreeSizes] = {}
        #: what is known of symbolic sizes, if the program has them
        self.sizes = None if tables.get("sizes") is None else read_sizes(tables["sizes"])

    def read(self, rows: Sequence[Any]) -> list[Fact]:
        """Return the facts; those with a value that is not the expected one end it with NotUsed."""
        for check_id, place, *rest in rows:
            check = CHECKS.get(check_id)
            if check is None:
                raise NotUsed(f"{check_id!r} is not a check")
            fact = self._fact(check, self.path(place), place, rest)
            failure = self._failure(fact, place)
            if failure is not None:
                expected, found = forms.short(fact.expected), forms.short(failure[0])
                raise NotUsed(f"{fact}: expected {expected}, found {found}")
            self.facts.append(fact)
            if check is prims.check_tensor and fact.expected.free is not None:
                self._free[fact.path] = fact.expected.free
        return self.facts

    def _fact(self, check: Any, path: Path, place: int, rest: Sequence[Any]) -> Fact:
        if check is prims.check_state and path.parent is None:
            if self._rows[place][0] not in forms.CALLED:
                raise NotUsed(f"{path.source} is not a query")
            if self._rows[place][0] == "contributed":
                state = dict(path.root_object())
                if state_text(state) != read_value(rest[0], self.refer):
                    raise NotUsed(f"the state of {path.source} is another one")
                return Fact(check, (path, state))
        if check is prims.check_referent:
            return Fact(check, (path, weakref.ref(self._sighted(rest[0]))))
        if check in (prims.check_same_object, prims.check_type):
            (form,) = rest
            is_object = type(form) is list and form[:1] == ["o"]
            return Fact(check, (path, self._sighted(form) if is_object else read_value(form, self.refer)))
        args = [read_value(a, self.refer) for a in rest]
        if check is prims.check_compare and args[0] not in COMPARISONS:
            raise NotUsed("a comparison by another operator")
        called = forms.FUNCTIONS.get(check.id)
        if called is not None and args[called] not in forms.OF_MEMORY:
            raise NotUsed(f"{check.id} does not compare by one of thunder's functions")
        return Fact(check, (path, *args))

    def _failure(self, fact: Fact, place: int) -> tuple[Any] | None:
        """Return what there is instead, as `Fact.failure` does, with the values of paths that are known."""
        if fact.sym.relation or any(type(a) is Path for a in fact.args[1:]):
            return fact.failure(self.roots)
        value, rest = self.at(place), fact.args[1:]
        if value is ABSENT:
            return None if rest and rest[0] is ABSENT else (ABSENT,)
        return None if fact.sym.holds(value, *rest) else (fact.sym.found(value, *rest),)

    # -- objects -------------------------------------------------------------------------------------------

    def refer(self, j: list[Any]) -> Any:
        """Return what a path or an object is."""
        kind, *rest = j
        if kind == "p":
            return self.path(rest[0])
        if kind == "t":
            return self._tensor_facts(*rest)
        if kind == "releases":
            keys = None if rest[0] is None else tuple(read_value(k, self.refer) for k in rest[0])
            return Releases(keys, bool(rest[1]))
        if kind == "member":
            return Member(*map(int, rest))
        if kind == "query":
            return self._cache_query(*rest)
        if kind == "o":
            return self.object(rest[0])
        if kind == "sizes":
            return self.own_sizes()
        if kind == "root":
            return self.path(rest[0]).root_object
        if kind == "state" and self._rows[rest[0]][0] == "contributed":
            return dict(self.path(rest[0]).root_object())
        if kind == "original" and self.request.overrides is not None:
            return self.request.overrides.originals[rest[0]]
        raise NotUsed(f"{kind!r} is not a kind of references")

    def _tensor_facts(
        self,
        cls: int,
        shape: Any,
        strides: Any,
        dtype: str,
        device: str,
        grad: bool,
        keys: str,
        free: Any = None,
    ) -> TensorFacts:
        dtype_of = read_value({"dtype": dtype.removeprefix("torch.")}, self.refer)
        strides = None if strides is None else tuple(strides)
        symbols = None if free is None else read_free(free, self.own_sizes())
        return TensorFacts(
            self.object(cls), tuple(shape), strides, dtype_of, torch.device(device), bool(grad), keys, symbols
        )

    def free_at(self, path: Path) -> FreeSizes | None:
        """Return the shape of the tensor at a path if some of its sizes are symbols."""
        return self._free.get(path)

    def own_sizes(self) -> SizeFacts:
        """Return the symbolic sizes of the program; raise NotUsed for a program without them."""
        if self.sizes is None:
            raise NotUsed("the program has no symbolic sizes")
        return self.sizes

    def object(self, position: int) -> Any:
        """Return an object that a name leads to, or that was found."""
        if position in self._found:
            return self._found[position]
        expected, name, sighting = self._forms[position]
        found = named(*name) if name else None
        if not name and sighting is not None and sighting[0] in PARTS:
            found = dict(parts_of(self.object(sighting[1]))).get(sighting[0])
        if found is None:
            raise NotUsed(f"{expected.partition(' ')[0]} {'.'.join(name)} is not there")
        return self._enter(position, found)

    def has_found(self, x: Any) -> bool:
        """Return whether an object is one of those that the program depends on."""
        return id(x) in self._ids

    def _sighted(self, form: Any) -> Any:
        kind, position = form
        if kind != "o":
            raise NotUsed(f"{kind!r} is not a kind of objects")
        row = self._forms[position]
        if position not in self._found and not row[1] and row[2][0] not in PARTS:
            how, place = row[2]
            found = self.at(place)
            if found is ABSENT:
                raise NotUsed(f"there is nothing at {self.path(place).source}")
            self._enter(position, type(found) if how == "type" else found)
        return self.object(position)

    def _enter(self, position: int, found: Any) -> Any:
        expected = self._forms[position][0]
        try:
            actual = description(found)
        except NotKept as reason:
            raise NotUsed(str(reason)) from reason
        if actual != expected:
            raise NotUsed(
                f"another one than {' '.join(expected.split(' ')[:2])}: {' '.join(actual.split(' ')[:2])}"
            )
        if self._ids.setdefault(id(found), position) != position:
            raise NotUsed("one object is there for two")
        self._found[position] = found
        return found

    # -- paths ---------------------------------------------------------------------------------------------

    def path(self, position: int) -> Path:
        """Return a path of the table."""
        path = self._paths.get(position)
        if path is None:
            if type(position) is not int or not 0 <= position < len(self._rows):
                raise NotUsed("a path is not in the table")
            path = self._paths[position] = self._path(self._rows[position], position)
        return path

    def _path(self, row: list[Any], position: int) -> Path:
        parent, kind, *rest = row
        if type(parent) is not int:
            return self._root(row)
        if parent >= position:
            raise NotUsed("a path is not a step from one before")
        key = read_value(rest[0], self.refer)
        if not forms.is_kept_step(kind, key):
            raise NotUsed(f"the step {kind} {key!r} is not one that guards take")
        return self.path(parent).step(kind, key)

    def at(self, position: int) -> Any:
        """Return the value at a path, or ABSENT."""
        if position in self._values:
            return self._values[position]
        path = self.path(position)
        row = self._rows[position]
        if path.parent is None or type(row[0]) is not int:
            value = self.roots[path.key] if path.root_object is ABSENT else path.root_object
        else:
            value = self.at(row[0])
            if value is not ABSENT:
                try:
                    value = STEPS[path.kind].fetch(value, path.key)
                except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
                    raise NotUsed(f"{path.source} cannot be read: {error!r}") from error
        self._values[position] = value
        return value

    def _cache_query(self, fn: int, args: Any, kwargs: Any, text: str) -> CacheQuery:
        cached = self.object(fn)
        if type(cached) is not CACHED:
            raise NotUsed(f"{text} is not a call of a function with a cache")
        return CacheQuery(cached, read_value(args, self.refer), read_value(kwargs, self.refer), str(text))

    def _root(self, row: list[Any]) -> Path:
        kind, *rest = row
        if kind == "call" and rest[0] in ("args", "kwargs"):
            return root(rest[0])
        if kind == "fn":
            return object_root(rest[0], self.request.fn)
        if kind == "overrides" and self.request.overrides is not None:
            return self.request.overrides.path
        if kind == "contributed" and rest[0] in self.request.contributed:
            return object_root(rest[0], self.request.contributed[rest[0]])
        if kind == "dictionary" and rest[0] in forms.DICTIONARIES:
            return object_root(rest[0], forms.DICTIONARIES[rest[0]]())
        if kind == "globals":
            module = sys.modules.get(rest[0])
            if module is None:
                raise NotUsed(f"the module {rest[0]} is not loaded")
            return object_root(rest[1], vars(module))
        if kind == "object":
            return object_root(rest[1], self.object(rest[0]))
        if kind == "member":
            found = named(*rest[:2])
            if type(found) not in forms.REGISTRIES:
                raise NotUsed(f"{rest[2]} is not there")
            return object_root(rest[2], found)
        if kind == "query":
            *parts, name = rest
            return object_root(name, self._cache_query(*parts))
        if kind == "view":
            cls = self.object(rest[0])
            if not isinstance(cls, type):
                raise NotUsed(f"{rest[1]} is not of a class")
            return object_root(rest[1], cls.__dict__)
        if kind == "abstract":
            answers = object.__new__(AbstractAnswers)
            answers._token = -1
            answers._answers = {(self.object(c), self.object(b)): bool(a) for c, b, a in rest[0]}
            return object_root(rest[1], answers)
        if kind == "state":
            where, args, kwargs, name = rest
            fn = forms.query_at(where)
            read = [read_value(a, self.refer) for a in args]
            return object_root(name, functools.partial(fn, *read, **read_value(kwargs, self.refer)))
        raise NotUsed(f"{kind!r} is not a kind of roots")
