"""The inverses of views: the new value of a base whose view was written.

The row of the operator that creates a view has its inverse (``Operator.view``).

    v = prims.slice_prim(x, (0,), (2,), (1,))        # v = x[0:2]
    v.copy_(w)                                    →  x1 = prims.copy_with_setitem(x, (slice(0, 2, 1),), w)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims
from thunder.ops.operator import row_of


def write_through(path: Sequence[BoundSymbol], base: TensorProxy, value: TensorProxy) -> TensorProxy:
    """Return ``base`` after ``value`` was written to its view along ``path``.

    Raises UnsupportedProgram for an operator without an inverse, and OperatorError if elements of the view
    overlap.
    """
    bases = [base]
    for call in path[:-1]:
        bases.append(rerun_view(call, bases[-1]))
    for call, whole in zip(reversed(path), reversed(bases), strict=True):
        row = row_of(call.sym)
        if row is None or row.view is None:
            raise UnsupportedProgram(
                f"an in-place operator writes through {call.sym.name}, whose elements thunder cannot place",
                hint="Write to the whole tensor, or use the out-of-place operator.",
            )
        value = row.view.inverse(call, whole, value)
    return value


def rerun_view(call: BoundSymbol, base: TensorProxy) -> Any:
    """Return the view that a primitive creates, of another base.

    The base may have other strides than the original one, so ``prims.reshape`` replaces ``prims.view``.
    """
    if call.sym.id == "prims.view":
        return prims.reshape(base, call.output.shape)
    return call.sym(base, *call.args[1:], **call.kwargs)
