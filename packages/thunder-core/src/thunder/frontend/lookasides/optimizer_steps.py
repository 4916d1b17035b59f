"""Steps of torch's optimisers: the helpers of ``torch/optim`` that look at tensors.

Where torch compiles a step, these keep the number of the step in a tensor. Here a number out of a tensor is a
value of the program, which computes with it as eager does, in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy

TABLE = LookasideTable(COMPUTES)


@TABLE.with_parameters(torch_optimizer._get_value)
def _get_value(session: TracingSession, x: Any) -> Any:
    return session.call(torch.Tensor.item, (x,), {}) if isinstance(x, TensorProxy) else x


@TABLE.lookaside(torch_optimizer._stack_if_compiling)
def _stack_if_compiling(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@TABLE.with_parameters(torch._C._group_tensors_by_device_and_dtype)
def _group_tensors(session: TracingSession, tensorlistlist: Any, with_indices: bool = False) -> Any:
    """Return lists of tensors by the device and dtype of the first list's."""
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for i, first in enumerate(tensorlistlist[0]):
        key = session.load_attr(first, "device"), session.load_attr(first, "dtype")
        lists, places = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for tensors, members in zip(tensorlistlist, lists, strict=True):
            if len(tensors) > 0:
                members.append(tensors[i])
        if with_indices:
            places.append(i)
    return groups


# -- scaled gradients: the kernels of torch.amp.GradScaler ---------------------------------------------------


@TABLE.with_parameters(torch._amp_foreach_non_finite_check_and_unscale_)
def _unscale(session: TracingSession, gradients: Any, found: Any, factor: Any) -> None:
    """Multiply gradients by a number in place, and note whether one of them is not finite."""
    for gradient in gradients:
        found.copy_(torch.where(gradient.isfinite().all(), found, 1.0))
        gradient.mul_(factor)


@TABLE.with_parameters(torch._amp_update_scale_)
def _update_scale(
    session: TracingSession,
    scale: Any,
    tracker: Any,
    found: Any,
    growth: float,
    backoff: float,
    interval: int,
) -> Any:
    """Let the scale fall after a step that was skipped, and grow after an interval of steps."""
    successful = tracker + 1
    grown = torch.where((scale * growth).isfinite(), scale * growth, scale)
    kept = torch.where(successful == interval, grown, scale)
    next_scale = torch.where(found != 0, scale * backoff, kept)
    tracker.copy_(torch.where((found != 0) | (successful == interval), 0, successful))
    return scale.copy_(next_scale)
