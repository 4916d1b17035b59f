"""Clipping of gradients by their global norm, over the processes that have parts of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

import thunder
from thunder.core.errors import InvalidArgument

from .distribution import all_layouts_of
from .layouts import IN_PARTS
from .lost_processes import naming_missing
from .process_groups import group_named

__all__ = ["clip_grad_norm_"]


@torch.no_grad()
def clip_grad_norm_(compiled: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scale the gradients of a compiled module so that their norm is at most `max_norm`; return the norm.

    The norm is that of all gradients of the whole model, of which each process has a part: the same as
    `torch.nn.utils.clip_grad_norm_` computes in one process. Every process has to call it. Raises
    InvalidArgument for a module that is not compiled.
    """
    if not isinstance(compiled, thunder.ThunderModule):
        raise InvalidArgument(
            f"clip_grad_norm_ takes a compiled module, and received {type(compiled).__name__}",
            hint="torch.nn.utils.clip_grad_norm_ clips the gradients of one process.",
        )
    by_groups: dict[tuple[str, ...], list[torch.Tensor]] = {}
    layouts = all_layouts_of(compiled)
    gradients = []
    for name, parameter in compiled.named_parameters():
        if parameter.grad is None:
            continue
        groups = (layout.members.group for layout in layouts.get(name, ()) if layout.kind in IN_PARTS)
        by_groups.setdefault(tuple(groups), []).append(parameter.grad)
        gradients.append(parameter.grad)
    if not gradients:
        return torch.tensor(0.0)
    device = gradients[0].device
    parts = [_power_sum(tensors, norm_type, groups, device) for groups, tensors in by_groups.items()]
    totals = torch.stack(parts)
    norm = totals.max() if math.isinf(norm_type) else totals.sum() ** (1 / norm_type)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.to(gradient.device, gradient.dtype))
    return norm


def _power_sum(
    tensors: Iterable[torch.Tensor], norm_type: float, groups: Iterable[str], device: torch.device
) -> torch.Tensor:
    """Return the sum of the powers of the magnitudes over groups, or their maximum for infinity."""
    norms = torch.stack([torch.linalg.vector_norm(t, norm_type).to(device) for t in tensors])
    is_maximum = math.isinf(norm_type)
    total = norms.max() if is_maximum else (norms**norm_type).sum()
    op = dist.ReduceOp.MAX if is_maximum else dist.ReduceOp.SUM
    for group in groups:
        with naming_missing("the norm of all gradients", group):
            dist.all_reduce(total, op=op, group=group_named(group))
    return total
