"""The facts of a program as JSON, and back with the objects of another process.

A table of paths, a table of objects, a list of facts. An object that a guard compares is found again by its
name, or at the path at which a guard looks for it, and its description has to be equal. The facts that are
made so are then checked as those of any program: a wrong object is a guard that does not hold.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

from thunder.core.entries import (
    ABSENT,
    CHECKS,
    AbstractAnswers,
    CacheQuery,
    Fact,
    Member,
    Path,
    Releases,
    SizeFacts,
    TensorFacts,
    prims,
)
from thunder_store import fact_forms as forms
from thunder_store.descriptions import description, name_of, named, parts_of
from thunder_store.device_keys import keys_on_device
from thunder_store.reasons import NotKept
from thunder_store.sizes import write_free
from thunder_store.values import is_singleton, state_text, write_value

__all__ = ["FactWriter"]


class FactWriter:
    """Writes the facts of a program; ``fn`` is what was compiled.

    Raises NotKept for a fact with an object that cannot be found again.
    """

    def __init__(
        self, fn: Any, contributed: Mapping[str, Any], overrides: Any, sizes: SizeFacts | None
    ) -> None:
        self.fn, self.contributed, self.overrides = fn, contributed, overrides
        self.sizes = sizes
        self.paths: list[Any] = []
        self.objects: list[Any] = []
        self.facts: list[Any] = []
        self._paths: dict[int, tuple[int, Path]] = {}
        self._objects: dict[int, tuple[int, Any]] = {}
        #: id of a function in another object, such as a property → what it is there, and of which object
        self._parts: dict[int, list[Any]] = {}
        self.makes_sets = False
        #: the state of plugins and transforms, with the path of the function that returns it
        self._states: list[tuple[Any, int]] = []
        #: id of a tensor of the module, in whose place another one is in use → its first name
        originals = {} if overrides is None else overrides.originals
        self._originals = {id(t): name for name, t in reversed(originals.items()) if t is not None}

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
        if is_singleton(x) or id(x) in self._originals:
            return self.value(x)
        return ["o", self._object(x, [how, place])]

    def _state(self, place: int, expected: Any) -> Any:
        if self.paths[place][0] == "contributed":
            self._states.append((expected, place))
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
        if x is self.sizes and x is not None:
            return ["sizes"]
        if type(x) is Releases:
            keys = None if x.keys is None else [self.value(k) for k in x.keys]
            return ["releases", keys, x.has_weak_containers]
        if type(x) is Member:
            return ["member", *x]
        if type(x) is CacheQuery:
            return self._cache_query(x)
        if id(x) in self._originals:
            return ["original", self._originals[id(x)]]
        return ["o", self._object(x, None)]

    def _tensor_facts(self, x: TensorFacts) -> list[Any]:
        strides = None if x.strides is None else list(x.strides)
        plain = [list(x.shape), strides, str(x.dtype), str(x.device), x.requires_grad, keys_on_device(x)]
        free = [] if x.free is None else [write_free(x.free)]
        return [self._object(x.type, None), *plain, *free]

    def _object(self, x: Any, sighting: Any) -> int:
        known = self._objects.get(id(x))
        if known is not None:
            return known[0]
        if id(x) in forms.OF_PROCESS:
            raise NotKept("process", forms.short(x))
        self.makes_sets |= x is hash
        name = list(name_of(x))
        if named(*name) is not x:
            name = []
        if not name and sighting is None:
            sighting = self._parts.get(id(x))
        if not name and sighting is None:
            raise NotKept("object", f"{forms.short(x)}, which no name leads to")
        if x is self.fn:
            raise NotKept("object", "the compiled function itself")
        position = len(self.objects)
        self.objects.append([description(x), name, sighting])
        self._objects[id(x)] = position, x
        for attribute, part in parts_of(x):
            self._parts.setdefault(id(part), [attribute, position])
        return position

    # -- paths ---------------------------------------------------------------------------------------------

    def constant(self, x: Any) -> Any:
        """Return a constant of a trace as JSON: a root of paths, a state of facts, or another value."""
        roots = (n for n, path in self._paths.values() if path.parent is None and path.root_object is x)
        states = (place for state, place in self._states if type(x) is dict and state == x)
        for kind, places in (("root", roots), ("state", states)):
            if (place := next(places, None)) is not None:
                return [kind, place]
        return self.value(x)

    def path(self, path: Path) -> int:
        """Return the position of a path in the table, after that of the path it is a step from."""
        known = self._paths.get(id(path))
        if known is not None:
            return known[0]
        if path.parent is None:
            row: list[Any] = self._root(path)
        else:
            if not forms.is_kept_step(path.kind, path.key):
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
        if name in forms.DICTIONARIES and forms.DICTIONARIES[name]() is obj:
            return ["dictionary", name]
        if type(obj) is dict and (module := forms.module_with(obj)) is not None:
            return ["globals", module, name]
        if type(obj) is types.MappingProxyType:
            own = obj.get("__dict__")
            if type(own) is not types.GetSetDescriptorType or own.__objclass__.__dict__ != obj:
                raise NotKept("object", f"{name}, a view")
            return ["view", self._object(own.__objclass__, None), name]
        if type(obj) is CacheQuery:
            return [*self._cache_query(obj), name]
        if id(obj) in self._objects or id(obj) in self._parts or named(*name_of(obj)) is obj:
            return ["object", self._object(obj, None), name]
        member = forms.dotted(name)
        if member is not None and named(*member) is obj:
            return ["member", *member, name]
        raise NotKept("object", f"{name}, {forms.short(obj)}, which no name leads to")

    def _cache_query(self, query: CacheQuery) -> list[Any]:
        parts = [self.value(query.args), self.value(query.kwargs)]
        return ["query", self._object(query.fn, None), *parts, query.name]

    def _query(self, obj: Any) -> list[Any]:
        if not callable(obj):
            raise NotKept("query", forms.short(obj))
        call = obj if type(obj) is functools.partial else functools.partial(obj)
        fn = call.func
        if not forms.is_query(fn):
            raise NotKept("query", f"{getattr(fn, '__qualname__', fn)}")
        where = forms.place_of_query(fn)
        if where is None:
            raise NotKept("query", f"{getattr(fn, '__qualname__', fn)}, which no name leads to")
        return ["state", where, [self.value(a) for a in call.args], self.value(call.keywords)]
