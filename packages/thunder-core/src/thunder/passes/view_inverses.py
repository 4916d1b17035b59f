"""What a write through a view does to the tensor it is a view of: one rule a primitive.

A rule takes the call that made the view, the base, and the view's new value, and returns the base's new
value.

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

Rule = Callable[[BoundSymbol, TensorProxy, TensorProxy], TensorProxy]


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


def _diagonal(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.diagonal_scatter(base, value, *call.args[1:])  # type: ignore[no-any-return]


def _window(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.as_strided_scatter(base, value, *call.args[1:])  # type: ignore[no-any-return]


def _part(which: int) -> Rule:
    """A write to the real (0) or the imaginary (1) part of a complex base."""

    def rule(call: BoundSymbol, base: TensorProxy, value: TensorProxy) -> TensorProxy:
        pairs = prims.copy_with_setitem(prims.view_as_real(base), (..., which), value)
        return prims.view_as_complex(pairs)  # type: ignore[no-any-return]

    return rule


RULES: dict[str, Rule] = {
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
    "prims.detach": _same,
    "prims.stride_order": _same,
    "prims.conj": lambda call, base, value: prims.conj(value),
    "prims.real": _part(0),
    "prims.imag": _part(1),
    "prims.view_as_real": lambda call, base, value: prims.view_as_complex(value),
    "prims.view_as_complex": lambda call, base, value: prims.view_as_real(value),
    "prims.bitcast": _bits,
}


def written_through(path: Sequence[BoundSymbol], base: TensorProxy, value: TensorProxy) -> TensorProxy:
    """``base`` after ``value`` was written to the view of it that the primitives of ``path`` make."""
    bases = [base]
    for call in path[:-1]:
        bases.append(again(call, bases[-1]))
    for call, whole in zip(reversed(path), reversed(bases), strict=True):
        rule = RULES.get(call.sym.id)
        if rule is None:
            raise UnsupportedProgram(
                f"an in-place operator writes through {call.sym.name}, whose elements thunder cannot place",
                hint="Write to the whole tensor, or use the out-of-place operator.",
            )
        value = rule(call, whole, value)
    return value


def again(call: BoundSymbol, base: TensorProxy) -> Any:
    """The view that ``call`` makes, of another base. A new value may lie in memory otherwise, so no primitive
    insists on its layout.
    """
    if call.sym.id == "prims.view":
        return prims.reshape(base, call.output.shape)
    return call.sym(base, *call.args[1:], **call.kwargs)
