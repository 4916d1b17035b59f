"""The fused step of AdamW as one operator of a group of parameters, which torch calls `_fused_adamw_`.

    torch._fused_adamw_(ps, gs, ms, vs, …)   →   new_ps, new_ms, new_vs = adamw(ps, gs, ms, vs, …)
                                                 p.copy_(new_p); m.copy_(new_m); v.copy_(new_v); …

Writes are those of the program, as of all values: the operator returns new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import thunder
from thunder import TensorProxy, dtypes
from thunder.core.prims import OpTags
from thunder.extend import Refusal

from ..environment import missing_device
from .declaration import ex, kernel

__all__ = ["adamw", "write_step"]

#: dtypes of parameters, gradients and states
_DTYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)


def _by_torch(
    parameters: Any,
    gradients: Any,
    means: Any,
    squares: Any,
    maxima: Any,
    steps: Any,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> Any:
    """Return the new parameters, means, squares and their maxima, of AMSGrad.

    The formulas are those of `_single_tensor_adam` (`torch/optim/adam.py`), with factors in float64.
    """
    results: tuple[list[Any], ...] = ([], [], [], [])
    for i, (p, g, m, v, step) in enumerate(zip(parameters, gradients, means, squares, steps, strict=True)):
        g = -g if maximize else g
        p = p if weight_decay == 0 else p * (1 - lr * weight_decay)
        m = torch.lerp(m, g, 1 - beta1)
        v = torch.addcmul(v * beta2, g, g, value=1 - beta2)
        count = step.to(torch.float64)
        largest = [torch.maximum(maxima[i], v)] if maxima else []
        denominator = (largest or [v])[0].sqrt() / (1 - beta2**count).sqrt() + eps
        values = (p - (lr / (1 - beta1**count)) * (m / denominator), m, v, *largest)
        for result, value in zip(results, values, strict=False):
            result.append(value)
    return results


adamw = ex.register_operator(
    "adamw", like=_by_torch, fn=kernel("adamw", "step"), tags=[OpTags.NONDIFFERENTIABLE]
)


def _check(
    parameters: Sequence[TensorProxy],
    gradients: Sequence[TensorProxy],
    means: Sequence[TensorProxy],
    squares: Sequence[TensorProxy],
    maxima: Sequence[TensorProxy],
    steps: Sequence[TensorProxy],
    lr: Any,
    beta1: Any,
    beta2: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> bool | Refusal:
    """Refuse lists of several dtypes, and values that the kernel does not take."""
    missing = missing_device(parameters[0].device.type)
    if missing is not None:
        return missing
    if maxima:
        return Refusal("amsgrad", "the kernel does not compute AMSGrad")
    values = [x for xs in (parameters, gradients, means, squares) for x in xs]
    if {x.dtype for x in values} != {parameters[0].dtype} or parameters[0].dtype not in _DTYPES:
        return Refusal("dtype", "the kernel takes values of one dtype, of at most 32 bits")
    if any(step.dtype is not dtypes.float32 for step in steps):
        return Refusal("dtype", "the numbers of steps are float32", dtype=steps[0].dtype)
    numbers = [*steps, *([lr] if isinstance(lr, TensorProxy) else [])]
    if {x.device for x in (*values, *numbers)} != {parameters[0].device}:
        return Refusal("devices", "the tensors of a group are on one device")
    shapes = [[tuple(x.shape) for x in xs] for xs in (parameters, gradients, means, squares)]
    if any(other != shapes[0] for other in shapes[1:]):
        return Refusal("shapes", "gradients and states have the shapes of their parameters")
    if any(isinstance(value, TensorProxy) for value in (beta1, beta2)):
        return Refusal("arguments", "the betas are numbers")
    return True


ex.register_implementation(adamw, adamw, checker=_check)


def fused_adamw_(
    *lists: Any, amsgrad: bool, grad_scale: Any = None, found_inf: Any = None, **settings: Any
) -> None:
    """Do the step of torch's `_fused_adamw_` by the operator of a group.

    Raises UnsupportedOperator for the scale of a GradScaler, as core does.
    """
    if grad_scale is not None or found_inf is not None:
        scaling = {"grad_scale": grad_scale, "found_inf": found_inf}
        thunder.torch._fused_adamw_(*lists, amsgrad=amsgrad, **scaling, **settings)
        return
    params, grads, means, squares, maxima, steps = lists
    write_step(params, grads, means, squares, maxima if amsgrad else [], steps, settings)


def write_step(
    params: Any, grads: Any, means: Any, squares: Any, maxima: Any, steps: Any, settings: Mapping[str, Any]
) -> None:
    """Write the new values of a group over the old ones."""
    new = adamw(params, grads, means, squares, maxima, steps, **settings) if params else []
    for olds, values in zip((params, means, squares, maxima), new, strict=bool(params)):
        for old, value in zip(olds, values, strict=True):
            old.copy_(value)


ex.register_operator("fused_adamw_", like=fused_adamw_, replaces=torch._fused_adamw_)
