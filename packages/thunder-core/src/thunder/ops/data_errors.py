"""Data-dependent errors: the operators that may raise for the values in their arguments.

Errors about shapes, dtypes and devices are raised while a program is traced. These operators read the values:
an index may be out of range, a matrix singular, a probability negative. An operator without a row may read
them too.
"""

from __future__ import annotations

from typing import Final

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.operator import row_of

__all__ = ["checks_values", "has_opaque", "is_opaque", "may_raise_on_data"]

_INDEXED = (
    "prims.gather prims.take prims.take_along_axis prims.scatter prims.scatter_add prims.index_add "
    "prims.index_copy prims.index_put prims.index prims.embedding prims.embedding_renorm "
    "torch.index_fill torch.index_reduce torch.put torch.scatter_reduce torch.masked_scatter "
    "torch.unravel_index torch.searchsorted torch.tensor_split torch.bincount ltorch.repeated_positions "
    "torch.nn.functional.one_hot torch.nn.functional.embedding_bag torch.nn.functional.max_unpool1d "
    "torch.nn.functional.max_unpool2d torch.nn.functional.max_unpool3d"
)
_LOSSES = (
    "torch.nn.functional.nll_loss torch.nn.functional.cross_entropy torch.nn.functional.ctc_loss "
    "torch.nn.functional.binary_cross_entropy torch.nn.functional.gaussian_nll_loss "
    "torch.nn.functional.multi_margin_loss torch.nn.functional.multilabel_margin_loss"
)
_MATRICES = (
    "torch.linalg.cholesky torch.linalg.cholesky_ex torch.cholesky_inverse torch.linalg.inv "
    "torch.linalg.solve torch.linalg.eigh torch.linalg.eigvalsh torch.linalg.svd torch.linalg.svdvals "
    "torch.linalg.pinv torch.linalg.matrix_power torch.linalg.matrix_norm torch.linalg.lstsq torch.norm"
)
_STATISTICS = (
    "prims.bernoulli prims.multinomial prims.normal torch.bernoulli torch.multinomial torch.normal "
    "torch.poisson torch.binomial torch.histc torch.histogram torch.histogramdd torch.quantile "
    "torch.nanquantile torch.istft torch.cov torch.linspace_of_tensors"
)
#: ids of operators; a composite may also raise where one of its subsymbols may
_BY_VALUES: Final = frozenset(f"{_INDEXED} {_LOSSES} {_MATRICES} {_STATISTICS}".split())
#: operators whose kernels for GPUs assert on the device that an index is in range
_ASSERTED = (
    "prims.gather prims.take prims.take_along_axis prims.scatter prims.scatter_add prims.index_add "
    "prims.index_copy prims.index_put prims.index prims.embedding torch.index_fill"
)
_ASSERT_ON_GPUS: Final = frozenset(_ASSERTED.split())
#: composites that raise only where a call in them does, for some of their arguments
_BY_THEIR_PARTS: Final = frozenset(
    {"torch.norm", "torch.linalg.matrix_norm", "torch.linalg.matrix_power"}
    | {"torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss"}
)
#: these raise for integers only, which the CPU does not divide by zero
_DIVISIONS: Final = frozenset({"prims.div", "prims.py_floordiv", "prims.remainder", "prims.fmod"})


#: the statement of an opaque callable (``thunder.frontend.opaque_calls``)
RUN_OPAQUE: Final = "prims.run_opaque"


def may_raise_on_data(bsym: BoundSymbol, *, at_its_place: bool = False) -> bool:
    """Return whether a call, or one of its subsymbols, may raise for values of tensors.

    ``at_its_place``: while it runs, so that the program goes on. An assertion on a GPU is raised later, and
    after it the GPU runs nothing more in this process.
    """
    symbol = bsym.sym
    if symbol.id in _BY_VALUES or OpTags.FALLBACK in bsym.tags:
        return not (at_its_place and symbol.id in _ASSERT_ON_GPUS and _is_on_gpu(bsym))
    if symbol.id in _DIVISIONS:
        return _is_exact(bsym.output) and isinstance(bsym.args[1], TensorProxy)
    return is_opaque(bsym) or any(
        may_raise_on_data(part, at_its_place=at_its_place) for part in bsym.subsymbols
    )


def _is_on_gpu(bsym: BoundSymbol) -> bool:
    tensors = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    return bool(tensors) and all(p.device.type == "cuda" for p in tensors)


def checks_values(bsym: BoundSymbol) -> bool:
    """Return whether an operator checks values that the calls in it do not, so that they compute on."""
    return bsym.sym.id in _BY_VALUES - _BY_THEIR_PARTS and bool(bsym.subsymbols)


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
