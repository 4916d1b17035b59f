"""The step of `torch.optim.AdamW(foreach=True)`, torch's default on a GPU, by the operator of a group.

    thunder.jit(optimizer.step, executors=["triton_kernels"], lookasides=[FOREACH_ADAMW])

Torch's step is a sequence of `torch._foreach_*` functions, each of which reads and writes all states. Its
corrections `1 - beta**step` are numbers that the program reads of its tensors; those of the kernel are
computed in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.optim.adam import _multi_tensor_adam

from thunder.plugins import Lookaside

from .adamw import write_step

__all__ = ["FOREACH_ADAMW"]


def multi_tensor_adam(
    params: Any,
    grads: Any,
    exp_avgs: Any,
    exp_avg_sqs: Any,
    max_exp_avg_sqs: Any,
    state_steps: Any,
    grad_scale: Any,
    found_inf: Any,
    *,
    decoupled_weight_decay: bool,
    **settings: Any,
) -> None:
    """Do the step of `torch.optim.AdamW(foreach=True)` by the operator of a group.

    Its numbers of steps are on the CPU, unless it is capturable. Parameters in 16 bits are left to torch,
    whose step rounds after each of its operators.
    """
    lists = params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps
    is_adamw = decoupled_weight_decay or settings["weight_decay"] == 0
    if not (is_adamw and grad_scale is None and found_inf is None and _fits(*lists, settings)):
        _multi_tensor_adam(
            *lists, grad_scale, found_inf, decoupled_weight_decay=decoupled_weight_decay, **settings
        )
        return
    torch._foreach_add_(state_steps, 1)
    steps = state_steps
    if steps[0].device != params[0].device:
        steps = torch.stack(steps).to(params[0].device, non_blocking=True).unbind()
    numbers = {name: settings[name] for name in _NUMBERS}
    write_step(params, grads, exp_avgs, exp_avg_sqs, [], list(steps), numbers)


_NUMBERS = ("lr", "beta1", "beta2", "weight_decay", "eps", "maximize")


def _fits(
    params: Any, grads: Any, means: Any, squares: Any, maxima: Any, steps: Any, settings: Mapping[str, Any]
) -> bool:
    """Return whether the kernel computes the step of a group in float32."""
    if not params or settings["amsgrad"] or settings["has_complex"] or settings["differentiable"]:
        return False
    if not all(isinstance(settings[name], bool | int | float) for name in _NUMBERS):
        return False
    tensors = [x for xs in (params, grads, means, squares) for x in xs]
    if any(x.dtype is not torch.float32 or x.device != params[0].device for x in tensors):
        return False
    on_cpu = all(step.device.type == "cpu" for step in steps)
    return (on_cpu or all(step.device == params[0].device for step in steps)) and all(
        step.dtype is torch.float32 for step in steps
    )


#: what `thunder.jit(optimizer.step, lookasides=[FOREACH_ADAMW])` traces in place of torch's step
FOREACH_ADAMW: Final = Lookaside(_multi_tensor_adam, multi_tensor_adam)
