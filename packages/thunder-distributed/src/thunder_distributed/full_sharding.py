"""`fsdp`: data parallelism with fully sharded parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module

from .buckets import buckets_of_modules, checked_size, within_bytes
from .data_parallel import DataParallel
from .forms import forms_of
from .layouts import DistParallelType, FSDPBucketingStrategy, FSDPType, Layout
from .process_groups import process_device

__all__ = ["FSDPTransform", "fsdp"]


class FSDPTransform(DataParallel):
    """Fully sharded data parallelism: each process has a part of the rows of each parameter.

    A parameter is gathered before its first use; its gradient is averaged over the processes, and each
    process gets its part. The parts are the parameters of the compiled module: `compiled.parameters()` is
    what an optimizer takes. Each process computes the loss of its part of the batch. Gradients are those of
    the mean of the losses.

    Args:
        device: where parts and buffers are; None for the accelerator of this process, or the CPU if there is
            none. Parameters on the meta device stay there, for a `MaterializationTransform` after this one.
        broadcast_from: the rank of the group whose parameters and buffers all processes begin with; None:
            they are equal already.
        sharding_strategy: whether a backward keeps the whole parameters or gathers them again.
        bucketing_strategy: which parameters are gathered together, and their gradients reduced.
        bucket_size_in_mb: the most megabytes (2**20 bytes) of whole parameters, and of gradients, that are
            communicated together; None for any number. A bucket that has more becomes several.
        move_state_dict_to_cpu: whether `original_state_dict` returns tensors on the CPU.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        release: drop the memory of the original parameters. The module itself can no longer be called.
    """

    made_by = "fsdp"
    identified_by = ("distribution", "sharding_strategy")
    kind = DistParallelType.FULLY_SHARDED

    def __init__(
        self,
        *,
        device: torch.device | str | None = None,
        broadcast_from: int | None = None,
        sharding_strategy: FSDPType = FSDPType.ZERO2,
        bucketing_strategy: FSDPBucketingStrategy = FSDPBucketingStrategy.NONE,
        move_state_dict_to_cpu: bool | None = None,
        process_group: Any = None,
        release: bool = False,
        bucket_size_in_mb: float | None = None,
    ) -> None:
        for name, value, kind in (
            ("sharding_strategy", sharding_strategy, FSDPType),
            ("bucketing_strategy", bucketing_strategy, FSDPBucketingStrategy),
        ):
            if not isinstance(value, kind):
                members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
                raise InvalidArgument(f"{name}={value!r} is not a {kind.__name__}", hint=f"Write {members}.")
        super().__init__(process_group, broadcast_from)
        self.device = None if device is None else torch.device(device)
        self.sharding_strategy, self.bucketing_strategy = sharding_strategy, bucketing_strategy
        self.move_state_dict_to_cpu, self.release = bool(move_state_dict_to_cpu), release
        self.bucket_size_in_mb = None if bucket_size_in_mb is None else checked_size(bucket_size_in_mb)

    def buckets(self, model: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return the buckets of the strategy, within the limit of bytes."""
        buckets = buckets_of_modules(get_thunder_module(model), parameters, self.bucketing_strategy)
        if self.bucket_size_in_mb is None:
            return buckets
        return within_bytes(buckets, parameters, self.bucket_size_in_mb * 2**20)

    def transform_module(self, model: Any) -> None:
        """Shard the parameters, and move the buffers."""
        self.device = process_device() if self.device is None else self.device
        super().transform_module(model)
        for name, buffer in list(model.named_buffers()):
            if not buffer.is_meta and buffer.device != self.device:
                buffer = buffer.to(self.device)
                model.override(name, buffer)
            self.broadcast(buffer)

    def distribute(self, model: Any, layout: Layout, parameter: nn.Parameter) -> None:
        """Put the part of this process into use, on the device."""
        self.check_hooks(layout.name, parameter)
        if not parameter.is_meta and self.broadcast_from is not None:
            moved = parameter.detach().to(self.device, copy=True)
            self.broadcast(moved)
            part = layout.shard(moved)
        else:
            part = layout.shard(parameter)
        if not parameter.is_meta:
            part = part.to(self.device)
        model.override(layout.name, nn.Parameter(part, requires_grad=parameter.requires_grad))
        if self.release and not parameter.is_meta:
            model.release_original(layout.name)

    def recomputes(self) -> bool:
        """Return whether the strategy is ZERO3."""
        return self.sharding_strategy is FSDPType.ZERO3


fsdp = forms_of(FSDPTransform, "fully sharded data parallelism")
