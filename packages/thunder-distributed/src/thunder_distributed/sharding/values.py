"""Defines what the rule of an operator receives: the values of a divided program, and their layouts.

A rule is a function `(bsym, values)` that records what computes the call from parts, and returns each result
with its layout. It raises NoRule, with the reason, where results would not be parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from thunder import TensorProxy
from thunder.core.pytree import tree_flatten_with_dataclass, tree_unflatten
from thunder.core.symbol import BoundSymbol

from .shard import Shard

__all__ = [
    "NoRule",
    "Result",
    "Rule",
    "Values",
    "arguments",
    "called",
    "common",
    "each",
    "evenly",
    "mixes",
    "operand",
    "sharded",
    "tensors",
]

#: what this process has of a result, and its layout; None for a replicated one
Result = tuple[Any, Shard | None]


class NoRule(Exception):
    """A call cannot be computed from parts; its text is the reason."""


class Values(Protocol):
    """The values of a program, by those of the original one."""

    #: whether keys and values of attention go around a ring
    rotates: bool

    def local(self, p: Any) -> Any:
        """Return what this process has of a value."""

    def full(self, p: Any) -> Any:
        """Return all of a value, which is replicated."""

    def shard_of(self, p: Any) -> Shard | None:
        """Return how a value is divided; None for a replicated one, and for what is not a tensor."""

    def shard(self, p: Any, layout: Shard) -> Any:
        """Return the part of this process of a value in a layout."""

    def replicate(self, p: Any, group: str) -> Any:
        """Return the full value, for parts of results: its gradient is summed over the processes."""

    def reduce(self, partial: Any, layout: Shard) -> Result:
        """Return the sum of the terms that processes have computed from operands in a layout."""


Rule = Callable[[BoundSymbol, Values], list[Result]]


def arguments(bsym: BoundSymbol) -> dict[str, Any]:
    """Return the arguments of a call by name, in order."""
    args, kwargs = bsym.sym.normalize(*bsym.args, **bsym.kwargs)
    code = bsym.sym.meta.__code__
    return {**dict(zip(code.co_varnames, args, strict=False)), **kwargs}


def called(bsym: BoundSymbol, form: Callable[[Any], Any]) -> Any:
    """Record the call with each tensor among its arguments in another form."""
    leaves, spec = tree_flatten_with_dataclass((bsym.args, bsym.kwargs))
    leaves = [form(x) if isinstance(x, TensorProxy) else x for x in leaves]
    args, kwargs = tree_unflatten(leaves, spec)
    return bsym.sym(*args, **kwargs)


def each(results: Any, layout: Shard) -> list[Result]:
    """Return all results of a call with one layout."""
    return [(result, layout) for result in (results if isinstance(results, tuple) else (results,))]


def tensors(bsym: BoundSymbol) -> list[Any]:
    """Return the tensors among the arguments of a call."""
    return [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]


def sharded(bsym: BoundSymbol, values: Values) -> Iterator[tuple[Any, Shard]]:
    """Yield the operands that are divided, with their layouts."""
    for p in tensors(bsym):
        layout = values.shard_of(p)
        if layout is not None:
            yield p, layout


def operand(bsym: BoundSymbol, values: Values, *, even: bool = True) -> Shard:
    """Return the layout of the first operand."""
    layout = values.shard_of(bsym.args[0])
    if layout is None:
        raise NoRule("an operand besides the first one is divided")
    return evenly(layout) if even else layout


def evenly(layout: Shard) -> Shard:
    """Return a layout. Raises NoRule if parts have elements that the value has not."""
    if not layout.is_even:
        raise NoRule("the parts are not equal")
    return layout


def common(bsym: BoundSymbol, values: Values) -> Shard:
    """Return the layout of the first operand that is divided, in which the others are taken, too."""
    return evenly(next(layout for _, layout in sharded(bsym, values)))


def mixes() -> NoRule:
    """Return the error of an operator along the divided dimension."""
    return NoRule("it computes along the divided dimension")
