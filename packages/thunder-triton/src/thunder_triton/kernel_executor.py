"""The executor `triton_kernels`: operators of torch that have a kernel in the library, and their gradients.

    torch.nn.functional.cross_entropy  →  cross_entropy_rows, cross_entropy_rows_backward

The modules of `kernels`, and with them Triton, are imported when an operator first runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from thunder import TensorProxy, dtypes
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Rank, Refusal
from thunder.plugins import Unavailable

from .environment import missing_device, triton_version, unavailable

__all__ = ["ex", "executor"]

ex = OperatorExecutor("triton_kernels", version=triton_version(), rank=Rank.KERNEL)

#: dtypes of logits
_DTYPES = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)


def executor() -> OperatorExecutor | Unavailable:
    """Return the executor, or why it cannot be used here: no Triton, or no device and no interpreter."""
    return unavailable() or ex


# -- cross entropy -------------------------------------------------------------------------------------------


def _rows_meta(
    logits: TensorProxy, target: TensorProxy, ignore_index: int, smoothing: float
) -> tuple[TensorProxy, TensorProxy]:
    dtype = dtypes.float64 if logits.dtype is dtypes.float64 else dtypes.float32
    shape = (logits.shape[0],)
    return (
        TensorProxy(shape=shape, device=logits.device, dtype=dtype, requires_grad=False),
        TensorProxy(shape=shape, device=logits.device, dtype=dtype, requires_grad=False),
    )


def _rows(logits: Any, target: Any, ignore_index: int, smoothing: float) -> tuple[torch.Tensor, torch.Tensor]:
    kernels: Any = import_module("thunder_triton.kernels.cross_entropy")
    losses: tuple[torch.Tensor, torch.Tensor] = kernels.forward(logits, target, ignore_index, smoothing)
    return losses


def _rows_backward_meta(
    logits: TensorProxy, target: Any, total: Any, cotangent: Any, ignore_index: int, smoothing: float
) -> TensorProxy:
    return TensorProxy(like=logits, requires_grad=False)


def _rows_backward(
    logits: Any, target: Any, total: Any, cotangent: Any, ignore_index: int, smoothing: float
) -> torch.Tensor:
    kernels: Any = import_module("thunder_triton.kernels.cross_entropy")
    gradient: torch.Tensor = kernels.backward(logits, target, total, cotangent, ignore_index, smoothing)
    return gradient


cross_entropy_rows_backward = ex.register_operator(
    "cross_entropy_rows_backward", meta=_rows_backward_meta, fn=_rows_backward
)
cross_entropy_rows = ex.register_operator("cross_entropy_rows", meta=_rows_meta, fn=_rows)


def _cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Compute torch's cross entropy and its gradient; losses of rows are reduced before they are rounded."""
    smoothing = float(label_smoothing)
    losses, total = cross_entropy_rows(input, target, ignore_index, smoothing)
    rows = (target != ignore_index).sum() if reduction == "mean" else None
    whole = losses if reduction == "none" else losses.sum()
    result = (whole if rows is None else whole / rows).to(input.dtype)
    cotangent = get_grad(result).to(losses.dtype)
    cotangent = (cotangent if rows is None else cotangent / rows).expand(losses.shape)
    gradient = cross_entropy_rows_backward(input, target, total, cotangent, ignore_index, smoothing)
    put_grads((input, target), (gradient, None))
    return result


def _cross_entropy_checker(
    input: TensorProxy,
    target: TensorProxy,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> bool | Refusal:
    """Refuse class weights, probabilities, and logits that are no rows."""
    missing = missing_device(input.device.type)
    if missing is not None:
        return missing
    if weight is not None:
        return Refusal("weight", "the kernel has no weights of classes")
    if size_average is not None or reduce is not None:
        return Refusal("arguments", "the kernel takes reduction=, and not its deprecated forms")
    if input.dtype not in _DTYPES:
        return Refusal("dtype", "the kernel takes floating-point logits", dtype=input.dtype)
    if not 0.0 <= label_smoothing <= 1.0:
        return Refusal("smoothing", "the kernel smooths by 0 to 1", smoothing=label_smoothing)
    if target.dtype is not dtypes.int64 or len(target.shape) != 1:
        return Refusal("target", "the kernel takes one class for each row", target=target.type_string())
    if len(input.shape) != 2 or input.shape[1] == 0:
        return Refusal("shape", "the kernel takes logits (n, classes)", shape=tuple(input.shape))
    if input.device != target.device:
        return Refusal("devices", "the logits and the target are on different devices")
    return True


ex.register_implementation(
    "torch.nn.functional.cross_entropy",
    checker=_cross_entropy_checker,
    execution_transform=_cross_entropy,
    grad_transform=_cross_entropy,
)
