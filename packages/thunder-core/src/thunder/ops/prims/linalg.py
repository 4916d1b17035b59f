"""Primitives of linear algebra."""

from __future__ import annotations

import torch

from thunder.base.dtypes import bfloat16, float16, float32, int32
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.layout_rules import CONTIGUOUS
from thunder.ops.primitive_batching import batched_products as batched
from thunder.ops.prims.declaration import primitive

__all__ = ["_grouped_mm", "matmul"]


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which both can be broadcast. Raises OperatorError with torch's text."""
    if len(a) == len(b) and a == b:
        return a
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(_broadcast_length(d, m, n) for d, (m, n) in enumerate(zip(left, right, strict=True)))


def _broadcast_length(dim: int, m: int, n: int) -> int:
    """Return the length of a dimension; a number 1 asks nothing about a symbolic size."""
    if type(m) is int and m == 1:
        return n
    if (type(n) is int and n == 1) or m == n:
        return m
    if m != 1 and n != 1:
        raise OperatorError(
            f"The size of tensor a ({m}) must match the size of tensor b ({n}) "
            f"at non-singleton dimension {dim}"
        )
    return n if m == 1 else m


def _matmul_meta(a: TensorProxy, b: TensorProxy) -> TensorProxy:
    """``a: (*, m, k)``, ``b: (*, k, n)``, or vectors; batch dimensions broadcast."""
    if a.dtype is not b.dtype:
        raise OperatorError(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if a.device is not b.device:
        raise OperatorError(
            f"Expected all tensors to be on the same device, but found {a.device} and {b.device}"
        )
    if not a.shape or not b.shape:
        raise OperatorError(
            "both arguments to matmul need to be at least 1D, "
            f"but they are {len(a.shape)}D and {len(b.shape)}D"
        )
    inner = b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if a.shape[-1] != inner:
        raise OperatorError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape} and {b.shape})")
    rows = a.shape[-2:-1] if len(a.shape) > 1 else ()
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return TensorProxy(shape=(*batch, *rows, *columns), device=a.device, dtype=a.dtype)


matmul = primitive(
    "matmul",
    _matmul_meta,
    eager=torch.matmul,
    eager_path="torch.matmul",
    layout=CONTIGUOUS,
    tags=(OpTags.MATMUL_OP,),
    batch=batched.matmul,
)


def _grouped_mm_meta(a: TensorProxy, b: TensorProxy, offsets: TensorProxy | None) -> TensorProxy:
    """One product for each group; `offsets: (g,)` are the ends of the groups in the grouped dimension.

    `a: (m, k), b: (g, k, n)` groups rows of `a`, to `(m, n)`; `a: (g, m, k), b: (k, n)` columns of `b`, to
    `(m, n)`; `a: (m, k), b: (k, n)` the dimension that is summed over, to `(g, m, n)`. Two batches, without
    offsets, are multiplied one by one. Rows of the result begin at multiples of 16 bytes.
    """
    ranks = len(a.shape), len(b.shape)
    if not {2, 3}.issuperset(ranks):
        raise OperatorError(f"a grouped product takes matrices, one of them perhaps batched, not {ranks}")
    if a.dtype is not b.dtype or a.device is not b.device:
        raise OperatorError(f"the factors differ: {a.type_string()} and {b.type_string()}")
    if a.dtype not in (float32, float16, bfloat16):
        raise OperatorError(
            f"Expected mat_a to be Float32, BFloat16 or Float16 matrix, got {a.dtype.torch_dtype}"
        )
    if (offsets is None) != (ranks == (3, 3)):
        raise OperatorError(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if offsets is not None and (len(offsets.shape) != 1 or offsets.dtype is not int32):
        raise OperatorError(
            f"Offsets have to be int32, and a vector of the ends of groups, not {offsets.type_string()}"
        )
    groups = (offsets if offsets is not None else a).shape[0]
    if a.shape[-1] != b.shape[-2] or any(len(x.shape) == 3 and x.shape[0] != groups for x in (a, b)):
        raise OperatorError(f"{a.shape} and {b.shape} cannot be multiplied in {groups} groups")
    rows, columns = a.shape[-2], b.shape[-1]
    aligned = 16 // a.dtype.itemsize
    row = -(-columns // aligned) * aligned
    if ranks[0] != ranks[1]:
        return TensorProxy(shape=(rows, columns), device=a.device, dtype=a.dtype, strides=(row, 1))
    shape, strides = (groups, rows, columns), (rows * row, row, 1)
    return TensorProxy(shape=shape, device=a.device, dtype=a.dtype, strides=strides)


_grouped_mm = primitive(
    "_grouped_mm",
    _grouped_mm_meta,
    eager=torch._grouped_mm,
    eager_path="torch._grouped_mm",
    tags=(OpTags.MATMUL_OP,),
)
