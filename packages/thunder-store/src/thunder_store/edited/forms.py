"""What two calls have in common whose values have other names: canonical forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from thunder.core.entries import BoundSymbol, TensorProxy
from thunder.core.proxies import Proxy
from thunder.core.pytree import tree_flatten_with_dataclass

__all__ = ["canonical", "is_value", "key_of", "structure", "type_of", "values_in"]


def is_value(x: Any) -> bool:
    """Return whether a leaf is a value of a program."""
    return isinstance(x, TensorProxy | Proxy)


def values_in(tree: Any) -> Iterator[Any]:
    """Yield the values in a tree, in order."""
    return (x for x in tree_flatten_with_dataclass(tree)[0] if is_value(x))


def type_of(p: Any) -> str:
    """Return the type of a value as programs print it."""
    return str(p.type_string())


def structure(tree: Any, of_value: Any) -> Any:
    """Return a tree as tuples and texts that compare equal, with ``of_value(p)`` for each value."""
    if is_value(tree):
        return of_value(tree)
    if isinstance(tree, tuple | list):  # a printed text has the named tuples of torch as tuples
        return "list" if isinstance(tree, list) else "tuple", *(structure(x, of_value) for x in tree)
    if type(tree) is dict:
        return "dict", *((repr(k), structure(v, of_value)) for k, v in tree.items())
    if isinstance(tree, float):
        return "float", tree.hex()
    leaves, spec = tree_flatten_with_dataclass(tree)
    if spec.is_leaf:
        return type(tree).__name__, repr(tree)
    return str(spec), *(structure(x, of_value) for x in leaves)


def key_of(bsym: BoundSymbol) -> Any:
    """Return what a call has in common with one that computes the same of the same values, by name."""

    def named(p: Any) -> Any:
        return p.name, type_of(p)

    return bsym.sym.id, structure((bsym.args, bsym.kwargs, bsym.output), named)


class _Numbers:
    """Numbers values in the order in which they are met."""

    def __init__(self, first: Iterable[Any] = ()) -> None:
        self.known: dict[str, int] = {}
        for p in first:
            self(p)

    def __call__(self, p: Any) -> Any:
        return self.known.setdefault(p.name, len(self.known)), type_of(p)


def canonical(bsym: BoundSymbol) -> Any:
    """Return a call with its decomposition, without the names of values."""
    numbers = _Numbers(values_in((bsym.args, bsym.kwargs)))
    return _form(bsym, numbers), _decomposition(bsym.subsymbols, numbers), structure(bsym.output, numbers)


def _form(bsym: BoundSymbol, numbers: _Numbers) -> Any:
    # whether a write is one under gradients depends on the modes around the call
    kwargs = {k: v for k, v in bsym.kwargs.items() if k != "grad_enabled"}
    return bsym.sym.id, structure((bsym.args, kwargs), numbers)


def _decomposition(parts: Iterable[BoundSymbol], numbers: _Numbers) -> Any:
    return tuple(
        (_form(part, numbers), structure(part.output, numbers), _decomposition(part.subsymbols, numbers))
        for part in parts
    )
