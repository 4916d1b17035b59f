"""`synchronize`: from what a process has of a parameter to the whole parameter, and its gradient.

    w = synchronize(t_0_weight, '0', DistParallelType.FULLY_SHARDED)      all_gather; gradient: reduce_scatter
    b = synchronize(t_0_bias, '0', DistParallelType.REPLICATED)           itself; gradient: all_reduce

Gradients are divided by the number of processes before they are summed: they are those of the mean of the
losses of all processes. Where the processes have computed parts of one loss, they are summed alone.
"""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
from thunder.core.errors import InvalidArgument

from .collectives import all_gather, all_reduce, ex, reduce_scatter
from .gradient_synchronization import GradientMode, add_local_gradient, keep_local_gradient
from .layouts import DistParallelType
from .process_groups import group_size

__all__ = ["synchronize", "synchronize_gradient"]

_KINDS = (DistParallelType.REPLICATED, DistParallelType.FULLY_SHARDED)


def _synchronize(
    param: Any,
    group: str,
    kind: DistParallelType,
    bucket: str | None = None,
    gradient: GradientMode = GradientMode.SYNCHRONIZED,
) -> Any:
    if kind not in _KINDS:
        raise InvalidArgument(
            f"synchronize takes a replicated or a fully sharded parameter, and received {kind!r}"
        )
    if kind is DistParallelType.FULLY_SHARDED:
        return all_gather(param, group)
    return ltorch.view_as(param, param)


def _synchronize_gradient(
    g: Any, group: str, kind: DistParallelType, bucket: str | None = None, mean: bool = True
) -> Any:
    term = g / group_size(group) if mean else g
    return reduce_scatter(term, group) if kind is DistParallelType.FULLY_SHARDED else all_reduce(term, group)


def _gradient(c: Any) -> Any:
    """Return the gradient of what this process has of a parameter, from that of the whole one."""
    g = c.g
    if c.gradient is GradientMode.LOCAL:
        return keep_local_gradient(c.param, g, c.kind)
    if c.gradient is GradientMode.ACCUMULATED:
        g = add_local_gradient(c.param, g, c.kind)
    return synchronize_gradient(g, c.group, c.kind, c.bucket, True)


synchronize_gradient = ex.register_operator("synchronize_gradient", like=_synchronize_gradient)
synchronize = ex.register_operator("synchronize", like=_synchronize, vjp={"param": _gradient})
