"""The common part of the transforms that distribute the parameters of a module over a group of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module

from .layouts import DistParallelType
from .process_groups import Members, group_named, members_of
from .stages import add_stages

__all__ = ["Distributing", "all_layouts_of", "distributed_parameters", "names_of"]


class Distributing(thunder.Transform):
    """A transform of a module, for the processes of a group.

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
        self._members: Members | None = None
        #: dotted name of a parameter → its layout; a tied one is there under one name
        self.layouts: dict[str, Any] = {}
        #: dotted name of a parameter → all names under which the module has it
        self._names: dict[str, list[str]] = {}

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

    def layouts_by_name(self) -> dict[str, Any]:
        """Return the layout of each parameter, under each of its names."""
        return {alias: self.layouts[name] for name, names in self._names.items() for alias in names}

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

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stages that make collectives of buckets, overlap them, and compare them."""
        add_stages(pipeline)


def all_layouts_of(compiled: Any) -> dict[str, tuple[Any, ...]]:
    """Return the layouts of each parameter of a compiled module, under each of its names.

    They are in the order of the transforms: each lays out what the one before it has left to this process.
    """
    table: dict[str, tuple[Any, ...]] = {}
    for transform in thunder.list_transforms(compiled):
        if isinstance(transform, Distributing):
            for name, layout in transform.layouts_by_name().items():
                table[name] = (*table.get(name, ()), layout)
    return table


def distributed_parameters(model: Any) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters in use, each once, by the name under which it is in use."""
    seen: set[int] = set()
    for name in (*model.overrides, *(name for name, _ in model.named_parameters())):
        tensor = model.overrides.get(name)
        parameter = model.get_parameter(name) if tensor is None else tensor
        if isinstance(parameter, nn.Parameter) and id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter


def names_of(model: Any, name: str, parameter: nn.Parameter) -> list[str]:
    """Return a name of a parameter and the others of the same one: a program reads it under any of them."""
    own = dict(get_thunder_module(model).named_parameters(remove_duplicate=False))
    original = own.get(name, parameter)  # an earlier transform may have put another one into use
    return [name, *(other for other, tied in own.items() if tied is original and other != name)]
