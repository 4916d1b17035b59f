"""Programs that are run by gloo processes, and by ranks in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import thunder
from distributed.attention_models import pages, reader
from distributed.launching import sliced
from distributed.small_models import batches, part, words
from distributed.tensor_cases import in_parts
from thunder.distributed import FSDPBucketingStrategy, FSDPType, clip_grad_norm_, communication, ddp, fsdp

STEPS = 6


def trained(transforms: list[Any], model: Any, data: Any, accumulated: int = 1) -> dict[str, Any]:
    """Return what training gives in this process: losses, gradients, parameters, collectives, a draw."""
    compiled = thunder.jit(model, transforms=transforms)
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.AdamW([p for p in compiled.parameters() if p.requires_grad], lr=0.01)
    losses, norms = [], []
    for index, batch in enumerate(data):
        if (index + 1) % accumulated:
            with compiled.no_sync():
                compiled(*batch).backward()
            continue
        loss = compiled(*batch)
        loss.backward()
        losses.append(loss.item())
        norms.append(clip_grad_norm_(compiled, 1.0).item())
        gradients = {name: p.grad.clone() for name, p in compiled.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
    return {
        "losses": torch.tensor(losses),
        "norms": torch.tensor(norms),
        "collectives": [c.signature for c in communication(compiled)],
        "draw": torch.rand(3),
        **gradients,
        **{f"{name} (state)": p for name, p in compiled.original_state_dict().items()},
    }


def replicated(transform: Callable[[], Any], accumulated: int = 1) -> dict[str, Any]:
    """Train on this rank's part of each batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = [part(batch, rank, size) for batch in batches(STEPS, 3, size)]
    return trained([transform()], words(), data, accumulated)


def divided() -> dict[str, Any]:
    """Train with layers in parts on whole batches."""
    return trained(in_parts(), reader(), pages(STEPS, 2))


PROGRAMS = {
    "ddp": partial(replicated, partial(ddp, bucket_size_in_mb=0.0005)),
    "zero2": partial(replicated, fsdp),
    "zero3 by block": partial(
        replicated,
        partial(fsdp, sharding_strategy=FSDPType.ZERO3, bucketing_strategy=FSDPBucketingStrategy.BLOCK),
    ),
    "zero2 accumulated": partial(replicated, fsdp, accumulated=2),
    "tensor parallel": divided,
}


#: what a test calls the programs, of which a default run has some
NAMES = sliced(3, {f"ranks: {name}": program for name, program in PROGRAMS.items()}, start=2)
