"""The executor `losses`: cross entropy of a linear layer as one operator, on CPUs."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import functional as F

from thunder import TensorProxy, dtypes
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Rank, Refusal, SymbolicInt

from . import chunks

__all__ = ["FEWEST_LOGITS", "ex", "linear_cross_entropy", "refusal"]

#: how many logits there are at least where they are worth it not to be whole
FEWEST_LOGITS: Final = 2**23

ex = OperatorExecutor("losses", version=torch.__version__, rank=Rank.KERNEL)


def _loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight), target, ignore_index=ignore_index)


def _sum_and_gradients_meta(
    x: TensorProxy,
    weight: TensorProxy,
    target: TensorProxy,
    ignore_index: int,
    of_x: bool,
    of_weight: bool,
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    shapes = (), x.shape if of_x else (0,), weight.shape if of_weight else (0,)
    total, for_x, for_weight = (
        TensorProxy(shape=shape, device=x.device, dtype=x.dtype, requires_grad=False) for shape in shapes
    )
    return total, for_x, for_weight


def _of_logits(
    cotangent: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int
) -> torch.Tensor:
    """Return the gradient of the mean loss with respect to the logits."""
    counts = target != ignore_index
    logits = F.linear(x, weight)
    classes = torch.where(counts, target, 0)[:, None]
    ones = torch.zeros_like(logits).scatter(1, classes, 1.0)
    gradient = (torch.softmax(logits, 1) - ones) * counts[:, None]
    return gradient * _factor(cotangent, target, ignore_index)


def _factor(cotangent: torch.Tensor, target: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return the cotangent of each row; where every row is ignored the loss is nan, and the gradient 0."""
    count = (target != ignore_index).sum()
    return torch.where(count == 0, 0.0, cotangent / count)


def _of_x(saved: Any, cotangent: Any, x: Any, weight: Any, target: Any, ignore_index: int) -> Any:
    return _of_logits(cotangent, x, weight, target, ignore_index) @ weight


def _of_weight(saved: Any, cotangent: Any, x: Any, weight: Any, target: Any, ignore_index: int) -> Any:
    return _of_logits(cotangent, x, weight, target, ignore_index).t() @ x


def _scaled(saved: Any, cotangent: Any, x: Any, weight: Any, target: Any, ignore_index: int) -> Any:
    return saved * _factor(cotangent, target, ignore_index)


#: the mean loss. x: (n, features); weight: (classes, features); target: (n,), int64
linear_cross_entropy = ex.register_operator("linear_cross_entropy", like=_loss, fn=chunks.loss)
_sum_and_gradients = ex.register_operator(
    "linear_cross_entropy_with_gradients", meta=_sum_and_gradients_meta, fn=chunks.sum_and_gradients
)
#: the gradients, from saved ones of the sum of losses; second derivatives are those of the decomposition,
#: which computes the same without them
_GRADIENTS: Final = tuple(
    ex.register_operator(f"linear_cross_entropy_gradient_of_{name}", like=like, fn=_scaled)
    for name, like in (("x", _of_x), ("weight", _of_weight))
)


def _rule(x: Any, weight: Any, target: Any, ignore_index: int) -> Any:
    needed = x.requires_grad, weight.requires_grad
    total, *saved = _sum_and_gradients(x, weight, target, ignore_index, *needed)
    loss = total / (target != ignore_index).sum()
    cotangent = get_grad(loss)
    gradients = [
        gradient(value, cotangent, x, weight, target, ignore_index) if is_needed else None
        for gradient, value, is_needed in zip(_GRADIENTS, saved, needed, strict=True)
    ]
    put_grads((x, weight, target), (*gradients, None))
    return loss


ex.register_implementation(linear_cross_entropy, linear_cross_entropy, grad_transform=_rule)


def refusal(x: TensorProxy, weight: TensorProxy, target: TensorProxy, ignore_index: int) -> bool | Refusal:
    """Return True for a loss that is worth chunks, else the reason why not."""
    if x.device.type != "cpu":
        return Refusal("device", "chunks of torch's kernels are for CPUs", device=x.device)
    rows, (classes, features) = x.numel() // x.shape[-1] if x.shape[-1] else 0, weight.shape
    if any(isinstance(size, SymbolicInt) for size in (*x.shape, classes)):
        return Refusal("size", "how many rows there are differs from call to call")
    if rows * classes < FEWEST_LOGITS or rows < 2 * chunks.CHUNK_ROWS:
        return Refusal("size", "few logits gain nothing from chunks", rows=rows, classes=classes)
    if rows < features:
        return Refusal("size", "the gradient of the weight would need more memory than the logits", rows=rows)
    if target.dtype is not dtypes.int64 or len(target.shape) != 1:
        return Refusal("target", "there is one class for each row", target=target.type_string())
    if x.dtype is not weight.dtype or x.dtype not in (dtypes.float32, dtypes.float64):
        return Refusal(
            "dtype", "sums over chunks would be rounded, or cost more than one product", dtype=x.dtype
        )
    return True
