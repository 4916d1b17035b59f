"""Products of matrices and vectors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import int64, to_dtype
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SymbolicInt
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.layout_rules import CONTIGUOUS, REORDERED
from thunder.ops.prims.linalg import broadcast_shapes
from thunder.ops.promotion import result_dtype
from thunder.torch.broadcasting import integers
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.binary import add, mul
from thunder.torch.rows.cat_split import narrowed
from thunder.torch.rows.reduction import sum
from thunder.torch.rows.shape import movedim, permute, reshape, unsqueeze

MATMUL = (OpTags.MATMUL_OP,)
ADD_MATMUL = (*MATMUL, OpTags.NO_OVERLAP_BUT_FIRST)


def _require_rank(name: str, rank: int, *tensors: TensorProxy) -> None:
    for tensor in tensors:
        if len(tensor.shape) != rank:
            raise OperatorError(f"{name}: expected a {rank}D tensor, got {tensor.type_string()}")


@torchsymbol(
    "torch.matmul", "torch.linalg.matmul", methods=("matmul", "__matmul__"), layout=CONTIGUOUS, tags=MATMUL
)
def matmul(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """``input: (*, m, k)`` times ``other: (*, k, n)``.

    A vector is a row on the left, a column on the right.
    """
    return prims.matmul(input, other)


@torch_names(methods=("__rmatmul__",))
def reflected_matmul(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """``other @ input``."""
    return matmul(other, input)


@torchsymbol("torch.mm", methods=("mm",), layout=CONTIGUOUS, tags=MATMUL)
def mm(input: TensorProxy, mat2: TensorProxy) -> TensorProxy:
    """``(m, k)`` times ``(k, n)``."""
    _require_rank("mm", 2, input, mat2)
    return prims.matmul(input, mat2)


@torchsymbol("torch.bmm", methods=("bmm",), layout=CONTIGUOUS, tags=MATMUL)
def bmm(input: TensorProxy, mat2: TensorProxy) -> TensorProxy:
    """``(b, m, k)`` times ``(b, k, n)``."""
    _require_rank("bmm", 3, input, mat2)
    if input.shape[0] != mat2.shape[0]:
        raise OperatorError(f"bmm: expected equal batch sizes, got {input.shape[0]} and {mat2.shape[0]}")
    return prims.matmul(input, mat2)


@torchsymbol("torch._grouped_mm", tags=MATMUL)
def _grouped_mm(
    self: TensorProxy,
    mat2: TensorProxy,
    offs: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    out_dtype: Any = None,
) -> TensorProxy:
    """One product for each group of rows, columns or summands; see ``prims._grouped_mm``."""
    if bias is not None:
        raise OperatorError("Bias not supported yet")
    if out_dtype is not None and to_dtype(out_dtype) is not self.dtype:
        raise OperatorError("Grouped gemm output dtype must match `mat_a` dtype")
    return prims._grouped_mm(self, mat2, offs)


@torchsymbol("torch.mv", methods=("mv",), tags=MATMUL)
def mv(input: TensorProxy, vec: TensorProxy) -> TensorProxy:
    """``(m, k)`` times ``(k,)``."""
    _require_rank("mv", 2, input)
    _require_rank("mv", 1, vec)
    return prims.matmul(input, vec)


@torchsymbol("torch.dot", methods=("dot",), tags=MATMUL)
def dot(input: TensorProxy, tensor: TensorProxy) -> TensorProxy:
    """The sum of the products of two vectors."""
    _require_rank("dot", 1, input, tensor)
    return prims.matmul(input, tensor)


@torchsymbol("torch.inner", methods=("inner",), tags=MATMUL)
def inner(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """Products summed over the last dimensions; a tensor without dimensions scales."""
    if not input.shape or not other.shape:
        return mul(input, other)
    return tensordot(input, other, ((-1,), (-1,)))


@torchsymbol("torch.vdot", methods=("vdot",), tags=MATMUL)
def vdot(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """``dot`` with the conjugate of the first vector."""
    _require_rank("vdot", 1, input, other)
    return prims.matmul(prims.conj(input) if input.dtype.is_complex else input, other)


@torchsymbol("torch.outer", "torch.ger", methods=("outer", "ger"))
def outer(input: TensorProxy, vec2: TensorProxy) -> TensorProxy:
    """``(m,)`` and ``(n,)`` → all products, ``(m, n)``."""
    _require_rank("outer", 1, input, vec2)
    return mul(unsqueeze(input, 1), vec2)


def _accumulated(input: TensorProxy, product: TensorProxy, beta: Any, alpha: Any) -> TensorProxy:
    """``beta * input + alpha * product``; if ``beta`` is 0, nan and inf in input do not count."""
    if input.dtype is not product.dtype:
        raise OperatorError(
            "self and mat2 must have the same dtype, "
            f"but got {input.dtype.torch_dtype} and {product.dtype.torch_dtype}"
        )
    if broadcast_shapes(input.shape, product.shape) != product.shape:
        raise OperatorError(f"shape {input.shape} cannot be expanded to {product.shape}")
    return _weighted(input, product, beta, alpha)


def _weighted(input: TensorProxy, product: TensorProxy, beta: Any, alpha: Any) -> TensorProxy:
    alpha, beta = (_factor(x, product.dtype) for x in (alpha, beta))
    scaled = product if not isinstance(alpha, TensorProxy) and alpha == 1 else mul(product, alpha)
    if beta == 0:
        return scaled
    return add(input if beta == 1 else mul(input, beta), scaled)


def _factor(x: Any, dtype: Dtype) -> Any:
    """Return a factor as a number of the result's kind; torch truncates it for integers."""
    return bool(x) if dtype.is_bool else int(x) if dtype.is_integer else x


@torchsymbol("torch.addmm", methods=("addmm",), inplace=("addmm_",), layout=REORDERED, tags=ADD_MATMUL)
def addmm(
    input: TensorProxy, mat1: TensorProxy, mat2: TensorProxy, *, beta: Any = 1, alpha: Any = 1
) -> TensorProxy:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    _require_rank("addmm", 2, mat1, mat2)
    return _accumulated(input, prims.matmul(mat1, mat2), beta, alpha)


@torchsymbol("torch.addmv", methods=("addmv",), inplace=("addmv_",), tags=ADD_MATMUL)
def addmv(
    input: TensorProxy, mat: TensorProxy, vec: TensorProxy, *, beta: Any = 1, alpha: Any = 1
) -> TensorProxy:
    """``beta * input + alpha * (mat @ vec)``."""
    _require_rank("addmv", 2, mat)
    _require_rank("addmv", 1, vec)
    return _accumulated(input, prims.matmul(mat, vec), beta, alpha)


@torchsymbol("torch.baddbmm", methods=("baddbmm",), inplace=("baddbmm_",), layout=REORDERED, tags=ADD_MATMUL)
def baddbmm(
    input: TensorProxy, batch1: TensorProxy, batch2: TensorProxy, *, beta: Any = 1, alpha: Any = 1
) -> TensorProxy:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    _require_rank("baddbmm", 3, batch1, batch2)
    return _accumulated(input, prims.matmul(batch1, batch2), beta, alpha)


@torchsymbol("torch.addbmm", methods=("addbmm",), inplace=("addbmm_",), layout=REORDERED, tags=ADD_MATMUL)
def addbmm(
    input: TensorProxy, batch1: TensorProxy, batch2: TensorProxy, *, beta: Any = 1, alpha: Any = 1
) -> TensorProxy:
    """``beta * input + alpha * sum(batch1 @ batch2)`` over the batch."""
    _require_rank("addbmm", 3, batch1, batch2)
    return _accumulated(input, prims.sum(prims.matmul(batch1, batch2), (0,)), beta, alpha)


@torchsymbol("torch.addr", methods=("addr",), inplace=("addr_",))
def addr(
    input: TensorProxy, vec1: TensorProxy, vec2: TensorProxy, *, beta: Any = 1, alpha: Any = 1
) -> TensorProxy:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    product = outer(vec1, vec2)
    common = result_dtype(input, product)
    return _weighted(cast(input, common), cast(product, common), beta, alpha)


def _multi_dot_spelling(tensors: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (list(tensors),), {}


@torchsymbol("torch.linalg.multi_dot", spelling=_multi_dot_spelling, tags=MATMUL)
def multi_dot(tensors: Sequence[TensorProxy]) -> TensorProxy:
    """The product of matrices, from the left."""
    if len(tensors) < 2:
        raise OperatorError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    return functools.reduce(prims.matmul, tensors)


def summed_dims(a: TensorProxy, b: TensorProxy, dims: Any) -> tuple[list[int], list[int]]:
    """Return the dimensions of each operand over which ``tensordot(a, b, dims)`` sums.

    Dimensions are counted from the front. Raises UnsupportedOperator for dimensions in a tensor.
    """
    if isinstance(dims, TensorProxy):
        raise UnsupportedOperator(
            "torch.tensordot over dimensions in a tensor, whose values are not known while tracing",
            hint="Pass the dimensions as Python integers.",
        )
    if isinstance(dims, int | SymbolicInt):
        dims = int(dims)  # how many they are fixes a symbol
        return list(range(len(a.shape) - dims, len(a.shape))), list(range(dims))
    left, right = map(integers, dims)
    return [d % max(1, len(a.shape)) for d in left], [d % max(1, len(b.shape)) for d in right]


@torchsymbol("torch.tensordot", tags=MATMUL)
def tensordot(a: TensorProxy, b: TensorProxy, dims: Any = 2) -> TensorProxy:
    """Products summed over the last ``dims`` of ``a`` and first of ``b``, or over two lists."""
    left, right = summed_dims(a, b, dims)
    for m, n in zip(left, right, strict=True):  # a dimension of length 1 is summed against any other
        if a.shape[m] != b.shape[n] and 1 in (a.shape[m], b.shape[n]):
            a, b = (_summed(a, m), b) if b.shape[n] == 1 else (a, _summed(b, n))
    if any(a.shape[m] != b.shape[n] for m, n in zip(left, right, strict=True)):
        raise OperatorError("contracted dimensions need to match")
    free_a = [d for d in range(len(a.shape)) if d not in left]
    free_b = [d for d in range(len(b.shape)) if d not in right]
    rows, columns = [a.shape[d] for d in free_a], [b.shape[d] for d in free_b]
    inner = [a.shape[d] for d in left]
    flat_a = reshape(permute(a, (*free_a, *left)), (_size(rows), _size(inner)))
    flat_b = reshape(permute(b, (*right, *free_b)), (_size(inner), _size(columns)))
    return reshape(prims.matmul(flat_a, flat_b), (*rows, *columns))


def _summed(a: TensorProxy, dim: int) -> TensorProxy:
    return sum(a, dim, True, dtype=a.dtype)


def _size(lengths: Sequence[int]) -> int:
    return functools.reduce(lambda m, n: m * n, lengths, 1)


@torchsymbol("torch.trace", methods=("trace",))
def trace(input: TensorProxy) -> TensorProxy:
    """The sum of a matrix's diagonal."""
    _require_rank("trace", 2, input)
    diagonal = prims.diagonal(input, 0, 0, 1)
    return prims.sum(diagonal if input.dtype.is_inexact else cast(diagonal, int64), (0,))


@torchsymbol("torch.linalg.cross", tags=(OpTags.NO_OVERLAP,))
def cross(input: TensorProxy, other: TensorProxy, *, dim: int = -1) -> TensorProxy:
    """The cross product along a dimension of length 3."""
    a, b = movedim(input, dim, -1), movedim(other, dim, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise OperatorError("linalg.cross: inputs dimension must have length 3.")
    last = len(a.shape) - 1
    x, y = (
        prims.cat(
            [narrowed(t, len(t.shape) - 1, 1, 3), narrowed(t, len(t.shape) - 1, 0, 1)], len(t.shape) - 1
        )
        for t in (a, b)
    )
    turned = add(mul(a, y), mul(x, b), alpha=-1)
    back = prims.cat([narrowed(turned, last, 1, 3), narrowed(turned, last, 0, 1)], last)
    return movedim(back, -1, dim)
