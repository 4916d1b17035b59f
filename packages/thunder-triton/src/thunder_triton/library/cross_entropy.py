"""Cross entropy of rows of logits: its operators, and the claim of torch's function.

torch.nn.functional.cross_entropy  →  cross_entropy_rows, cross_entropy_rows_backward
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder import TensorProxy, dtypes
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import Refusal

from ..environment import missing_device
from .declaration import ex, kernel, new, wide

__all__ = ["cross_entropy_rows", "cross_entropy_rows_backward"]

#: dtypes of logits
_DTYPES = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)


def _rows_meta(
    logits: TensorProxy, target: TensorProxy, ignore_index: int, smoothing: float
) -> tuple[TensorProxy, TensorProxy]:
    shape = logits.shape[:1]
    return new(logits, shape, wide(logits)), new(logits, shape, wide(logits))


def _rows_backward_meta(
    logits: TensorProxy, target: Any, total: Any, cotangent: Any, ignore_index: int, smoothing: float
) -> TensorProxy:
    return TensorProxy(like=logits, requires_grad=False)


cross_entropy_rows_backward = ex.register_operator(
    "cross_entropy_rows_backward", meta=_rows_backward_meta, fn=kernel("cross_entropy", "backward")
)
cross_entropy_rows = ex.register_operator(
    "cross_entropy_rows", meta=_rows_meta, fn=kernel("cross_entropy", "forward")
)


@dataclass(frozen=True)
class Call:
    """A call of torch's `cross_entropy`, with its arguments."""

    input: TensorProxy
    target: TensorProxy
    weight: TensorProxy | None = None
    size_average: bool | None = None
    ignore_index: int = -100
    reduce: bool | None = None
    reduction: str = "mean"
    label_smoothing: float = 0.0


def _cross_entropy(*args: Any, **kwargs: Any) -> Any:
    """Compute torch's cross entropy and its gradient; losses of rows are reduced before they are rounded."""
    call = Call(*args, **kwargs)
    logits: Any = call.input
    target: Any = call.target
    settings = (call.ignore_index, float(call.label_smoothing))
    losses, total = cross_entropy_rows(logits, target, *settings)
    rows = (target != call.ignore_index).sum() if call.reduction == "mean" else None
    whole = losses if call.reduction == "none" else losses.sum()
    result = (whole if rows is None else whole / rows).to(logits.dtype)
    cotangent = get_grad(result).to(losses.dtype)
    cotangent = (cotangent if rows is None else cotangent / rows).expand(losses.shape)
    gradient = cross_entropy_rows_backward(logits, target, total, cotangent, *settings)
    put_grads((logits, target), (gradient, None))
    return result


def _check(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse class weights, probabilities, and logits that are no rows."""
    call = Call(*args, **kwargs)
    logits, target = call.input, call.target
    missing = missing_device(logits.device.type)
    if missing is not None:
        return missing
    if call.weight is not None:
        return Refusal("weight", "the kernel has no weights of classes")
    if call.size_average is not None or call.reduce is not None:
        return Refusal("arguments", "the kernel takes reduction=, and not its deprecated forms")
    if logits.dtype not in _DTYPES:
        return Refusal("dtype", "the kernel takes floating-point logits", dtype=logits.dtype)
    if not 0.0 <= call.label_smoothing <= 1.0:
        return Refusal("smoothing", "the kernel smooths by 0 to 1", smoothing=call.label_smoothing)
    if target.dtype is not dtypes.int64 or len(target.shape) != 1:
        return Refusal("target", "the kernel takes one class for each row", target=target.type_string())
    if len(logits.shape) != 2 or logits.shape[1] == 0:
        return Refusal("shape", "the kernel takes logits (n, classes)", shape=tuple(logits.shape))
    if logits.device != target.device:
        return Refusal("devices", "the logits and the target are on different devices")
    return True


ex.register_implementation(
    "torch.nn.functional.cross_entropy",
    checker=_check,
    execution_transform=_cross_entropy,
    grad_transform=_cross_entropy,
)
