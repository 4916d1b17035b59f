"""How torch distributes the demo's Llama: what `distributed_training.py` compares thunder with.

Each function prepares a model for the processes of a group, and returns a training step as `Training` is one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.tensor.experimental._context_parallel._attention as ring
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from demo import loss_of
from llama import Attention, Llama, rotate

__all__ = [
    "Training",
    "first_blocks",
    "of_forward",
    "with_context",
    "with_ddp",
    "with_fsdp",
    "with_pipeline",
    "with_tensor",
]

COLUMNS: Final = (
    "attention.query",
    "attention.key",
    "attention.value",
    "network.gate",
    "network.up",
)
ROWS: Final = ("attention.output", "network.down")


class Training(NamedTuple):
    """A distributed training: what takes part in a step before the optimizer, and what the optimizer gets.

    `gradients(tokens, targets)` adds the gradients to those of the parameters, and returns this process's
    loss; the mean of those of all processes is the loss of the batch.
    """

    gradients: Callable[[Tensor, Tensor], Tensor]
    parameters: Iterable[nn.Parameter]


def of_forward(module: nn.Module) -> Training:
    """Return the training of a module that returns logits."""

    def gradients(tokens: Tensor, targets: Tensor) -> Tensor:
        loss = loss_of(module, tokens, targets)
        loss.backward()
        return loss.detach()

    return Training(gradients, module.parameters())


def _replicated(module: nn.Module) -> nn.Module:
    """Return a module in torch's DistributedDataParallel, without copies of gradients and buffers."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer torch has another name
        return DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)


def with_ddp(model: Llama) -> Training:
    """Train with torch's DistributedDataParallel."""
    return of_forward(_replicated(model))


def with_fsdp(model: Llama, reshard_after_forward: bool) -> Training:
    """Train with torch's FSDP2: the parameters of a block are gathered together."""
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard_after_forward)
    fully_shard(model, reshard_after_forward=reshard_after_forward)
    return of_forward(model)


# -- tensor parallelism --------------------------------------------------------------------------------------


class PartOfAttention(Attention):
    """Attention with the heads that a process has: torch's layers return the part of it."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The same as for all heads, but for the width of the result."""
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.head_width).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        result: Tensor = self.output(y.transpose(1, 2).reshape(batch, length, -1))
        return result


def with_tensor(model: Llama) -> Training:
    """Train with torch's `parallelize_module`: layers in columns and rows."""
    for block in model.blocks:
        block.attention.__class__ = PartOfAttention
    plan: dict[str, Any] = {f"blocks.*.{name}": ColwiseParallel() for name in COLUMNS}
    plan |= {f"blocks.*.{name}": RowwiseParallel() for name in ROWS}
    # one all-reduce for the gradients of all layers that read a value
    for name, others in (("attention", (None, None)), ("network", ())):
        whole = (Replicate(), *others)
        plan[f"blocks.*.{name}"] = PrepareModuleInput(input_layouts=whole, desired_input_layouts=whole)
    parallelize_module(model, _mesh(), plan)
    return of_forward(model)


def _mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


# -- context parallelism -------------------------------------------------------------------------------------

_aten = torch.ops.aten


class RingOnCPU(torch.autograd.Function):
    """torch's ring attention with its kernels of the CPU, which its `context_parallel` does not know yet."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the causal attention of this process's part of the sequence."""
        kernel: Any = _aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = ring._templated_ring_attention(_group(), 2, kernel, q, k, v, is_causal=True)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients of queries, keys and values."""
        q, k, v, out, lse = ctx.saved_tensors
        kernel: Any = _aten._scaled_dot_product_flash_attention_for_cpu_backward
        return ring._templated_ring_attention_backward(
            _group(), 2, kernel, g, "grad_out", q, k, v, out, lse, is_causal=True, dropout_p=0.0
        )


def _group() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None, "there is a process group"
    return group


class AttentionOfRing(Attention):
    """Attention to the keys of all processes."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The same as in one process, for a part of the sequence."""
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.key(x).view(batch, length, self.groups, self.head_width).transpose(1, 2)
        v = self.value(x).view(batch, length, self.groups, self.head_width).transpose(1, 2)
        y = RingOnCPU.apply(rotate(q, cos, sin), rotate(k, cos, sin), v)  # type: ignore[no-untyped-call]
        result: Tensor = self.output(y.transpose(1, 2).reshape(batch, length, width))
        return result


def with_context(model: Llama) -> Training:
    """Train with torch's `context_parallel`, whose gradients are averaged by DistributedDataParallel."""
    for block in model.blocks:
        block.attention.__class__ = AttentionOfRing
    mesh, module = _mesh(), _replicated(model)

    def gradients(tokens: Tensor, targets: Tensor) -> Tensor:
        buffers = [tokens.clone(), targets.clone(), model.cos, model.sin]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0, 0]):
            loss = loss_of(module, *buffers[:2])
            loss.backward()
        return loss.detach()

    return Training(gradients, module.parameters())


# -- pipelines -----------------------------------------------------------------------------------------------


def first_blocks(layers: int, stages: int) -> list[int]:
    """Return the first block of each stage."""
    return [layers * stage // stages for stage in range(stages)]


class StageOfLlama(nn.Module):
    """The blocks of a stage; the first one has the embedding, too, the last one the head."""

    cos: Tensor
    sin: Tensor

    def __init__(self, model: Llama, stage: int, stages: int) -> None:
        super().__init__()
        begins = [*first_blocks(len(model.blocks), stages), len(model.blocks)]
        self.embedding = model.embedding if stage == 0 else nn.Identity()
        self.blocks = model.blocks[begins[stage] : begins[stage + 1]]
        is_last = stage == stages - 1
        self.norm: nn.Module = model.norm if is_last else nn.Identity()
        self.head: nn.Module = model.head if is_last else nn.Identity()
        self.register_buffer("cos", model.cos, persistent=False)
        self.register_buffer("sin", model.sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens or activations to activations or logits."""
        length = x.shape[1]
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        result: Tensor = self.head(self.norm(x))
        return result


def with_pipeline(model: Llama, schedule: str, microbatches: int) -> Training:
    """Train with torch's pipelining, by the schedule "gpipe" or "1f1b"."""
    rank, size = dist.get_rank(), dist.get_world_size()
    module = StageOfLlama(model, rank, size)
    stage = PipelineStage(module, rank, size, torch.device("cpu"))

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule]
    steps = kind(stage, microbatches, loss_fn=loss)

    def gradients(tokens: Tensor, targets: Tensor) -> Tensor:
        losses: list[Tensor] = []
        steps.step(
            *((tokens,) if rank == 0 else ()), target=targets if rank == size - 1 else None, losses=losses
        )
        # the last process has the losses of all
        return torch.stack(losses).mean() * size if losses else torch.zeros(())

    return Training(gradients, module.parameters())
