"""Where a value comes from: paths from the roots of a call (arguments, the function, its globals) to a value.

A path prints as the user would write it (``self.layers[0].weight``), fetches its value, and turns into code
that does. Each kind of step is one row of :data:`STEPS`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType, MappingProxyType, ModuleType, WrapperDescriptorType
from typing import Any, Final, NamedTuple


class _Absent:
    """The type of :data:`ABSENT`."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()
"""What a path fetches where there is nothing."""

MEMBER_DICTS = frozenset({"_modules", "_parameters", "_buffers"})
"""Dictionaries in which ``torch.nn.Module`` keeps what users reach as attributes. Paths omit them."""


def lookup_type(cls: type, name: str) -> Any:
    """The raw value under ``name`` along ``cls.__mro__``, or ABSENT."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def reads_natively(cls: type) -> bool:
    """Whether an attribute of an instance is read without a ``__getattr__`` or the like in Python."""
    is_native = isinstance(cls.__getattribute__, WrapperDescriptorType)
    return is_native and lookup_type(cls, "__getattr__") is ABSENT


def own_name(value: Any, *attributes: str) -> str | None:
    """The first of these attributes that is a string, if no code of the user's runs to find out."""
    if isinstance(value, ModuleType):  # it may have a ``__getattr__`` among its variables
        names: Iterable[Any] = map(value.__dict__.get, attributes)
    else:
        names = (getattr(value, a, None) for a in attributes) if reads_natively(type(value)) else ()
    return next((name for name in names if isinstance(name, str) and name), None)


def lookup_slot(obj: Any, name: str) -> Any:
    """What a slot of an object holds, or ABSENT, past a ``__getattr__`` in Python."""
    try:
        return object.__getattribute__(obj, name)
    except AttributeError:
        return ABSENT


def lookup_instance(obj: Any, name: str) -> Any:
    """The value that the instance itself holds under ``name``, or ABSENT."""
    try:
        return object.__getattribute__(obj, "__dict__").get(name, ABSENT)
    except AttributeError:
        return ABSENT


def lookup_item(container: Any, key: Any) -> Any:
    """An item of a dict or sequence, or ABSENT. Subclasses' own ``__getitem__`` does not run."""
    if isinstance(container, dict):
        return dict.get(container, key, ABSENT)
    if isinstance(container, list):
        return list.__getitem__(container, key) if key < len(container) else ABSENT
    if isinstance(container, tuple):
        return tuple.__getitem__(container, key) if key < len(container) else ABSENT
    return container[key] if key < len(container) else ABSENT


def cell_content(cell: CellType) -> Any:
    """The content of a closure cell, or ABSENT if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def proxied(view: MappingProxyType[Any, Any]) -> Any:
    """The mapping that a read-only view shows, such as the dictionary of a class behind its ``__dict__``."""
    return gc.get_referents(view)[0]


#: what a weak reference points to, past a ``__call__`` in Python (``WeakMethod``); None if it is gone
referent = weakref.ref.__call__


class Step(NamedTuple):
    """How one kind of step prints, is fetched, and is written as code.

    In the code ``p`` stands for the parent (in the step ``instance`` for its ``__dict__``), ``k`` for the
    key's literal and ``name`` for the key as it is. It may raise where there is nothing; ``fetch`` gives
    ABSENT there.
    """

    source: Callable[[str, Any], str]
    fetch: Callable[[Any, Any], Any]
    code: str


STEPS: dict[str, Step] = {
    "instance": Step(lambda p, k: f"{p}.{k}", lookup_instance, "{p}[{k}]"),
    "attribute": Step(lambda p, k: f"{p}.{k}", lambda o, k: getattr(o, k, ABSENT), "{p}.{name}"),
    "slot": Step(lambda p, k: f"{p}.{k}", lookup_slot, "lookup_slot({p}, {k})"),
    "key": Step(lambda p, k: f"{p}[{k!r}]", lookup_item, "{p}[{k}]"),
    "item": Step(
        lambda p, k: f"{p}[{k!r}]", lookup_item, "lookup_item({p}, {k})"
    ),  # past a __getitem__ in Python
    "index": Step(lambda p, k: f"{p}[{k!r}]", lookup_item, "{p}[{k}]"),
    "global": Step(lambda p, k: str(k), lookup_item, "{p}[{k}]"),
    "cell": Step(lambda p, k: str(k), lambda o, k: cell_content(o), "{p}.cell_contents"),
    "closure": Step(
        lambda p, k: f"{p}.__closure__[{k}]", lambda o, k: o.__closure__[k], "{p}.__closure__[{k}]"
    ),
    "default": Step(
        lambda p, k: f"{p}.__defaults__[{k}]", lambda o, k: o.__defaults__[k], "{p}.__defaults__[{k}]"
    ),
    "referent": Step(
        lambda p, k: f"{p}()",
        lambda o, k: referent(o) if isinstance(o, weakref.ref) else ABSENT,
        "referent({p})",
    ),
    "reference": Step(lambda p, k: f"weakref.ref({p})", lambda o, k: weakref.ref(o), "ref({p})"),
    "proxied": Step(
        lambda p, k: p,
        lambda o, k: proxied(o) if isinstance(o, MappingProxyType) else ABSENT,
        "proxied({p})",
    ),
    "typeattr": Step(lambda p, k: f"{p}.{k}", lookup_type, "lookup_type({p}, {k})"),
}


@dataclass(frozen=True, eq=False, slots=True)
class Path:
    """A way to a value: a root (``parent`` is None) or a step from another path.

    ``key`` of a root is its printed name; a root with a ``root_object`` is that object, that is known when
    the trace is made.
    """

    parent: Path | None
    kind: str
    key: Any
    root_object: Any = ABSENT

    def step(self, kind: str, key: Any) -> Path:
        """One step further."""
        return Path(self, kind, key)

    @property
    def source(self) -> str:
        """The path as the user would write it."""
        if self.parent is None:
            return str(self.key)
        grand = self.parent
        if grand.kind == "instance" and grand.key in MEMBER_DICTS and grand.parent is not None:
            parent = grand.parent.source
            return f"{parent}[{self.key}]" if str(self.key).isdigit() else f"{parent}.{self.key}"
        return STEPS[self.kind].source(self.parent.source, self.key)

    def fetch(self, roots: dict[str, Any]) -> Any:
        """The value now, or ABSENT; ``roots`` are the values of the roots ``args`` and ``kwargs``."""
        if self.parent is None:
            return roots[self.key] if self.root_object is ABSENT else self.root_object
        parent = self.parent.fetch(roots)
        return ABSENT if parent is ABSENT else STEPS[self.kind].fetch(parent, self.key)

    @property
    def keys(self) -> list[Any]:
        """The keys from the root to here, the root's name included, member dictionaries left out."""
        own = [] if self.kind == "instance" and self.key in MEMBER_DICTS else [self.key]
        return own if self.parent is None else [*self.parent.keys, *own]


def root(name: str) -> Path:
    """A root whose value comes with each call (``args``, ``kwargs``)."""
    return Path(None, "root", name)


def object_root(name: str, obj: Any) -> Path:
    """A root that stands for one object (the compiled function, a class, a module's globals)."""
    return Path(None, "root", name, obj)


def comes_with_arguments(path: Path) -> bool:
    """Whether a path begins at the arguments of the call."""
    while path.parent is not None:
        path = path.parent
    return path.root_object is ABSENT


def is_weak(path: Path) -> bool:
    """Whether a path goes through a weak reference, which does not keep alive what it leads to."""
    while path.parent is not None:
        if path.kind == "referent":
            return True
        path = path.parent
    return False
