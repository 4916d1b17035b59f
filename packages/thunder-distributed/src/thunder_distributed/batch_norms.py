"""`SyncBatchNorm`: batch normalisation with the statistics of the batches of all processes.

The module of torch runs a kernel of CUDA in a class of its own. In programs it is computed from sums over the
processes (Ioffe and Szegedy, arXiv:1502.03167, algorithm 1), on every device. The batches may differ in size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.nn.modules.batchnorm import _BatchNorm

from .collectives import all_reduce

__all__ = ["synchronized_forward"]


def synchronized_forward(self: Any, input: torch.Tensor) -> torch.Tensor:
    """Return what `torch.nn.SyncBatchNorm.forward` does; `input` is (n, c, *), of any floating dtype."""
    self._check_input_dim(input)
    self._check_non_zero_input_channels(input)
    group: Any = self.process_group if self.process_group is not None else dist.group.WORLD
    if not self.training or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return _BatchNorm.forward(self, input)
    factor = self.momentum
    if self.track_running_stats:
        self.num_batches_tracked.add_(1)
        if factor is None:  # the mean of all batches
            factor = 1.0 / self.num_batches_tracked.double()
    x = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    dims = [dim for dim in range(x.ndim) if dim != 1]
    shape = [1, x.shape[1]] + [1] * (x.ndim - 2)
    count = torch.full((1,), float(x.numel() // x.shape[1]), dtype=x.dtype, device=x.device)
    name = distributed_c10d._get_process_group_name(group)
    sums = all_reduce(torch.cat([x.sum(dims), count]), name)
    total = sums[-1]
    centred = x - (sums[:-1] / total).view(shape)
    variance = all_reduce(centred.square().sum(dims), name) / total
    if self.track_running_stats:
        with torch.no_grad():
            mean, var = self.running_mean, self.running_var
            mean.mul_(1 - factor).add_((sums[:-1] / total).detach().to(mean.dtype) * factor)
            unbiased = (variance * (total / (total - 1))).detach()
            var.mul_(1 - factor).add_(unbiased.to(var.dtype) * factor)
    y = centred * torch.rsqrt(variance + self.eps).view(shape)
    if self.weight is not None:
        y = y * self.weight.view(shape)
    if self.bias is not None:
        y = y + self.bias.view(shape)
    result: torch.Tensor = y.to(input.dtype)
    return result
