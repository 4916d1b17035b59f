"""Primitives of linear algebra."""

from __future__ import annotations

import torch

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.prims.declaration import primitive

__all__ = ["matmul"]


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
