"""The common part of `ddp` and `fsdp`: parameters that a program reads are synchronised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module
from thunder.core.rewrite import module_tensors, replace_input
from thunder.core.trace import TraceCtx

from .gradient_synchronization import GradientMode, SynchronizationSwitch
from .layouts import DistParallelType, Layout, memory_order
from .process_groups import Members, group_named, members_of
from .stages import add_stages
from .synchronization import synchronize

__all__ = ["DataParallel", "layouts_of"]


class DataParallel(thunder.Transform, ABC):
    """The common part: parameters that a program reads are synchronised, and so are their gradients.

    Args:
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            each has its own.
    """

    #: the function that makes the transform, for messages
    made_by: str
    kind: DistParallelType

    def __init__(self, process_group: Any, broadcast_from: int | None) -> None:
        self.process_group, self.broadcast_from = process_group, broadcast_from
        #: dotted name of a parameter → its layout; a tied one is there under one name
        self.layouts: dict[str, Layout] = {}
        #: dotted name of a parameter → all names under which the module has it
        self._names: dict[str, list[str]] = {}
        self._switch = SynchronizationSwitch()
        self._members: Members | None = None

    # -- what a subclass defines

    @abstractmethod
    def buckets(self, model: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return the bucket of each parameter that is communicated with others."""

    @abstractmethod
    def distribute(self, model: Any, layout: Layout, parameter: nn.Parameter) -> None:
        """Put what this process has of a parameter into use."""

    def recomputes(self) -> bool:
        """Return whether a backward computes whole parameters again."""
        return True

    def is_synchronized(self, parameter: torch.Tensor) -> bool:
        """Return whether a program synchronises a parameter."""
        return True

    # -- hooks

    @property
    def members(self) -> Members:
        """The processes of the group."""
        if self._members is None:
            self._members = members_of(self.process_group, self.made_by)
        return self._members

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module, or without a process group."""
        module = get_thunder_module(fn)
        if not isinstance(module, nn.Module):
            raise InvalidArgument(
                f"{self.made_by} distributes the parameters of a module, and {fn!r} is not one",
                hint="Compile the module that has the parameters.",
            )
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if isinstance(tensor, DTensor):
                raise InvalidArgument(
                    f"{self.made_by} received a module with the DTensor {name}: it is distributed already",
                    hint="Leave out fully_shard or distribute_module of torch.",
                )
        if self.broadcast_from is not None and not 0 <= self.broadcast_from < self.members.size:
            raise InvalidArgument(
                f"broadcast_from={self.broadcast_from!r} is not a rank of the group",
                found={"processes": self.members.size},
            )
        group_named(self.members.group)

    def transform_module(self, model: Any) -> None:
        """Lay out the parameters, one after the other."""
        self._check_order(thunder.list_transforms(model))
        parameters = dict(_distributed_parameters(model))
        buckets = self.buckets(model, parameters)
        for name, parameter in parameters.items():
            if parameter.numel() == 0:
                continue
            self.layouts[name] = layout = Layout(
                name=name,
                kind=self.kind,
                members=self.members,
                shape=tuple(parameter.shape),
                order=memory_order(parameter),
                bucket=buckets.get(name),
            )
            self._names[name] = _names_of(model, name, parameter)
            self.distribute(model, layout, parameter)

    def _check_order(self, transforms: Sequence[thunder.Transform]) -> None:
        """Raise InvalidArgument if parameters are replicated before they are sharded."""
        later = transforms[list(transforms).index(self) + 1 :]
        if self.kind is DistParallelType.REPLICATED and any(map(_shards, later)):
            raise InvalidArgument(
                "ddp comes before fsdp in the list of transforms",
                hint="Parameters are sharded first, and the parts replicated: "
                "transforms=[fsdp(process_group=…), ddp(process_group=…)].",
            )

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Copy the values of the chosen rank into a tensor, if there is one."""
        if self.broadcast_from is None or tensor.is_meta:
            return
        group = group_named(self.members.group)
        source = self.members.ranks[self.broadcast_from]
        values = tensor.detach().contiguous()
        dist.broadcast(values, src=source, group=group)
        if values.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(values)

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        """Let the program read synchronised parameters."""
        tensors, mode = module_tensors(prologue_trace), self._switch.mode
        self._check_all_are_distributed(tensors)
        for name, layout in self.layouts.items():
            for alias in self._names[name]:
                if alias in tensors and self.is_synchronized(tensors[alias]):
                    self._check_form(layout, tensors[alias])
                    compute, again = _synchronized(layout, mode), self.recomputes()
                    replace_input(prologue_trace, computation_trace, alias, compute, recompute=again)
        return prologue_trace, computation_trace, epilogue_trace

    def _check_all_are_distributed(self, tensors: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a parameter with a gradient that came after the others were laid out."""
        names = set[str]().union(*self._names.values())
        for name, tensor in tensors.items():
            if tensor.requires_grad and tensor.numel() and name not in names:
                raise InvalidArgument(
                    f"{name} requires grad, and came after {self.made_by} had distributed the parameters",
                    hint=f"Put {self.made_by}() after the transforms that add parameters, and compile again "
                    "after the module got one.",
                )

    def _check_form(self, layout: Layout, in_use: Any) -> None:
        """Raise InvalidArgument if the tensor in use is not the part that this transform has made."""
        sharded = layout.kind is DistParallelType.FULLY_SHARDED
        if sharded and tuple(in_use.shape) != layout.shard_shape:
            raise InvalidArgument(
                f"{layout.name} was changed after {self.made_by} had sharded it",
                found={"part": layout.shard_shape, "in use": tuple(in_use.shape)},
                hint=f"Put {self.made_by}() after the other transforms of weights in the list of transforms.",
            )

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stages that make collectives of buckets, overlap them, and compare them."""
        add_stages(pipeline)

    def cache_state(self) -> Mapping[str, Hashable]:
        """Return whether gradients are communicated."""
        return {"gradients": self._switch.mode}

    # -- gradients that are not communicated

    def no_sync(self) -> AbstractContextManager[None]:
        """Return the context in which calls of the module leave their gradients uncommunicated."""
        return self._switch.no_sync()


def layouts_of(compiled: Any) -> dict[str, Layout]:
    """Return the layout table of a compiled module: dotted name of a parameter → its layout.

    Of a parameter that several transforms lay out, it is the layout of the first one.
    """
    table: dict[str, Layout] = {}
    for transform in thunder.list_transforms(compiled):
        if isinstance(transform, DataParallel):
            table = {**transform.layouts, **table}
    return table


def _synchronized(layout: Layout, mode: GradientMode) -> Callable[[Any], Any]:
    """Return the function that records how the whole parameter is computed from what a process has."""

    def whole(part: Any) -> Any:
        arguments = (part, layout.members.group, layout.kind, layout.bucket, mode)
        value = synchronize(*arguments)
        return layout.whole(value) if layout.kind is DistParallelType.FULLY_SHARDED else value

    return whole


def _shards(transform: thunder.Transform) -> bool:
    """Return whether a transform shards parameters."""
    return isinstance(transform, DataParallel) and transform.kind is DistParallelType.FULLY_SHARDED


def _distributed_parameters(model: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters in use, each once, by the name under which it is in use."""
    seen: set[int] = set()
    for name in (*model.overrides, *(name for name, _ in model.named_parameters())):
        tensor = model.overrides.get(name)
        parameter = model.get_parameter(name) if tensor is None else tensor
        if isinstance(parameter, nn.Parameter) and id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter


def _names_of(model: Any, name: str, parameter: nn.Parameter) -> list[str]:
    """Return a name of a parameter and the others of the same one: a program reads it under any of them."""
    own = dict(get_thunder_module(model).named_parameters(remove_duplicate=False))
    original = own.get(name, parameter)  # an earlier transform may have put another one into use
    return [name, *(other for other, tied in own.items() if tied is original and other != name)]
