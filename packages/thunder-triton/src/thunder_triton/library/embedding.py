"""The gradient of the weight of an embedding: its operator, and the claim of torch's.

embedding_dense_backward  →  embedding_backward
"""

from __future__ import annotations

from thunder import TensorProxy, dtypes
from thunder.extend import Refusal

from ..environment import missing_device
from .declaration import ex, kernel, new

__all__ = ["embedding_backward"]

#: dtypes of gradients
_DTYPES = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)


def _meta(
    g: TensorProxy, indices: TensorProxy, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> TensorProxy:
    return new(g, (num_weights, g.shape[-1]), g.dtype)


def _check(
    grad_output: TensorProxy,
    indices: TensorProxy,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> bool | Refusal:
    """Refuse gradients that are divided by the number of places of a row."""
    missing = missing_device(grad_output.device.type)
    if missing is not None:
        return missing
    if scale_grad_by_freq:
        return Refusal("arguments", "the kernel does not scale by frequencies")
    if grad_output.dtype not in _DTYPES or indices.dtype not in (dtypes.int32, dtypes.int64):
        return Refusal("dtype", "the kernel takes floating-point gradients", dtype=grad_output.dtype)
    if grad_output.device != indices.device:
        return Refusal("devices", "the gradient and the indices are on different devices")
    return True


embedding_backward = ex.register_operator(
    "embedding_backward", meta=_meta, fn=kernel("embedding", "backward")
)
ex.register_implementation("ltorch.embedding_dense_backward", embedding_backward, checker=_check)
