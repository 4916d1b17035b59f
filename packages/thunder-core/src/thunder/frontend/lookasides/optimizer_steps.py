"""Steps of torch's optimisers: the helpers of ``torch/optim`` that look at tensors.

Where torch compiles a step, these keep the number of the step in a tensor. Here a number out of a tensor is a
value of the program, which computes with it as eager does, in float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy

TABLE = LookasideTable()


@TABLE.lookaside(torch_optimizer._get_value)
def _get_value(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (x,) = args
    return session.call(torch.Tensor.item, (x,), {}) if isinstance(x, TensorProxy) else x


@TABLE.lookaside(torch_optimizer._stack_if_compiling)
def _stack_if_compiling(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@TABLE.lookaside(torch._C._group_tensors_by_device_and_dtype)
def _group_tensors(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return lists of tensors by the device and dtype of the first list's."""

    def group(tensorlistlist: Any, with_indices: bool = False) -> Any:
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

    return group(*args, **kwargs)
