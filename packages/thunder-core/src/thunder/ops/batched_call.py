"""A call of one example with batched arguments, as batching rules see it: values of ``Operator.batch``.

    def over_dims(c: BatchedCall) -> Any:
        return c.sym(c.a, shifted(c.dims))

    sum = primitive("sum", …, batch=over_dims)

A rule computes the results of a call for all examples. Of a batched tensor the first dimension is the batch;
the other dimensions are those of one example. Each tensor that the rule returns is batched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.primitive_names import prims

__all__ = ["BatchRule", "BatchedCall", "BatchingRefused", "moved", "shifted"]


class BatchingRefused(OperatorError):
    """What ``torch.vmap`` refuses; other errors of a rule of core mean that it does not apply."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchedCall:
    """A call that is batched.

    ``arguments`` are those of the operator by name, in their order; a batched tensor has the batch as its
    first dimension, and its name is in ``batched``. Arguments are attributes too: ``c.dims``. ``size`` is the
    number of examples, and ``output`` the result for one example: proxies that no call computes.
    ``randomness`` is that of ``torch.vmap``.
    """

    sym: Symbol
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    arguments: Mapping[str, Any]
    batched: Set[str]
    size: int
    output: Any
    randomness: str

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(f"the operator has no argument {name!r}") from None

    def is_batched(self, value: Any) -> bool:
        """Return whether a value is a batched tensor."""
        return isinstance(value, TensorProxy) and value.name in self.batched

    def rank(self, value: TensorProxy) -> int:
        """Return the number of dimensions of a tensor for one example."""
        return len(value.shape) - self.is_batched(value)

    def shape(self, value: TensorProxy) -> tuple[int, ...]:
        """Return the shape of a tensor for one example."""
        return tuple(value.shape[1:] if self.is_batched(value) else value.shape)

    def full(self, value: Any) -> Any:
        """Return a tensor with the batch as its first dimension, expanded if it has none; or a number."""
        if not isinstance(value, TensorProxy) or self.is_batched(value):
            return value
        shape = (self.size, *value.shape)
        return prims.broadcast_in_dim(value, shape, tuple(range(1, len(shape))))

    def with_rank(self, value: TensorProxy, rank: int) -> TensorProxy:
        """Return a tensor whose examples have at least ``rank`` dimensions, new ones in front of theirs."""
        missing = rank - self.rank(value)
        if missing <= 0 or not self.is_batched(value):
            return value
        return prims.reshape(value, (self.size, *(1,) * missing, *value.shape[1:]))  # type: ignore[no-any-return]

    def again(self, **changes: Any) -> Any:
        """Call the operator with some arguments changed."""
        arguments = {**self.arguments, **changes}
        names = list(arguments)
        args = [arguments[name] for name in names[: len(self.args)]]
        return self.sym(*args, **{name: arguments[name] for name in names[len(self.args) :]})


#: a function that computes the results of a call for all examples; NotImplemented where it cannot
BatchRule = Callable[[BatchedCall], Any]


def arguments_of(sym: Symbol, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name; those of ``*args`` under that name."""
    if sym.meta is None:
        return dict(kwargs)
    parameters = list(inspect.signature(sym.meta).parameters.values())
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return {parameters[0].name: args, **kwargs}
    return {**dict(zip([p.name for p in parameters], args, strict=False)), **kwargs}


def shifted(dims: Iterable[int]) -> tuple[int, ...]:
    """Return dimensions of an example, which are not negative, as those of the batched tensor."""
    return tuple(d + 1 for d in dims)


def moved(x: TensorProxy, source: int, destination: int) -> TensorProxy:
    """Return a tensor with one dimension at another position; both may be negative."""
    rank = len(x.shape)
    source, destination = source % rank, destination % rank
    if source == destination:
        return x
    order = [d for d in range(rank) if d != source]
    order.insert(destination, source)
    return prims.transpose(x, tuple(order))  # type: ignore[no-any-return]
