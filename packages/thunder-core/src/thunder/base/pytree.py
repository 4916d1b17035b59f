"""Nested containers taken apart into leaves and a spec, and put together again.

    tree_flatten({"a": (x, None), "b": [y]})   →   [x, None, y], spec

Nodes are tuples, lists, dicts (in insertion order), OrderedDict, defaultdict, deque, namedtuples, torch.Size,
torch's named results (`torch.return_types.max`), and registered types. Everything else is a leaf, None
included, so that an optional argument keeps its place. A subclass of a container is a leaf unless it is
registered: only its author can tell what else it holds, and what its constructor does.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch

from thunder.base.errors import InvalidArgument, RegistrationError

__all__ = [
    "LEAF",
    "TreeSpec",
    "declare_leaf",
    "register_pytree_node",
    "register_pytree_node_dataclass",
    "tree_flatten",
    "tree_flatten_with_dataclass",
    "tree_iter",
    "tree_map",
    "tree_unflatten",
]

_T = TypeVar("_T")

Flatten = Callable[[Any], tuple[Iterable[Any], Hashable]]
Unflatten = Callable[[Hashable, list[Any]], Any]


class TreeSpec:
    """The shape of a tree without its leaves: hashable, comparable, printable.

    `type` is the node's type (None for a leaf), `context` what besides the children is needed to rebuild it
    (the keys of a dict, the `maxlen` of a deque).
    """

    __slots__ = ("children", "context", "num_leaves", "type")

    def __init__(self, type: type | None, context: Hashable, children: tuple[TreeSpec, ...]) -> None:
        self.type = type
        self.context = context
        self.children = children
        self.num_leaves: int = 1 if type is None else sum([child.num_leaves for child in children])

    @property
    def is_leaf(self) -> bool:
        """Whether it is the spec of one leaf."""
        return self.type is None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.num_leaves == other.num_leaves
            and _same_context(self.context, other.context)
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return hash((self.type, self.context, self.children))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inner = ", ".join(map(repr, self.children))
        if self.context is None:
            return f"{self.type.__name__}({inner})"
        return f"{self.type.__name__}[{self.context!r}]({inner})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore_spec, (self.type, self.context, self.children))


LEAF = TreeSpec(None, None, ())
"""The spec of a leaf."""


def _restore_spec(type: type | None, context: Hashable, children: tuple[TreeSpec, ...]) -> TreeSpec:
    return LEAF if type is None else TreeSpec(type, context, children)


def _same_context(a: Hashable, b: Hashable) -> bool:
    # 1, True and 1.0 are equal as dict keys, yet `{1: x}` and `{True: x}` are different programs.
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_context, a, b))
    return a == b


# --- node types


class _Node:
    """The functions that take a type of container apart and rebuild it."""

    __slots__ = ("flatten", "unflatten")

    def __init__(self, flatten: Flatten, unflatten: Unflatten) -> None:
        self.flatten = flatten
        self.unflatten = unflatten


def _defaultdict(context: Any, children: list[Any]) -> defaultdict[Any, Any]:
    factory, keys = context
    return defaultdict(factory, zip(keys, children, strict=True))


_nodes: dict[type, _Node] = {
    tuple: _Node(lambda x: (x, None), lambda _, children: tuple(children)),
    list: _Node(lambda x: (x, None), lambda _, children: children),
    dict: _Node(
        lambda x: (x.values(), tuple(x)),
        lambda keys, children: dict(zip(keys, children, strict=True)),  # type: ignore[call-overload]
    ),
    OrderedDict: _Node(
        lambda x: (x.values(), tuple(x)),
        lambda keys, children: OrderedDict(zip(keys, children, strict=True)),  # type: ignore[call-overload]
    ),
    defaultdict: _Node(lambda x: (x.values(), (x.default_factory, tuple(x))), _defaultdict),
    deque: _Node(
        lambda x: (x, x.maxlen), lambda maxlen, children: deque(children, cast("int | None", maxlen))
    ),
    # A torch.Size holds numbers only. A tree_map that puts something else in its place gets a tuple.
    torch.Size: _Node(
        lambda x: (x, None),
        lambda _, children: (
            torch.Size(children) if all(type(c) is int for c in children) else tuple(children)
        ),
    ),
}

_builtin_nodes = frozenset(_nodes)

#: the usual types of leaves, which are not looked up
_leaf_types: set[type] = {
    *(bool, bytes, complex, float, int, slice, str, type(None), type(...)),
    *(torch.device, torch.dtype, torch.Tensor, torch.nn.Parameter),
}


def declare_leaf(cls: type[_T]) -> type[_T]:
    """Declare that instances of exactly ``cls`` are leaves; a decorator for types of which there are many."""
    _leaf_types.add(cls)
    return cls


def _tuple_subclass(cls: type) -> _Node | None:
    """Return the node of a namedtuple or a named tuple of C, None for other types.

    `torch.return_types.max` is a named tuple of C.
    """
    if not issubclass(cls, tuple):
        return None
    if hasattr(cls, "_fields") and hasattr(cls, "_make"):
        return _Node(lambda x: (x, None), lambda _, children: cls._make(children))
    if hasattr(cls, "n_sequence_fields"):
        return _Node(lambda x: (x, None), lambda _, children: cls(children))
    return None


def _dataclass(cls: type) -> _Node:
    names = tuple(field.name for field in dataclasses.fields(cls))

    def flatten(x: Any) -> tuple[Iterable[Any], Hashable]:
        # A field that was never set (`init=False` without a default, or deleted) stays unset.
        present = tuple(name for name in names if hasattr(x, name))
        return [getattr(x, name) for name in present], present

    def unflatten(present: Any, children: list[Any]) -> Any:
        # `__init__` is not called: it may compute fields from others, and the children are already final.
        # A dataclass that is also a dict fills itself in `__post_init__`, and has no other way to be rebuilt.
        if issubclass(cls, dict):
            return cls(**dict(zip(present, children, strict=True)))
        instance = object.__new__(cls)
        for name, child in zip(present, children, strict=True):
            object.__setattr__(instance, name, child)  # also where the dataclass is frozen
        return instance

    return _Node(flatten, unflatten)


def register_pytree_node(cls: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Register instances of exactly `cls` as nodes.

    `flatten(x)` returns the children and a hashable context; `unflatten(context, children)` rebuilds the
    object. Registering again replaces the earlier pair. Raises RegistrationError for built-in node types.
    """
    if cls in _builtin_nodes:
        raise RegistrationError(f"{cls.__name__} is a pytree node already and cannot be registered again")
    _leaf_types.discard(cls)
    _nodes[cls] = _Node(flatten, unflatten)


def register_pytree_node_dataclass(cls: type[_T]) -> type[_T]:
    """Register instances of the dataclass `cls` as nodes, whose children are the fields.

    Returns `cls`, so that it can be a decorator. Raises RegistrationError if `cls` is not a dataclass.
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise RegistrationError(
            f"{cls!r} is not a dataclass",
            hint="Put @dataclass below @register_pytree_node_dataclass, or use register_pytree_node.",
        )
    _nodes[cls] = _dataclass(cls)
    return cls


def is_builtin_node(cls: type) -> bool:
    """Return whether a type is a container that is a node without registration."""
    return cls in _builtin_nodes or (_nodes.get(cls) is None and _tuple_subclass(cls) is not None)


def registered_node(cls: type) -> tuple[Flatten, Unflatten] | None:
    """Return the functions with which a type was registered as a node, or None."""
    node = None if cls in _builtin_nodes else _nodes.get(cls)
    return None if node is None else (node.flatten, node.unflatten)


def is_unflatten(fn: Any) -> bool:
    """Return whether a function rebuilds a type that was registered as a node."""
    return any(node.unflatten is fn for cls, node in _nodes.items() if cls not in _builtin_nodes)


def with_children(x: _T, children: Iterable[Any]) -> _T:
    """Return a copy of a container that is a node, with other children."""
    node = _node_of(type(x), False)
    assert node is not None, f"{type(x)!r} is a node"
    return node.unflatten(node.flatten(x)[1], list(children))  # type: ignore[no-any-return]


def _node_of(cls: type, dataclasses_too: bool) -> _Node | None:
    node = _nodes.get(cls) or _tuple_subclass(cls)
    if node is None and dataclasses_too and dataclasses.is_dataclass(cls):
        node = _dataclass(cls)
    return node


# --- the functions


def tree_flatten(x: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of `x` from left to right, and its spec; dataclasses are leaves."""
    leaves: list[Any] = []
    return leaves, _flatten(x, leaves, False)


def tree_flatten_with_dataclass(x: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of `x` from left to right, and its spec; dataclasses are nodes."""
    leaves: list[Any] = []
    return leaves, _flatten(x, leaves, True)


def _flatten(x: Any, leaves: list[Any], dataclasses_too: bool) -> TreeSpec:
    cls = type(x)
    node = None if cls in _leaf_types else _node_of(cls, dataclasses_too)
    if node is None:
        leaves.append(x)
        return LEAF
    children, context = node.flatten(x)
    specs = []
    for child in children:
        if type(child) in _leaf_types:
            leaves.append(child)
            specs.append(LEAF)
        else:
            specs.append(_flatten(child, leaves, dataclasses_too))
    return TreeSpec(cls, context, tuple(specs))


def tree_unflatten(leaves: Sequence[Any] | Iterable[Any], spec: TreeSpec) -> Any:
    """Return the tree of shape `spec` with these leaves.

    Raises InvalidArgument unless there are `spec.num_leaves` of them.
    """
    leaves = leaves if isinstance(leaves, (list, tuple)) else list(leaves)
    if len(leaves) != spec.num_leaves:
        raise InvalidArgument(
            f"tree_unflatten needs {spec.num_leaves} leaves and got {len(leaves)}", found={"spec": spec}
        )
    return _unflatten(iter(leaves), spec)


def _unflatten(leaves: Iterator[Any], spec: TreeSpec) -> Any:
    cls = spec.type
    if cls is None:
        return next(leaves)
    children = [next(leaves) if c.type is None else _unflatten(leaves, c) for c in spec.children]
    node = _nodes.get(cls) or _node_of(cls, True)
    assert node is not None, f"the spec holds {cls!r}, which was a node when the tree was flattened"
    return node.unflatten(spec.context, children)


def tree_map(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return the tree with each leaf replaced by `fn(leaf, *leaves of the others)`.

    The leaves of the others are those in the same position. Raises InvalidArgument if the others do not have
    the shape of the first.
    """
    leaves, spec = tree_flatten(tree)
    columns = [leaves]
    for position, other in enumerate(others, start=2):
        column, other_spec = tree_flatten(other)
        if other_spec != spec:
            raise InvalidArgument(
                f"tree_map: the shape of tree {position} differs from that of the first",
                found={"first": spec, f"tree {position}": other_spec},
            )
        columns.append(column)
    return _unflatten(map(fn, *columns), spec)


def tree_iter(x: Any) -> Iterator[Any]:
    """Yield the leaves of `x` from left to right."""
    node = None if type(x) in _leaf_types else _node_of(type(x), False)
    if node is None:
        yield x
        return
    children, _ = node.flatten(x)
    for child in children:
        if type(child) in _leaf_types:
            yield child
        else:
            yield from tree_iter(child)
