"""The facts of a program as JSON, and back with the objects of another process.

A table of paths, a table of objects, a list of facts. An object that a guard compares is found again by its
name, or at the path at which a guard looks for it, and its description has to be equal. The facts that are
made so are then checked as those of any program: a wrong object is a guard that does not hold.
"""

from __future__ import annotations

import functools
import os
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from thunder.base.cache_queries import CACHED, CacheQuery
from thunder.base.equal_values import COMPARISONS
from thunder.base.provenance import ABSENT, STEPS, Path, object_root, root
from thunder.frontend.facts import Fact, TensorFacts
from thunder.frontend.lookasides import environment_queries
from thunder.frontend.lookasides.python_functions import AbstractAnswers
from thunder.frontend.objects.input_overlap import Member, overlapping_groups
from thunder.frontend.objects.object_deaths import Releases
from thunder.frontend.trace_request import TraceRequest
from thunder.ops import prims
from thunder.ops.prims.prologue_checks import CHECKS
from thunder_store.descriptions import description, name_of, named
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.values import is_singleton, read_value, state_text, write_value

__all__ = ["FactReader", "FactWriter", "module_with"]

#: the attributes that guards read: reading them runs no code of a user's class
_ATTRIBUTES: Final = frozenset(
    {"__mro__", "__code__", "__defaults__", "__kwdefaults__", "__func__", "__self__", "__dict__", "__wrapped__"}
    | {"func", "args", "keywords", "device", "start", "stop", "step", "maxlen", "default_factory", "obj"}
    | {"readonly", "format", "shape", "strides", "typecode", "tobytes", "__closure__", "modes"}
    | {"grad", "is_leaf", "requires_grad", "retains_grad"}
)
#: checks that call a function → its position in the arguments, without the path; and these functions
_FUNCTIONS: Final = {prims.check_overlap.id: 1, prims.check_apart.id: 0}
_OF_MEMORY: Final = (overlapping_groups,)
#: the kinds of roots that guards call
_CALLED: Final = frozenset({"state", "contributed", "abstract"})
#: the kinds of steps that are kept
_STEPS: Final = STEPS.keys() - {"called", "iterated", "array"}
_DICTIONARIES: Final = {"sys.modules": lambda: sys.modules, "os.environ": lambda: os.environ._data}  # type: ignore[attr-defined]


class FactWriter:
    """Writes the facts of a program; ``fn`` is what was compiled.

    Raises NotKept for a fact with an object that cannot be found again.
    """

    def __init__(self, fn: Any, contributed: Mapping[str, Any], overrides: Any) -> None:
        self.fn, self.contributed, self.overrides = fn, contributed, overrides
        self.paths: list[Any] = []
        self.objects: list[Any] = []
        self.facts: list[Any] = []
        self._paths: dict[int, tuple[int, Path]] = {}
        self._objects: dict[int, tuple[int, Any]] = {}
        self.makes_sets = False

    def written(self, facts: Sequence[Fact]) -> None:
        """Write facts, in their order."""
        for fact in facts:
            self.facts.append(self._fact(fact))

    def described(self) -> list[Any]:
        """Return the objects that were described."""
        return [x for _, x in self._objects.values()]

    def _fact(self, fact: Fact) -> Any:
        check, (path, *rest) = fact.sym, fact.args
        if CHECKS.get(check.id) is not check:
            raise NotKept("content", f"the check {check.id}")
        if check is prims.check_sizes:
            raise NotKept("sizes", str(fact))
        if check is prims.check_set and len(rest[0]) > 1:
            self.makes_sets = True
        if check is prims.check_state and path.parent is None:
            place = self._called(path)
            return [check.id, place, self._state(place, *rest)]
        place = self.path(path)
        if check is prims.check_same_object and rest[0] is not ABSENT and type(rest[0]) is not Path:
            return [check.id, place, self._sighted(rest[0], place, "value")]
        if check is prims.check_type:
            return [check.id, place, self._sighted(rest[0], place, "type")]
        if check is prims.check_referent:
            referent = rest[0]()
            if referent is None:
                raise NotKept("object", f"{path.source} has ended")
            return [check.id, place, self._sighted(referent, place, "value")]
        return [check.id, place, *(self.value(a) for a in rest)]

    def _sighted(self, x: Any, place: int, how: str) -> Any:
        """Return an object that is found at a path at the latest."""
        if is_singleton(x):
            return self.value(x)
        return ["o", self._object(x, [how, place])]

    def _state(self, place: int, expected: Any) -> Any:
        if self.paths[place][0] == "contributed":
            return {"text": [ord(c) for c in state_text(expected)]}
        return self.value(expected)

    def _called(self, path: Path) -> int:
        """Return the position of the root of a function that guards call."""
        obj, name = path.root_object, str(path.key)
        if id(path) not in self._paths:
            if name in self.contributed and type(self.contributed[name]) is type(obj):
                row: list[Any] = ["contributed", name]
            elif type(obj) is AbstractAnswers:
                row = ["abstract", [[*map(self._named, pair), a] for pair, a in obj._answers.items()], name]
            else:
                row = [*self._query(obj), name]
            self._add_path(path, row)
        return self._paths[id(path)][0]

    def _named(self, x: Any) -> int:
        return self._object(x, None)

    # -- values --------------------------------------------------------------------------------------------

    def value(self, x: Any) -> Any:
        """Return a value as JSON."""
        return write_value(x, self.refer)

    def refer(self, x: Any) -> Any:
        """Return a path, or an object that is found by its name or was found before."""
        if type(x) is Path:
            return ["p", self.path(x)]
        if type(x) is TensorFacts:
            return ["t", *self._tensor_facts(x)]
        if type(x) is Releases:
            keys = None if x.keys is None else [self.value(k) for k in x.keys]
            return ["releases", keys, x.has_weak_containers]
        if type(x) is Member:
            return ["member", *x]
        if type(x) is CacheQuery:
            return self._cache_query(x)
        return ["o", self._object(x, None)]

    def _tensor_facts(self, x: TensorFacts) -> list[Any]:
        if x.free is not None:
            raise NotKept("sizes", "a tensor with symbolic sizes")
        strides = None if x.strides is None else list(x.strides)
        plain = [list(x.shape), strides, str(x.dtype), str(x.device), x.requires_grad, x.dispatch_keys]
        return [self._object(x.type, None), *plain]

    def _object(self, x: Any, sighting: Any) -> int:
        known = self._objects.get(id(x))
        if known is not None:
            return known[0]
        name = list(name_of(x))
        if named(*name) is not x:
            name = []
        if not name and sighting is None:
            raise NotKept("object", f"{_short(x)}, which no name leads to")
        if x is self.fn:
            raise NotKept("object", "the compiled function itself")
        position = len(self.objects)
        self.objects.append([description(x), name, sighting])
        self._objects[id(x)] = position, x
        return position

    # -- paths ---------------------------------------------------------------------------------------------

    def path(self, path: Path) -> int:
        """Return the position of a path in the table, after that of the path it is a step from."""
        known = self._paths.get(id(path))
        if known is not None:
            return known[0]
        if path.parent is None:
            row: list[Any] = self._root(path)
        else:
            if path.kind not in _STEPS or (path.kind == "attribute" and path.key not in _ATTRIBUTES):
                raise NotKept("content", f"{path.source} is read by the step {path.kind} {path.key!r}")
            row = [self.path(path.parent), path.kind, self.value(path.key)]
        return self._add_path(path, row)

    def _add_path(self, path: Path, row: list[Any]) -> int:
        position = len(self.paths)
        self.paths.append(row)
        self._paths[id(path)] = position, path
        return position

    def _root(self, path: Path) -> list[Any]:
        obj, name = path.root_object, str(path.key)
        if obj is ABSENT:
            return ["call", name]
        if obj is self.fn:
            return ["fn", name]
        if self.overrides is not None and obj is self.overrides.path.root_object:
            return ["overrides", name]
        if name in _DICTIONARIES and _DICTIONARIES[name]() is obj:
            return ["dictionary", name]
        if type(obj) is dict and (module := module_with(obj)) is not None:
            return ["globals", module, name]
        if type(obj) is types.MappingProxyType:
            own = obj.get("__dict__")
            if type(own) is not types.GetSetDescriptorType or own.__objclass__.__dict__ != obj:
                raise NotKept("object", f"{name}, a view")
            return ["view", self._object(own.__objclass__, None), name]
        if type(obj) is CacheQuery:
            return [*self._cache_query(obj), name]
        if id(obj) in self._objects or named(*name_of(obj)) is obj:
            return ["object", self._object(obj, None), name]
        dotted = _dotted(name)
        if dotted is not None and named(*dotted) is obj:
            return ["member", *dotted, name]
        raise NotKept("object", f"{name}, {_short(obj)}, which no name leads to")

    def _cache_query(self, query: CacheQuery) -> list[Any]:
        parts = [self.value(query.args), self.value(query.kwargs)]
        return ["query", self._object(query.fn, None), *parts, query.name]

    def _query(self, obj: Any) -> list[Any]:
        if not callable(obj):
            raise NotKept("query", _short(obj))
        call = obj if type(obj) is functools.partial else functools.partial(obj)
        fn = call.func
        if not _is_query(fn):
            raise NotKept("query", f"{getattr(fn, '__qualname__', fn)}")
        where = _place_of_query(fn)
        if where is None:
            raise NotKept("query", f"{getattr(fn, '__qualname__', fn)}, which no name leads to")
        return ["state", where, [self.value(a) for a in call.args], self.value(call.keywords)]


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

    def read(self, rows: Sequence[Any]) -> list[Fact]:
        """Return the facts; those with a value that is not the expected one end it with NotUsed."""
        for check_id, place, *rest in rows:
            check = CHECKS.get(check_id)
            if check is None:
                raise NotUsed(f"{check_id!r} is not a check")
            fact = self._fact(check, self.path(place), place, rest)
            failure = self._failure(fact, place)
            if failure is not None:
                raise NotUsed(f"{fact}: expected {_short(fact.expected)}, found {_short(failure[0])}")
            self.facts.append(fact)
        return self.facts

    def _fact(self, check: Any, path: Path, place: int, rest: Sequence[Any]) -> Fact:
        if check is prims.check_state and path.parent is None:
            if self._rows[place][0] not in _CALLED:
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
        called = _FUNCTIONS.get(check.id)
        if called is not None and args[called] not in _OF_MEMORY:
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
        raise NotUsed(f"{kind!r} is not a kind of references")

    def _tensor_facts(
        self, cls: int, shape: Any, strides: Any, dtype: str, device: str, grad: bool, keys: str
    ) -> TensorFacts:
        dtype_of = read_value({"dtype": dtype.removeprefix("torch.")}, self.refer)
        strides = None if strides is None else tuple(strides)
        return TensorFacts(
            self.object(cls), tuple(shape), strides, dtype_of, torch.device(device), bool(grad), keys
        )

    def object(self, position: int) -> Any:
        """Return an object that a name leads to, or that was found."""
        if position in self._found:
            return self._found[position]
        expected, name, _ = self._forms[position]
        found = named(*name) if name else None
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
        if position not in self._found and not self._forms[position][1]:
            how, place = self._forms[position][2]
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
            raise NotUsed(f"another one than {' '.join(expected.split(' ')[:2])}: {' '.join(actual.split(' ')[:2])}")
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
        if parent >= position or kind not in _STEPS:
            raise NotUsed("a path is not a step from one before")
        key = read_value(rest[0], self.refer)
        if kind == "attribute" and key not in _ATTRIBUTES:
            raise NotUsed(f"the attribute {key!r} is not one that guards read")
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
        if kind == "dictionary" and rest[0] in _DICTIONARIES:
            return object_root(rest[0], _DICTIONARIES[rest[0]]())
        if kind == "globals":
            module = sys.modules.get(rest[0])
            if module is None:
                raise NotUsed(f"the module {rest[0]} is not loaded")
            return object_root(rest[1], vars(module))
        if kind == "object":
            return object_root(rest[1], self.object(rest[0]))
        if kind == "member":
            found = named(*rest[:2])
            if type(found) not in _CONTAINERS:
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
            fn = _query_at(where)
            read = [read_value(a, self.refer) for a in args]
            return object_root(name, functools.partial(fn, *read, **read_value(kwargs, self.refer)))
        raise NotUsed(f"{kind!r} is not a kind of roots")


#: the types of objects that are found as members of modules: those of registries of torch
_CONTAINERS: Final = (dict, list, set, OrderedDict, torch.Generator)


def _short(x: Any) -> str:
    return f"an object of type {type(x).__qualname__}" if not isinstance(x, str | int | tuple) else repr(x)[:80]


def module_with(namespace: dict[str, Any]) -> str | None:
    """Return the name of the loaded module with this namespace, or None."""
    names = (namespace.get("__name__"), getattr(namespace.get("__spec__"), "name", None))
    for name in names:
        module = sys.modules.get(name) if type(name) is str else None
        if module is not None and getattr(module, "__dict__", None) is namespace:
            return str(name)
    return None


def _dotted(name: str) -> tuple[str, str] | None:
    """Return the loaded module and the rest of a dotted name."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, more = module.rpartition(".")
        rest = f"{more}.{rest}"
    return (module, rest) if module else None


def _is_query(fn: Any) -> bool:
    """Return whether a function is one of those that core itself calls in guards."""
    if environment_queries.is_query(fn) or fn in environment_queries._OTHERS:
        return True
    return isinstance(fn, types.FunctionType) and str(fn.__module__).startswith("thunder.")


def _place_of_query(fn: Any) -> list[str] | None:
    places = [name_of(fn), ("torch._C", fn.__name__), ("torch", fn.__name__), (str(fn.__module__), fn.__name__)]
    return next((list(place) for place in places if all(place) and named(*place) is fn), None)


def _query_at(where: Any) -> Any:
    fn = named(*where)
    if fn is None or not callable(fn) or not _is_query(fn):
        raise NotUsed(f"{where} is not a query of torch's or thunder's")
    return fn


