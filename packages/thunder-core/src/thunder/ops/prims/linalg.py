"""Primitives of linear algebra."""

from __future__ import annotations

import torch

from thunder.base.dtypes import int32
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.prims.declaration import primitive

__all__ = ["_grouped_mm", "matmul"]


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which both can be broadcast. Raises OperatorError with torch's text."""
    if a == b:
        return a
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    shape = []
    for d, (m, n) in enumerate(zip(left, right, strict=True)):
        if m != n and m != 1 and n != 1:
            raise OperatorError(
                f"The size of tensor a ({m}) must match the size of tensor b ({n}) "
                f"at non-singleton dimension {d}"
            )
        shape.append(n if m == 1 else m)
    return tuple(shape)


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
    "matmul", _matmul_meta, eager=torch.matmul, eager_path="torch.matmul", tags=(OpTags.MATMUL_OP,)
)


def _grouped_mm_meta(a: TensorProxy, b: TensorProxy, offsets: TensorProxy) -> TensorProxy:
    """One product for each group; `offsets: (g,)` are the ends of the groups in the grouped dimension.

    `a: (m, k), b: (g, k, n)` groups rows of `a`, to `(m, n)`; `a: (g, m, k), b: (k, n)` columns of `b`, to
    `(m, n)`; `a: (m, k), b: (k, n)` the dimension that is summed over, to `(g, m, n)`.
    """
    ranks = len(a.shape), len(b.shape)
    if ranks not in ((2, 3), (3, 2), (2, 2)):
        raise OperatorError(f"a grouped product takes matrices, one of them perhaps batched, not {ranks}")
    if a.dtype is not b.dtype or a.device is not b.device:
        raise OperatorError(f"the factors differ: {a.type_string()} and {b.type_string()}")
    if len(offsets.shape) != 1 or offsets.dtype is not int32:
        raise OperatorError(f"the offsets are a vector of int32, not {offsets.type_string()}")
    (groups,) = offsets.shape
    batched = a if ranks[0] == 3 else b if ranks[1] == 3 else None
    if a.shape[-1] != b.shape[-2] or (batched is not None and batched.shape[0] != groups):
        raise OperatorError(f"{a.shape} and {b.shape} cannot be multiplied in {groups} groups")
    shape = (a.shape[-2], b.shape[-1]) if batched is not None else (groups, a.shape[0], b.shape[1])
    return TensorProxy(shape=shape, device=a.device, dtype=a.dtype)


_grouped_mm = primitive(
    "_grouped_mm",
    _grouped_mm_meta,
    eager=torch._grouped_mm,
    eager_path="torch._grouped_mm",
    tags=(OpTags.MATMUL_OP,),
)
