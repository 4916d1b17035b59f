"""Provenance: paths from the roots of a call to a value.

Roots are the arguments, the function, its globals. A path prints as the user would write it
(``self.layers[0].weight``), fetches its value, and is translated to code that does. Each kind of step is one
row of :data:`STEPS`.
"""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType, MappingProxyType, ModuleType, WrapperDescriptorType
from typing import Any, Final, Literal, NamedTuple

import torch

from thunder.base.iterator_parts import part_of_iterator


class _Absent:
    """The type of :data:`ABSENT`."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()
"""The result of fetching a path that leads to nothing."""

MEMBER_DICTS = frozenset({"_modules", "_parameters", "_buffers"})
"""Dictionaries of ``torch.nn.Module`` whose items users read as attributes. Paths omit them."""


def lookup_type(cls: type, name: str) -> Any:
    """Return the raw value under ``name`` along ``cls.__mro__``, or ABSENT."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def reads_natively(cls: type) -> bool:
    """Return whether reading an attribute of an instance runs no Python code of its class."""
    is_native = isinstance(cls.__getattribute__, WrapperDescriptorType)
    return is_native and lookup_type(cls, "__getattr__") is ABSENT


def own_name(value: Any, *attributes: str) -> str | None:
    """Return the first of these attributes that is a string, or None; runs no user code."""
    if isinstance(value, ModuleType):  # it may have a ``__getattr__`` among its variables
        names: Iterable[Any] = map(value.__dict__.get, attributes)
    else:
        names = (getattr(value, a, None) for a in attributes) if reads_natively(type(value)) else ()
    return next((name for name in names if isinstance(name, str) and name), None)


def lookup_slot(obj: Any, name: str) -> Any:
    """Return the value of a slot of an object, or ABSENT; skips a ``__getattr__`` in Python."""
    try:
        return object.__getattribute__(obj, name)
    except AttributeError:
        return ABSENT


def lookup_instance(obj: Any, name: str) -> Any:
    """Return the value in the instance's own ``__dict__`` under ``name``, or ABSENT."""
    try:
        return object.__getattribute__(obj, "__dict__").get(name, ABSENT)
    except AttributeError:
        return ABSENT


def lookup_item(container: Any, key: Any) -> Any:
    """Return an item of a dict or sequence, or ABSENT."""
    if isinstance(container, dict):
        return dict.get(container, key, ABSENT)
    if isinstance(container, tuple):
        return tuple.__getitem__(container, key) if key < len(container) else ABSENT
    return container[key] if key < len(container) else ABSENT


def content_of(container: Any) -> Any:
    """Return the content of a container as a plain dict or list, in its order; no method of its class runs.

    Raises TypeError for an object of another class.
    """
    if isinstance(container, OrderedDict):
        return {key: dict.__getitem__(container, key) for key in OrderedDict.__iter__(container)}
    if isinstance(container, dict):
        return dict.copy(container)
    if isinstance(container, list):
        return list.copy(container)
    if isinstance(container, deque):
        return list(deque.__iter__(container))
    return list(set.__iter__(container))


def cell_content(cell: CellType) -> Any:
    """Return the content of a closure cell, or ABSENT if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def proxied(view: MappingProxyType[Any, Any]) -> Any:
    """Return the mapping of a read-only view, such as a class's dictionary."""
    return gc.get_referents(view)[0]


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return an alias of the class torch.Tensor, which requires grad if the tensor does."""
    outside = torch.is_grad_enabled()
    try:
        torch._C._set_grad_enabled(True)
        return torch.Tensor.as_subclass(tensor, torch.Tensor)
    finally:
        torch._C._set_grad_enabled(outside)


def outer_metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what torch tells of a tensor whose class or layout computes: sizes, and texts of the rest.

    The sizes of a nested tensor are those of its parts. The last are the names of its attributes that hide
    those of its class.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_nested and tensor.layout is torch.strided:
            shape: Any = tuple(map(tuple, tensor._nested_tensor_size().tolist()))
        else:
            shape = tuple(n if type(n) is int else str(n) for n in tensor.shape)
        rest = (tensor.dtype, tensor.device, tensor.layout, tensor.is_quantized)
        hiding = sorted(name for name in tensor.__dict__ if lookup_type(type(tensor), name) is not ABSENT)
        return shape, *map(str, rest), tensor.requires_grad, tuple(hiding)


#: the referent of a weak reference, or None; skips a ``__call__`` in Python (``WeakMethod``)
referent = weakref.ref.__call__


class PathStep(NamedTuple):
    """The three forms of one kind of step: its text, its function, and its code.

    In the code ``p`` is the parent (in the step ``instance`` the parent's ``__dict__``), ``k`` the literal of
    the key and ``name`` the key itself. The code may raise where nothing is found; ``fetch`` returns ABSENT
    there.
    """

    source: Callable[[str, Any], str]
    fetch: Callable[[Any, Any], Any]
    code: str


def key_text(key: Any) -> str:
    """Return a key as texts show it: a tensor (the state of an optimizer has such keys) without data."""
    return f"<{type(key).__name__} {tuple(key.shape)}>" if isinstance(key, torch.Tensor) else repr(key)


#: the kinds of steps, and "root"
StepKind = (
    Literal["root", "instance", "attribute", "slot", "key", "content", "index", "global"]
    | Literal["cell", "closure", "default", "referent", "reference", "proxied", "typeattr", "array", "cached"]
    | Literal["plain", "outer", "iterated", "length", "strides", "called"]
)

STEPS: dict[StepKind, PathStep] = {
    "instance": PathStep(lambda p, k: f"{p}.{k}", lookup_instance, "{p}[{k}]"),
    "attribute": PathStep(lambda p, k: f"{p}.{k}", lambda o, k: getattr(o, k, ABSENT), "{p}.{name}"),
    "slot": PathStep(lambda p, k: f"{p}.{k}", lookup_slot, "lookup_slot({p}, {k})"),
    "key": PathStep(lambda p, k: f"{p}[{key_text(k)}]", lookup_item, "{p}[{k}]"),
    "content": PathStep(lambda p, k: p, lambda o, k: content_of(o), "content_of({p})"),
    "index": PathStep(lambda p, k: f"{p}[{k!r}]", lookup_item, "{p}[{k}]"),
    "global": PathStep(lambda p, k: str(k), lookup_item, "{p}[{k}]"),
    "cell": PathStep(lambda p, k: str(k), lambda o, k: cell_content(o), "{p}.cell_contents"),
    "closure": PathStep(
        lambda p, k: f"{p}.__closure__[{k}]", lambda o, k: o.__closure__[k], "{p}.__closure__[{k}]"
    ),
    "default": PathStep(
        lambda p, k: f"{p}.__defaults__[{k}]", lambda o, k: o.__defaults__[k], "{p}.__defaults__[{k}]"
    ),
    "referent": PathStep(
        lambda p, k: f"{p}()",
        lambda o, k: referent(o) if isinstance(o, weakref.ref) else ABSENT,
        "referent({p})",
    ),
    "reference": PathStep(lambda p, k: f"weakref.ref({p})", lambda o, k: weakref.ref(o), "ref({p})"),
    "proxied": PathStep(
        lambda p, k: p,
        lambda o, k: proxied(o) if isinstance(o, MappingProxyType) else ABSENT,
        "proxied({p})",
    ),
    "typeattr": PathStep(lambda p, k: f"{p}.{k}", lookup_type, "lookup_type({p}, {k})"),
    "plain": PathStep(lambda p, k: p, lambda o, k: plain_tensor(o), "plain_tensor({p})"),
    "outer": PathStep(lambda p, k: p, lambda o, k: outer_metadata(o), "outer_metadata({p})"),
    "iterated": PathStep(
        lambda p, k: f"{p}.{k}" if isinstance(k, str) and k.isidentifier() else p,
        lambda o, k: part_of_iterator(o, k, ABSENT),
        "part_of_iterator({p}, {k}, ABSENT)",
    ),
    "length": PathStep(lambda p, k: f"len({p})", lambda o, k: len(o), "len({p})"),
    "strides": PathStep(lambda p, k: f"{p}.stride()", lambda o, k: o.stride(), "{p}.stride()"),
    "array": PathStep(lambda p, k: p, lambda o, k: torch.from_numpy(o), "from_numpy({p})"),
    "called": PathStep(lambda p, k: f"{k.__name__}({p})", lambda o, k: k(o), "{k}({p})"),
    "cached": PathStep(lambda p, k: p, lambda o, k: o(), "{p}()"),  # of a `CacheQuery`
}


@dataclass(eq=False, slots=True)  # not frozen: a program has thousands, made in a quarter of the time
class Path:
    """A path to a value, never changed: a root (``parent`` is None) or a step from another path.

    ``key`` of a root is its printed name; ``root_object`` of a root is its object, if that is fixed when the
    program is traced.
    """

    parent: Path | None
    kind: StepKind
    key: Any
    root_object: Any = ABSENT

    def step(self, kind: StepKind, key: Any) -> Path:
        """Return the path that is one step longer.

        A dictionary of members has one path, `vars(self)["_modules"]` and `self._modules`.
        """
        if kind == "key" and self.kind == "attribute" and self.key == "__dict__" and key in MEMBER_DICTS:
            return Path(self.parent, "instance", key)
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

    @property
    def place(self) -> tuple[Any, ...]:
        """Return a key of the place that the path leads to; equal sources may lead to other places."""
        steps: list[Any] = []
        path = self
        while path.parent is not None:
            steps += (path.kind, path.key if type(path.key) in (str, int) else id(path.key))
            path = path.parent
        return path.key, id(path.root_object), *steps

    def fetch(self, roots: dict[str, Any]) -> Any:
        """Return the current value, or ABSENT; ``roots`` has the values of other roots."""
        steps: list[Path] = []
        path = self
        while path.parent is not None:
            steps = [path, *steps]
            path = path.parent
        value = roots[path.key] if path.root_object is ABSENT else path.root_object
        for step in steps:
            if value is ABSENT:
                break
            value = STEPS[step.kind].fetch(value, step.key)
        return value

    @property
    def keys(self) -> list[Any]:
        """The keys from the root on, its name included, and without member dictionaries."""
        keys: list[Any] = []
        path: Path | None = self
        while path is not None:
            if path.kind not in ("array", "called") and (
                path.kind != "instance" or path.key not in MEMBER_DICTS
            ):
                keys = [path.key, *keys]
            path = path.parent
        return keys


def root(name: str) -> Path:
    """Return a root whose value comes with each call (``args``, ``kwargs``)."""
    return Path(None, "root", name)


def object_root(name: str, obj: Any) -> Path:
    """Return the root of one object: the compiled function, a class, a module's globals."""
    return Path(None, "root", name, obj)


def comes_with_arguments(path: Path) -> bool:
    """Return whether a path begins at the arguments of the call."""
    while path.parent is not None:
        path = path.parent
    return path.root_object is ABSENT


def is_weak(path: Path) -> bool:
    """Return whether a path contains a weak reference, which does not keep its value alive."""
    while path.parent is not None:
        if path.kind == "referent":
            return True
        path = path.parent
    return False
