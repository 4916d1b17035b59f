"""The fused steps of torch's optimisers, ``torch._fused_adam_`` and the like, as operators.

The formulas are those of ``_single_tensor_adam`` and ``_single_tensor_sgd`` (``torch/optim``), with factors
in float64, as in the kernels.
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import UnsupportedOperator
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names


def _refuse_scaling(grad_scale: Any, found_inf: Any) -> None:
    if grad_scale is not None or found_inf is not None:
        raise UnsupportedOperator(
            "a fused step of an optimiser with the scale of a GradScaler",
            hint="Call scaler.unscale_(optimizer) before the step, or the step outside of the program.",
        )


def _adam(
    params: Any,
    grads: Any,
    exp_avgs: Any,
    exp_avg_sqs: Any,
    max_exp_avg_sqs: Any,
    state_steps: Any,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    decoupled: bool,
) -> None:
    for i, (param, grad, mean, square) in enumerate(zip(params, grads, exp_avgs, exp_avg_sqs, strict=True)):
        grad = ltorch.neg(grad) if maximize else grad
        if weight_decay != 0:
            if decoupled:
                ltorch.mul_(param, 1 - lr * weight_decay)
            else:
                grad = ltorch.add(grad, param, alpha=weight_decay)
        ltorch.lerp_(mean, grad, 1 - beta1)
        ltorch.addcmul_(ltorch.mul_(square, beta2), grad, grad, value=1 - beta2)
        if amsgrad:
            ltorch.copy_(max_exp_avg_sqs[i], ltorch.maximum(max_exp_avg_sqs[i], square))
            square = max_exp_avg_sqs[i]
        step = ltorch.to(state_steps[i], torch.float64)
        correction1, correction2 = 1 - beta1**step, 1 - beta2**step
        denominator = ltorch.sqrt(square) / ltorch.sqrt(correction2) + eps
        ltorch.sub_(param, (lr / correction1) * (mean / denominator))


def _of_adam(name: str, *, decoupled: bool) -> None:
    @torch_names(f"torch.{name}")
    def step(*lists: Any, grad_scale: Any = None, found_inf: Any = None, **settings: Any) -> None:
        _refuse_scaling(grad_scale, found_inf)
        _adam(*lists, decoupled=decoupled, **settings)


_of_adam("_fused_adam_", decoupled=False)
_of_adam("_fused_adamw_", decoupled=True)


@torch_names("torch._fused_sgd_")
def _sgd(
    params: Any,
    grads: Any,
    momentum_buffer_list: Any,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    """Do a step of stochastic gradient descent on each parameter."""
    _refuse_scaling(grad_scale, found_inf)
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        grad = ltorch.neg(grad) if maximize else grad
        if weight_decay != 0:
            grad = ltorch.add(grad, param, alpha=weight_decay)
        if momentum != 0:
            buffer = momentum_buffer_list[i]
            if is_first_step:
                ltorch.copy_(buffer, grad)
            else:
                ltorch.add_(ltorch.mul_(buffer, momentum), grad, alpha=1 - dampening)
            grad = ltorch.add(grad, buffer, alpha=momentum) if nesterov else buffer
        ltorch.sub_(param, grad * lr)
