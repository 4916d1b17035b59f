"""A distributed module beside the same module in one process: what tools that compare the two ask.

All processes of the default group call these functions, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

import thunder
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx

from .collectives import ex
from .communication import calls_of_collectives
from .data_parallel import DataParallel
from .distribution import Distributing
from .division.programs import DIVISION
from .expert_parallel import DIVISION_OF_EXPERTS
from .gradient_synchronization import without_accumulation
from .layouts import IN_PARTS
from .lost_processes import finished, naming_missing
from .process_groups import Members, group_named, members_of
from .sequences.division import DIVISION_OF_SEQUENCES

__all__ = [
    "communicates",
    "distributes",
    "gathered_objects",
    "gradient_of_process",
    "of_process",
    "traces_of_process",
    "whole_tensors",
    "without_accumulation",
]

#: the passes after which values of the same names are those of one process
_DIVISIONS: Final = frozenset({DIVISION, DIVISION_OF_EXPERTS, DIVISION_OF_SEQUENCES})


def distributes(transforms: Iterable[thunder.Transform]) -> bool:
    """Return whether one of some transforms distributes a module over several processes."""
    return any(isinstance(t, Distributing) and t.members.size > 1 for t in transforms)


def communicates(bsym: BoundSymbol) -> bool:
    """Return whether a statement needs a process group: it communicates, or asks for its rank."""
    return bsym.sym.executor is ex or next(calls_of_collectives([bsym]), None) is not None


def gathered_objects(value: Any, purpose: str) -> list[Any]:
    """Return the objects of all processes, by rank. `purpose` is what needs them, for errors.

    Raises ProcessMissing with the rank that does not take part.
    """
    members = members_of(None, purpose)
    found: list[Any] = [None] * members.size
    with naming_missing(purpose, members.group):
        dist.all_gather_object(found, value)
    return found


def whole_tensors(compiled: Any) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers that one process would have, in new memory.

    A tied one is there once. Parameters require grad as those in use do.
    """
    state = compiled.original_state_dict()
    buffers = {name: state.get(name, buffer) for name, buffer in compiled.named_buffers()}
    return {name: buffer.detach().clone() for name, buffer in buffers.items()} | {
        name: state[name].detach().clone().requires_grad_(in_use.requires_grad)
        for name, in_use in compiled.named_parameters()
    }


def of_process(compiled: Any, name: str, whole: torch.Tensor) -> torch.Tensor:
    """Return what this process has of a whole parameter or buffer."""
    for _, layout in _layouts(compiled, name):
        whole = layout.shard(whole) if layout.kind in IN_PARTS else whole
    return whole


def gradient_of_process(compiled: Any, name: str, gradient: torch.Tensor) -> torch.Tensor:
    """Return what this process has of the gradient of the mean of the losses.

    `gradient` is that of its own loss with respect to a whole parameter.
    """
    for transform, layout in _layouts(compiled, name):
        if isinstance(transform, DataParallel):
            gradient = _mean(gradient, transform.members)
        gradient = layout.shard(gradient) if layout.kind in IN_PARTS else gradient
    return gradient


def _mean(gradient: torch.Tensor, members: Members) -> torch.Tensor:
    total = gradient.detach().clone(memory_format=torch.contiguous_format)
    with naming_missing("the mean of gradients", members.group):
        finished(dist.all_reduce(total, group=group_named(members.group), async_op=True), members.group)
    return total / members.size


def _layouts(compiled: Any, name: str) -> Iterable[tuple[Distributing, Any]]:
    """Yield the transforms that lay out a tensor, with its layouts, in the order of the transforms."""
    for transform in thunder.list_transforms(compiled):
        if isinstance(transform, Distributing):
            layout = transform.layouts_by_name().get(name)
            if layout is not None:
                yield transform, layout


def traces_of_process(compiled: Any, traces: Sequence[TraceCtx]) -> Sequence[TraceCtx]:
    """Return the traces of a compile whose values are those of this process, by the same names.

    In those before, parameters and what is computed with them are whole.
    """
    transforms = {type(t).__name__ for t in thunder.list_transforms(compiled) if isinstance(t, Distributing)}
    divided = [
        i
        for i, trace in enumerate(traces)
        if trace.provenance is not None and trace.provenance.pss in transforms | _DIVISIONS
    ]
    return traces[divided[-1] :] if divided else traces
