"""Data-dependent errors: which calls may raise for the values in their arguments.

Errors about shapes, dtypes and devices are raised while a program is traced. Operators whose rows have one of
the tags below read the values, and one without a row may read them too.
"""

from __future__ import annotations

from typing import Final

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.operator import row_of

__all__ = ["checks_values", "has_opaque", "is_opaque", "may_raise_on_data"]

_BY_VALUES: Final = frozenset({OpTags.RAISES_ON_DATA, OpTags.RAISES_BY_PARTS, OpTags.FALLBACK})

#: the statement of an opaque callable (``thunder.frontend.opaque_calls``)
RUN_OPAQUE: Final = "prims.run_opaque"


def may_raise_on_data(bsym: BoundSymbol, *, at_its_place: bool = False) -> bool:
    """Return whether a call, or one of its subsymbols, may raise for values of tensors.

    ``at_its_place``: while it runs, so that the program goes on. An assertion on a GPU is raised later, and
    after it the GPU runs nothing more in this process.
    """
    if not bsym.tags.isdisjoint(_BY_VALUES):
        return not (at_its_place and OpTags.ASSERTS_ON_GPU in bsym.tags and _is_on_gpu(bsym))
    if OpTags.DIVIDES in bsym.tags:
        return _is_exact(bsym.output) and isinstance(bsym.args[1], TensorProxy)
    return is_opaque(bsym) or any(
        may_raise_on_data(part, at_its_place=at_its_place) for part in bsym.subsymbols
    )


def _is_on_gpu(bsym: BoundSymbol) -> bool:
    tensors = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    return bool(tensors) and all(p.device.type == "cuda" for p in tensors)


def checks_values(bsym: BoundSymbol) -> bool:
    """Return whether an operator checks values that the calls in it do not, so that they compute on."""
    return OpTags.RAISES_ON_DATA in bsym.tags and bool(bsym.subsymbols)


def has_opaque(bsym: BoundSymbol) -> bool:
    """Return whether a call, or one of its decomposition, runs code that is neither torch's nor thunder's."""
    return is_opaque(bsym) or any(map(has_opaque, bsym.subsymbols))


def is_opaque(bsym: BoundSymbol) -> bool:
    """Return whether a call runs code that is neither torch's nor thunder's."""
    symbol = bsym.sym
    if symbol.id == RUN_OPAQUE:
        return True
    if bsym.subsymbols or not bsym.flat_proxy_outs:
        return False
    row = row_of(symbol)
    return row is None or (row.module is None and not symbol.id.startswith("torch."))


def _is_exact(x: object) -> bool:
    return isinstance(x, TensorProxy) and not x.dtype.is_inexact
