"""Proxies among the leaves of pytrees: collected, replaced, and as keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from thunder.base.errors import TraceError
from thunder.base.pytree import tree_flatten_with_dataclass, tree_unflatten
from thunder.ir.proxies import Proxy, TensorProxy, Variable, variableify
from thunder.ir.symbolic_numbers import SymbolicNumber


def proxies_in(tree: Any) -> tuple[Any, ...]:
    """Return the proxies among the leaves of a pytree, dataclasses included, in order."""
    proxies: list[Any] = []
    _collect_proxies(tree, proxies)
    return tuple(proxies)


#: types that hold no proxy, and of which most arguments are
PLAIN = frozenset({type(None), bool, int, float, complex, str, torch.dtype, torch.device, type(...)})


def _collect_proxies(tree: Any, proxies: list[Any]) -> None:
    # Every pass needs the proxies of every call, so the common cases come first and build no spec.
    kind = type(tree)
    if kind in PLAIN:
        return
    if kind is TensorProxy:
        proxies.append(tree)
    elif isinstance(tree, (TensorProxy, Proxy)):
        if isinstance(tree, SymbolicNumber):
            proxies.extend(tree.roots)
        else:
            proxies.append(tree)
    elif kind is slice:  # a leaf of pytrees, whose bounds may be symbolic sizes
        _collect_proxies((tree.start, tree.stop, tree.step), proxies)
    elif kind is tuple or kind is list or kind is dict:
        for item in tree.values() if kind is dict else tree:
            kind = type(item)
            if kind is TensorProxy:
                proxies.append(item)
            elif kind not in PLAIN:
                _collect_proxies(item, proxies)
    else:
        leaves, spec = tree_flatten_with_dataclass(tree)
        if not spec.is_leaf:
            for leaf in leaves:
                _collect_proxies(leaf, proxies)


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Return a pytree, dataclasses included, with ``fn`` of each leaf that may be a proxy."""
    kind = type(tree)
    if kind in PLAIN:
        return tree
    if kind is TensorProxy:
        return fn(tree)
    if kind is tuple:
        return tuple([x if type(x) in PLAIN else map_leaves(fn, x) for x in tree])
    if kind is list:
        return [x if type(x) in PLAIN else map_leaves(fn, x) for x in tree]
    if kind is dict:
        return {key: map_leaves(fn, x) for key, x in tree.items()}
    leaves, spec = tree_flatten_with_dataclass(tree)
    return tree_unflatten([fn(leaf) for leaf in leaves], spec)


def with_replaced(swap_map: Mapping[Variable, Any], tree: Any) -> Any:
    """Return a pytree, dataclasses included, with its proxies replaced as by :func:`follow`."""
    return map_leaves(partial(follow, swap_map), tree)


def follow(swap_map: Mapping[Variable, Any], leaf: Any) -> Any:
    """Return what replaces a proxy at the end of a chain of replacements; anything else unchanged.

    Raises TraceError for a cycle.
    """
    if type(leaf) is TensorProxy:  # most of them, and most are not replaced
        if Variable(leaf) not in swap_map:
            return leaf
    elif isinstance(leaf, SymbolicNumber):
        leaf.refuse_other_sizes({variable.name: value for variable, value in swap_map.items()})
        return leaf
    seen: set[str] = set()
    while isinstance(leaf, TensorProxy | Proxy):
        replacement = swap_map.get(Variable(leaf), leaf)
        if replacement is leaf:
            break
        if leaf.name in seen:
            raise TraceError(f"the replacement of {leaf.name} leads back to itself")
        seen.add(leaf.name)
        if isinstance(replacement, (TensorProxy, Proxy)) and replacement.name == leaf.name:
            return replacement  # the same value with other metadata
        leaf = replacement
    return leaf


def hashable(leaf: Any) -> Any:
    """Return a key for a leaf: proxies by name, constants with their types, other objects by id."""
    if isinstance(leaf, TensorProxy | Proxy):
        return variableify(leaf)
    if isinstance(leaf, float):  # nan equals nan, 0.0 and -0.0 differ
        return (float, leaf.hex())
    if type(leaf) is slice:  # before CPython 3.12 slices have no hash, and sizes as bounds never have
        return (slice, *(hashable(bound) for bound in (leaf.start, leaf.stop, leaf.step)))
    try:
        hash(leaf)
    except TypeError:
        return (type(leaf), id(leaf))
    return (type(leaf), leaf)
