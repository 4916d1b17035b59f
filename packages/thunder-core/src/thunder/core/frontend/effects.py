"""Effects and results: what the program wrote, and what it returns, as code that does it again at each call.

The computation returns tensors. Whatever else a call leaves behind (containers around the tensors, writes to
lists, attributes, globals and cells of the user's) is built by the epilogue:

    self.n = self.n + 1; xs.append(y); return {"y": y}   →   def epilogue(y, xs, self):
                                                               xs[:] = [xs[0], y]
                                                               self.n = 3
                                                               return {'y': y}
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from thunder.core.errors import UnsupportedProgram
from thunder.core.frontend.shadows import CONTAINERS, Shadow
from thunder.core.frontend.statements import statement
from thunder.core.frontend.tracer import Tracer
from thunder.core.frontend.tracker import DELETED, LEAVES, PINNED, Record, is_foreign, plain_base
from thunder.core.interpreter.policy import MISSING
from thunder.core.provenance import Path, lookup_type
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder.core.symbol import BoundSymbol

_PRINTABLE = frozenset({int, bool, str, bytes, type(None), type(...)})


def make_instance(cls: type, state: dict[str, Any]) -> Any:
    """An instance of a dataclass with these fields, whatever its ``__init__`` would do."""
    new: Any = object.__new__(cls)
    for name, value in state.items():
        object.__setattr__(new, name, value)
    return new


def is_simple(value: Any, seen: set[int], tracker: Any) -> bool:
    """Whether the computation itself can return ``value``: fresh plain containers of tensors and literals,
    none of them twice.
    """
    if isinstance(value, TensorProxy | NumberProxy) or type(value) in _PRINTABLE:
        return True
    if id(value) in seen or type(value) not in (tuple, list, dict) or tracker.record_of(value) is not None:
        return False
    seen.add(id(value))
    if isinstance(value, dict):
        return all(type(k) in _PRINTABLE for k in value) and all(
            is_simple(v, seen, tracker) for v in value.values()
        )
    return all(is_simple(v, seen, tracker) for v in value)


class Builder:
    """Turns values of the traced program into expressions over the computation's results and the objects
    reached by paths.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.tensors: dict[str, TensorProxy | NumberProxy] = {}  # what the computation must return, by name
        self.reached: dict[int, tuple[str, Path, Any]] = {}  # objects of the user's: id → name, path, object
        self.statements: list[BoundSymbol] = []
        self.built: dict[int, tuple[str, Any]] = {}
        self.uses: Counter[int] = Counter()  # how often a container is referred to, by id
        self.stores = True  # whether what is built is written into an object of the user's, and not returned
        self.objects: dict[str, Any] = {}  # what the expressions of the next statement name
        self._count = 0

    def _fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(self, *lines: str, **objects: Any) -> None:
        """Appends a statement."""
        self.statements.append(statement(*lines, **self.objects, **objects))
        self.objects = {}

    def reach(self, path: Path, obj: Any) -> str:
        """The name under which the epilogue gets an object of the user's."""
        known = self.reached.get(id(obj))
        if known is None:
            name = _identifier(path.source) or self._fresh("obj")
            if any(name == other for other, _, _ in self.reached.values()):
                name = self._fresh(name + "_")
            known = self.reached[id(obj)] = (name, path, obj)
        return known[0]

    # -- expressions -----------------------------------------------------------------------------------------

    def expression(self, value: Any) -> str:
        """Code whose value is what eager would have here."""
        if isinstance(value, TensorProxy | NumberProxy):
            self.tensors[value.name] = value
            return value.name
        if type(value) in _PRINTABLE:
            return repr(value)
        record = self.tracer.tracker.record_of(value)
        if record is not None and not isinstance(value, PINNED):
            return self.reach(record.path, record.obj)
        known = self.built.get(id(value))
        if known is not None:
            return known[0]
        if type(value) in LEAVES or isinstance(value, _CONSTANTS):
            return self._constant(value)
        return self._construct(value)

    def _constant(self, value: Any) -> str:
        if type(value) is float and value == value and abs(value) != float("inf"):
            return repr(value)
        name = self._fresh("const")
        self.built[id(value)] = (name, value)
        self.emit(
            f"# {name} is {' '.join(repr(value).split())[:60]}",
            **{name: value},
        )
        return name

    def _construct(self, value: Any) -> str:
        rule = _CONSTRUCTORS.get(type(value)) or _rule_by_structure(value)
        if rule is None and self.stores and not is_foreign(type(value)) and hasattr(value, "__dict__"):
            rule = _dataclass  # an object that the program made and leaves behind in one of the user's
        if rule is None:
            raise UnsupportedProgram(
                f"the program returns or stores {_describe(value)}, "
                "which thunder cannot build again at each call",
                found={"class": f"{type(value).__module__}.{type(value).__qualname__}"},
                hint="Use containers, namedtuples or dataclasses "
                "(thunder.core.pytree.register_pytree_node_dataclass).",
            )
        return rule(self, value)

    def count(self, value: Any) -> None:
        """Counts the references to each container among the values to be built."""
        if isinstance(value, tuple | list | set | frozenset | deque):
            children: Any = list(value)
        elif isinstance(value, dict):
            children = [*dict.values(value), *getattr(value, "__dict__", {}).values()]
        elif dataclasses.is_dataclass(value) and hasattr(value, "__dict__"):
            children = list(value.__dict__.values())
        else:
            return
        self.uses[id(value)] += 1
        if self.uses[id(value)] == 1 and self.tracer.tracker.record_of(value) is None:
            for child in children:
                self.count(child)

    def shared(self, value: Any, text: str, **objects: Any) -> str:
        """Code for a new container: in place, or a variable where two references to it must stay one
        object.
        """
        if self.uses[id(value)] <= 1:
            self.objects |= objects
            return text
        name = self._fresh("c")
        self.emit(f"{name} = {text}", **objects)
        self.built[id(value)] = (name, value)
        return name

    # -- writes ----------------------------------------------------------------------------------------------

    def write_shadow(self, shadow: Shadow) -> None:
        """Brings a container of the user's to the content of its shadow."""
        target = self.reach(shadow.path, shadow.original)
        now = shadow.copy
        if isinstance(now, dict):
            if plain_base(type(now)) is object:
                raise UnsupportedProgram(
                    f"the program writes to {shadow.path.source}, a dict with methods of its own",
                    found={"class": f"{type(now).__module__}.{type(now).__qualname__}"},
                    hint="Write to it outside the compiled function.",
                )
            self._write_dict(target, now, shadow.snapshot)
        elif isinstance(now, set):
            self.emit(f"{target}.clear()", f"{target}.update({self._items('[', now, ']')})")
        elif isinstance(now, deque):
            self.emit(f"{target}.clear()", f"{target}.extend({self._items('[', now, ']')})")
        elif _begins_with(now, shadow.snapshot):
            self.emit(f"{target}.extend({self._items('[', now[len(shadow.snapshot) :], ']')})")
        else:
            self.emit(f"{target}[:] = {self._items('[', now, ']')}")

    def _write_dict(self, target: str, now: dict[Any, Any], before: list[tuple[Any, Any]]) -> None:
        keys, old = list(now.keys()), [k for k, _ in before]
        if keys[: len(old)] != old:
            pairs = ", ".join(f"{self.expression(k)}: {self.expression(v)}" for k, v in now.items())
            self.emit(f"new = {{{pairs}}}", f"{target}.clear()", f"{target}.update(new)")
            return
        previous = dict(before)
        for key, value in now.items():
            if key not in previous or previous[key] is not value:
                text, named = self.expression(value), self.expression(key)
                self.emit(f"{target}[{named}] = {text}")

    def _items(self, left: str, values: Any, right: str) -> str:
        return left + ", ".join(self.expression(v) for v in values) + right

    def write_record(self, record: Record) -> None:
        """Writes attributes of an object of the user's, past its descriptors, which ran while tracing."""
        target = self.reach(record.path, record.obj)
        for name, value in record.writes.items():
            if value is DELETED:
                self.emit(f"object.__delattr__({target}, {name!r})")
                continue
            text = self.expression(value)
            if isinstance(record.obj, torch.nn.Module) and name in record.obj._buffers:
                self.emit(f"{target}._buffers[{name!r}] = {text}")
            elif _has_plain_setattr(record.obj, name):
                self.emit(f"{target}.{name} = {text}")
            else:
                self.emit(f"object.__setattr__({target}, {name!r}, {text})")

    def write_global(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """Writes or deletes a global variable."""
        module = _identifier(f"globals_of_{namespace.get('__name__', 'module')}") or "namespace"
        if value is MISSING:
            self.emit(f"{module}.pop({name!r}, None)", **{module: namespace})
        else:
            self.emit(f"{module}[{name!r}] = {self.expression(value)}", **{module: namespace})

    def write_cell(self, path: Path, value: Any) -> None:
        """Writes or empties a closure cell."""
        assert path.parent is not None, "a cell's content is reached through the cell"
        cell_path = path.parent
        cell = cell_path.fetch({}) if _is_pinned(cell_path) else None
        name = self._fresh("cell")
        if cell is None:
            self.reached[id(cell_path)] = (name, cell_path, cell_path)
        objects = {} if cell is None else {name: cell}
        if value is MISSING:
            self.emit(f"del {name}.cell_contents", **objects)
        else:
            self.emit(f"{name}.cell_contents = {self.expression(value)}", **objects)


_CONSTANTS = (*PINNED, enum.Enum)


def _begins_with(items: list[Any], start: list[Any]) -> bool:
    return len(items) >= len(start) and all(a is b for a, b in zip(items, start, strict=False))


def _is_pinned(path: Path) -> bool:
    while path.parent is not None:
        path = path.parent
    return path.key not in ("args", "kwargs")


def _has_plain_setattr(obj: Any, name: str) -> bool:
    setter = lookup_type(type(obj), "__setattr__")
    plain = setter is object.__setattr__ or setter is torch.nn.Module.__setattr__
    return plain and name.isidentifier() and not hasattr(lookup_type(type(obj), name), "__set__")


def _identifier(source: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in source).strip("_")
    return text if text.isidentifier() else ""


def _describe(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return f"the function {value.__qualname__}, made by the program"
    if isinstance(value, types.GeneratorType):
        return "a generator"
    return f"an object of class {type(value).__qualname__}"


# -- how containers are built --------------------------------------------------------------------------------


def _tuple(b: Builder, value: tuple[Any, ...]) -> str:
    return f"({', '.join(b.expression(v) for v in value)}{',' if len(value) == 1 else ''})"


def _list(b: Builder, value: list[Any]) -> str:
    return b.shared(value, b._items("[", value, "]"))


def _dict(b: Builder, value: dict[Any, Any]) -> str:
    pairs = ", ".join(f"{b.expression(k)}: {b.expression(v)}" for k, v in value.items())
    return b.shared(value, f"{{{pairs}}}")


def _set(b: Builder, value: set[Any]) -> str:
    return b.shared(value, f"set({b._items('[', value, ']')})")


def _ordered(b: Builder, value: Any) -> str:
    pairs = ", ".join(f"({b.expression(k)}, {b.expression(v)})" for k, v in value.items())
    if isinstance(value, defaultdict):
        return b.shared(
            value,
            f"defaultdict({b.expression(original(value.default_factory))}, [{pairs}])",
            defaultdict=defaultdict,
        )
    if isinstance(value, Counter):
        return b.shared(value, f"Counter(dict([{pairs}]))", Counter=Counter)
    return b.shared(value, f"OrderedDict([{pairs}])", OrderedDict=OrderedDict)


def _deque(b: Builder, value: deque[Any]) -> str:
    return b.shared(value, f"deque({b._items('[', value, ']')}, {value.maxlen})", deque=deque)


def _slice(b: Builder, value: slice) -> str:
    return f"slice({b.expression(value.start)}, {b.expression(value.stop)}, {b.expression(value.step)})"


def original(fn: Any) -> Any:
    """The user's function behind a shim that the interpreter handed to native code."""
    return getattr(fn, "interpreted", fn)


_CONSTRUCTORS: dict[type, Callable[[Builder, Any], str]] = {
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: _set,
    frozenset: lambda b, v: f"frozenset({b._items('[', v, ']')})",
    OrderedDict: _ordered,
    defaultdict: _ordered,
    Counter: _ordered,
    deque: _deque,
    slice: _slice,
}


def _rule_by_structure(value: Any) -> Callable[[Builder, Any], str] | None:
    cls = type(value)
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return _namedtuple
    if isinstance(value, tuple) and cls.__module__ == "torch.return_types":
        return _structseq
    if plain_base(cls) in CONTAINERS:
        return _plain_subclass
    if dataclasses.is_dataclass(value):
        return _dataclass_of_items if isinstance(value, dict) else _dataclass
    return None


def _namedtuple(b: Builder, value: Any) -> str:
    fields = [b.expression(v) for v in tuple.__iter__(value)]
    name = type(value).__name__
    return b.shared(value, f"tuple.__new__({name}, [{', '.join(fields)}])", **{name: type(value)})


def _plain_subclass(b: Builder, value: Any) -> str:
    base = plain_base(type(value))
    assert base in CONTAINERS, "the rule is for subclasses that add nothing to a builtin container"
    name = type(value).__name__
    return b.shared(value, f"{name}({_CONSTRUCTORS[base](b, base(value))})", **{name: type(value)})


def _structseq(b: Builder, value: Any) -> str:
    name = f"return_types_{type(value).__name__}"
    return b.shared(value, f"{name}({b._items('[', value, ']')})", **{name: type(value)})


def make_mapping(cls: type, items: dict[Any, Any], state: dict[str, Any]) -> Any:
    """An instance of a dataclass that is a dict as well, with these items and attributes, whatever its
    methods would do.
    """
    new: Any = cls.__new__(cls)  # type: ignore[call-overload]
    store = OrderedDict.__setitem__ if issubclass(cls, OrderedDict) else dict.__setitem__
    for key, value in items.items():
        store(new, key, value)
    new.__dict__.update(state)
    return new


def _dataclass_of_items(b: Builder, value: Any) -> str:
    """Such as the outputs of Hugging Face's models: the same values as items and as attributes."""
    view = OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value)
    items = ", ".join(f"{b.expression(k)}: {b.expression(v)}" for k, v in view)
    state = ", ".join(f"{k!r}: {b.expression(v)}" for k, v in value.__dict__.items())
    name = type(value).__name__
    text = f"make_mapping({name}, {{{items}}}, {{{state}}})"
    return b.shared(value, text, **{name: type(value), "make_mapping": make_mapping})


def _dataclass(b: Builder, value: Any) -> str:
    state = dict(value.__dict__) if hasattr(value, "__dict__") else {}
    for f in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
        if f.name not in state and hasattr(value, f.name):
            state[f.name] = getattr(value, f.name)
    pairs = ", ".join(f"{k!r}: {b.expression(v)}" for k, v in state.items())
    name = type(value).__name__
    return b.shared(
        value, f"make_instance({name}, {{{pairs}}})", **{name: type(value), "make_instance": make_instance}
    )
