"""The common part of `ddp` and `fsdp`: parameters that a program reads are synchronised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

import thunder
from thunder.core.errors import InvalidArgument

from .distribution import Distributing, distributed_parameters, tied_names
from .gradient_synchronization import GradientMode, SynchronizationSwitch
from .layouts import DIVIDING, DistParallelType, Layout, memory_order
from .synchronization import synchronize

__all__ = ["DataParallel", "layouts_of", "shards"]


class DataParallel(Distributing, ABC):
    """The common part: parameters that a program reads are synchronised, and so are their gradients.

    Args:
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            each has its own.
    """

    keeps_sizes = True

    def __init__(self, process_group: Any, broadcast_from: int | None) -> None:
        super().__init__(process_group, broadcast_from)
        self.layouts: dict[str, Layout] = {}
        self._switch = SynchronizationSwitch()

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

    def transform_module(self, model: Any) -> None:
        """Lay out the parameters, one after the other."""
        self.check_order(thunder.list_transforms(model))
        self._check_copies(thunder.list_transforms(model))
        self.check_groups(model)
        self.check_weights(model)
        parameters = self.distributed(model)
        buckets, tied = self.buckets(model, parameters), tied_names(model)
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
            self._names[name] = tied(name)
            self.distribute(model, layout, parameter)
        self._known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        self.connect(model)

    def distributed(self, model: Any) -> dict[str, nn.Parameter]:
        """Return the parameters that this transform lays out, by the name under which each is in use.

        Others are divided among the same processes by a transform before it.
        """
        divided = {
            name
            for other in self.before(model)
            if other.members.ranks == self.members.ranks
            for name in other.divided_alone()
        }
        return {name: p for name, p in distributed_parameters(model) if name not in divided}

    def check_order(self, transforms: Sequence[thunder.Transform]) -> None:
        """Raise InvalidArgument for parameters that are replicated before they are sharded."""
        later = transforms[list(transforms).index(self) + 1 :]
        if self.kind is DistParallelType.REPLICATED and any(map(shards, later)):
            raise InvalidArgument(
                "ddp comes before fsdp in the list of transforms",
                hint="Parameters are sharded first, and the parts replicated: "
                "transforms=[fsdp(process_group=…), ddp(process_group=…)].",
            )

    def _check_copies(self, transforms: Sequence[thunder.Transform]) -> None:
        """Raise InvalidArgument for processes to which another transform gives parts of a parameter."""
        for other in transforms:
            if not isinstance(other, Distributing) or other.kind not in DIVIDING:
                continue
            if len({*other.members.ranks} & {*self.members.ranks}) > 1:
                raise InvalidArgument(
                    f"{self.made_by} takes processes for copies of each other that {other.made_by} gives "
                    "different parts of a parameter",
                    found={self.made_by: self.members.ranks, other.made_by: other.members.ranks},
                    hint="Give each its own dimension of a mesh: mesh = init_device_mesh(…, (2, 2), "
                    f'mesh_dim_names=("dp", "tp")); {other.made_by}(…, process_group=mesh["tp"]), '
                    f'{self.made_by}(process_group=mesh["dp"]).',
                )

    def computed(self, layout: Layout, in_use: Any) -> Callable[[Any], Any] | None:
        """Return what synchronises a parameter."""
        if not self.is_synchronized(in_use):
            return None
        self._check_form(layout, in_use)
        return _synchronized(layout, self._switch.mode)

    def _check_form(self, layout: Layout, in_use: Any) -> None:
        """Raise InvalidArgument if the tensor in use is not the part that this transform has made."""
        sharded = layout.kind is DistParallelType.FULLY_SHARDED
        if sharded and tuple(in_use.shape) != layout.shard_shape:
            raise InvalidArgument(
                f"{layout.name} was changed after {self.made_by} had sharded it",
                found={"part": layout.shard_shape, "in use": tuple(in_use.shape)},
                hint=f"Put {self.made_by}() after the other transforms of weights in the list of transforms.",
            )

    def cache_state(self) -> Mapping[str, Hashable]:
        """Return whether gradients are communicated."""
        return {**super().cache_state(), "gradients": self._switch.mode}

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


def shards(transform: thunder.Transform) -> bool:
    """Return whether a transform shards parameters."""
    return isinstance(transform, DataParallel) and transform.kind is DistParallelType.FULLY_SHARDED
