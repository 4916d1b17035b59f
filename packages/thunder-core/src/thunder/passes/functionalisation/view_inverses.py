"""The inverses of views: the new value of a base whose view was written.

An inverse takes the call that created the view, the base, and the view's new value, and returns the base's
new value.

    v = prims.slice_prim(x, (0,), (2,), (1,))        # v = x[0:2]
    v.copy_(w)                                    →  x1 = prims.copy_with_setitem(x, (slice(0, 2, 1),), w)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims

ViewInverse = Callable[[BoundSymbol, TensorProxy, TensorProxy], TensorProxy]


def _reshaped(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return value if value.shape == base.shape else prims.reshape(value, base.shape)


def _same(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return value


def _broadcast(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    if value.numel() != base.numel():
        raise OperatorError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )
    return _reshaped(call, base, value)


def _permuted(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    permutation: Sequence[int] = call.args[1]
    inverse = tuple(permutation.index(d) for d in range(len(permutation)))
    return prims.transpose(value, inverse)  # type: ignore[no-any-return]


def _sliced(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    _, starts, ends, steps = call.args
    steps = steps or (1,) * len(starts)
    key = tuple(slice(*bounds) for bounds in zip(starts, ends, steps, strict=True))
    return prims.copy_with_setitem(base, key, value)  # type: ignore[no-any-return]


def _selected(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    _, index, dim = call.args
    index = index if index.dtype is int64 else prims.convert_element_type(index, int64)
    return prims.index_put(base, [*[None] * dim, index], value, False)  # type: ignore[no-any-return]


def _bits(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.bitcast(value, base.dtype)  # type: ignore[no-any-return]


def _detached(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.detach(value) if value.requires_grad else value


def _diagonal(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.diagonal_scatter(base, value, *call.args[1:])  # type: ignore[no-any-return]


def _window(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.as_strided_scatter(base, value, *call.args[1:])  # type: ignore[no-any-return]


def _part(which: int) -> ViewInverse:
    """Return the inverse of the view of the real (0) or imaginary (1) part of a base."""

    def inverse(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
        pairs = prims.copy_with_setitem(prims.view_as_real(base), (..., which), value)
        return prims.view_as_complex(pairs)  # type: ignore[no-any-return]

    return inverse


INVERSES: dict[str, ViewInverse] = {
    "prims.reshape": _reshaped,
    "prims.view": _reshaped,
    "prims.squeeze": _reshaped,
    "prims.broadcast_in_dim": _broadcast,
    "prims.transpose": _permuted,
    "prims.slice_prim": _sliced,
    "prims.dynamic_select": _selected,
    "prims.diagonal": _diagonal,
    "prims.as_strided": _window,
    "prims.shallow_copy": _same,
    "prims.detach": _detached,
    "prims.stride_order": _same,
    "prims.conj": lambda call, base, value: prims.conj(value),
    "prims.real": _part(0),
    "prims.imag": _part(1),
    "prims.view_as_real": lambda call, base, value: prims.view_as_complex(value),
    "prims.view_as_complex": lambda call, base, value: prims.view_as_real(value),
    "prims.bitcast": _bits,
}


def write_through(path: Sequence[BoundSymbol], base: TensorProxy, value: TensorProxy) -> TensorProxy:
    """Return ``base`` after ``value`` was written to its view along ``path``.

    Raises UnsupportedProgram for a primitive without an inverse, and OperatorError if elements of the view
    overlap.
    """
    bases = [base]
    for call in path[:-1]:
        bases.append(rerun_view(call, bases[-1]))
    for call, whole in zip(reversed(path), reversed(bases), strict=True):
        inverse = INVERSES.get(call.sym.id)
        if inverse is None:
            raise UnsupportedProgram(
                f"an in-place operator writes through {call.sym.name}, whose elements thunder cannot place",
                hint="Write to the whole tensor, or use the out-of-place operator.",
            )
        value = inverse(call, whole, value)
    return value


def rerun_view(call: BoundSymbol, base: TensorProxy) -> Any:
    """Return the view that a primitive creates, of another base.

    The base may have other strides than the original one, so ``prims.reshape`` replaces ``prims.view``.
    """
    if call.sym.id == "prims.view":
        return prims.reshape(base, call.output.shape)
    return call.sym(base, *call.args[1:], **call.kwargs)
