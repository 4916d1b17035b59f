"""`ddp`: data parallelism with replicated parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .buckets import buckets_of_bytes, checked_size
from .data_parallel import DataParallel
from .forms import forms_of
from .layouts import DistParallelType, Layout

__all__ = ["DDPTransform", "ddp"]


class DDPTransform(DataParallel):
    """Data parallelism: parameters are replicated, and gradients are averaged over the processes.

    Each process computes the loss of its part of the batch. Gradients are those of the mean of the losses.
    They are communicated in buckets, each when the last gradient in it is computed.

    Args:
        broadcast_from: the rank of the group whose parameters and buffers are copied into those of all
            processes; None: they are equal already.
        bucket_size_in_mb: the most megabytes (2**20 bytes) of gradients that are communicated together.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
    """

    made_by = "ddp"
    identified_by = ("distribution",)
    kind = DistParallelType.REPLICATED

    def __init__(
        self,
        *,
        broadcast_from: int | None = 0,
        bucket_size_in_mb: float = 25.0,
        process_group: Any = None,
    ) -> None:
        super().__init__(process_group, broadcast_from)
        self.bucket_size_in_mb = checked_size(bucket_size_in_mb)

    def buckets(self, model: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return buckets of at most so many bytes, of the last parameters first."""
        return buckets_of_bytes(parameters, self.bucket_size_in_mb * 2**20)

    def transform_module(self, model: Any) -> None:
        """Lay out the parameters, and broadcast the buffers."""
        super().transform_module(model)
        for _, buffer in model.named_buffers():
            self.broadcast(buffer)

    def distribute(self, model: Any, layout: Layout, parameter: nn.Parameter) -> None:
        """Give the parameter the values of the chosen rank."""
        self.broadcast(parameter)

    def is_synchronized(self, parameter: torch.Tensor) -> bool:
        """Return whether a parameter has a gradient."""
        return parameter.requires_grad


ddp = forms_of(DDPTransform, "data parallelism")
