"""Cross entropy of a linear layer as one operator, whose logits are never whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from thunder import TensorProxy, dtypes
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import Refusal
from thunder_transforms.losses.rules import linear_cross_entropy_rules

from ..environment import missing_device
from .declaration import ex, kernel, new, wide

__all__ = ["linear_cross_entropy", "rules"]

#: the fewest classes for which the chunks are worth their launches
FEWEST_CLASSES = 1024


def _loss_meta(x: TensorProxy, weight: TensorProxy, target: TensorProxy, ignore_index: int) -> TensorProxy:
    return TensorProxy(shape=(), device=x.device, dtype=wide(x))


def _loss_and_gradients_meta(
    x: TensorProxy, weight: TensorProxy, target: TensorProxy, ignore_index: int, of_x: bool, of_weight: bool
) -> tuple[TensorProxy, ...]:
    return (
        new(x, (), wide(x)),
        new(x, (), dtypes.int64),
        new(x, x.shape if of_x else (0,), wide(x)),
        new(x, weight.shape if of_weight else (0,), wide(x)),
    )


def _gradient_meta(saved: TensorProxy, cotangent: Any, count: Any, of: TensorProxy) -> TensorProxy:
    return TensorProxy(like=of, requires_grad=False)


def _gradient(saved: Any, cotangent: Any, count: Any, of: Any) -> torch.Tensor:
    # where every row is ignored the loss is nan, and the gradient is 0
    factor = torch.where(count == 0, 0.0, cotangent / count)
    scaled: torch.Tensor = saved.to(cotangent.dtype) * factor
    return scaled.to(of.dtype)


loss_and_gradients = ex.register_operator(
    "linear_cross_entropy_with_gradients",
    meta=_loss_and_gradients_meta,
    fn=kernel("linear_cross_entropy", "loss_and_gradients"),
)
#: the gradient of `of`, from that of the sum of losses; it reads `of`, since it depends on it
linear_cross_entropy_gradient = ex.register_operator(
    "linear_cross_entropy_gradient", meta=_gradient_meta, fn=_gradient
)
linear_cross_entropy = ex.register_operator(
    "linear_cross_entropy", meta=_loss_meta, fn=kernel("linear_cross_entropy", "loss")
)


def _rule(x: Any, weight: Any, target: Any, ignore_index: int) -> Any:
    of_x, of_weight = x.requires_grad, weight.requires_grad
    loss, count, for_x, for_weight = loss_and_gradients(x, weight, target, ignore_index, of_x, of_weight)
    cotangent = get_grad(loss)
    gradients = [
        linear_cross_entropy_gradient(saved, cotangent, count, of) if needed else None
        for saved, of, needed in ((for_x, x, of_x), (for_weight, weight, of_weight))
    ]
    put_grads((x, weight, target), (*gradients, None))
    return loss


ex.register_implementation(linear_cross_entropy, linear_cross_entropy, grad_transform=_rule)


def _check(x: TensorProxy, weight: TensorProxy, target: TensorProxy, ignore_index: int) -> bool | Refusal:
    """Refuse few classes, other targets than classes, and dtypes and devices without kernels."""
    missing = missing_device(x.device.type)
    if missing is not None:
        return missing
    if weight.shape[0] < FEWEST_CLASSES:
        return Refusal("classes", "few classes gain nothing from chunks", classes=weight.shape[0])
    if target.dtype is not dtypes.int64 or len(target.shape) != 1:
        return Refusal("target", "the kernel takes one class for each row", target=target.type_string())
    if x.dtype is not weight.dtype or not x.dtype.is_floating_point or x.dtype.itemsize == 1:
        return Refusal("dtype", "the kernel takes inputs and a weight of one dtype", dtype=x.dtype)
    return True


def rules() -> Iterable[Any]:
    """Yield the rules, for rows of inputs and batches of them, with and without a cast to float32."""
    return linear_cross_entropy_rules(
        linear_cross_entropy, _check, package="thunder_triton", executor=ex.name
    )
