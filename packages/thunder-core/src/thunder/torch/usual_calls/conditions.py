"""What the rules ask about arguments, and the tables that they fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from thunder.base import dtypes
from thunder.ir.proxies import TensorProxy

#: a function → the rule for the results of its usual calls
RESULTS: Final[dict[str, Callable[..., Any]]] = {}
#: a function → the predicate for its usual calls, which eager accepts
ACCEPTED: Final[dict[str, Callable[..., bool]]] = {}

REAL: Final = frozenset({dtypes.float32, dtypes.float64})
COMPLEX: Final = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}
REAL_OF: Final = {**{c: r for r, c in COMPLEX.items()}, **{r: r for r in REAL}}


def result_of(x: TensorProxy, shape: Sequence[int], dtype: dtypes.dtype | None = None) -> TensorProxy:
    """Return a result on the device of an argument, by default of its dtype."""
    return TensorProxy(shape=shape, device=x.device, dtype=x.dtype if dtype is None else dtype)


def alike(*tensors: Any, of: Any = REAL) -> bool:
    """Return whether arguments are tensors with elements, on one device and of one dtype among some."""
    first = tensors[0]
    return all(
        isinstance(x, TensorProxy) and x.dtype is first.dtype and x.device is first.device and all(x.shape)
        for x in tensors
    ) and (first.dtype in of)


def lengths(value: Any, count: int) -> tuple[int, ...] | None:
    """Return one positive integer, or one for each of ``count`` dimensions; None for anything else."""
    values = (value,) * count if type(value) is int else value
    is_usual = isinstance(values, tuple | list) and len(values) == count
    return tuple(values) if is_usual and all(type(n) is int and n > 0 for n in values) else None


def dims_of(dim: Any, rank: int) -> tuple[int, ...] | None:
    """Return distinct dimensions of a tensor, as numbers from 0 on; None for anything else."""
    dims = (dim,) if type(dim) is int else dim
    if not isinstance(dims, tuple | list) or not all(type(d) is int and -rank <= d < rank for d in dims):
        return None
    found = tuple(d % rank for d in dims)
    return found if len({*found}) == len(found) else None


def rule(*paths: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter the decorated rule for functions of torch."""

    def add(rule: Callable[..., Any]) -> Callable[..., Any]:
        RESULTS.update(dict.fromkeys(paths, rule))
        return rule

    return add


def are_equal(a: Any, b: Any) -> bool:
    """Return whether arguments are usual tensors of one shape."""
    return alike(a, b) and a.shape == b.shape
