"""Training in two processes, compared with one process on the joined batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import thunder
from distributed.launching import CASES, case
from distributed.small_models import batches, part, words
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    Machine,
    clip_grad_norm_,
    communication,
    ddp,
    fsdp,
    skip_data_parallel_grad_sync,
)

STEPS = 20
STRATEGIES = {
    "ddp-none": lambda: ddp(bucket_size_in_mb=0),
    "ddp-small": lambda: ddp(bucket_size_in_mb=0.0005),
    "ddp-large": ddp,
    **{
        f"{level.name}-{bucket.name}".lower(): partial(
            fsdp, sharding_strategy=level, bucketing_strategy=bucket
        )
        for level in FSDPType
        for bucket in FSDPBucketingStrategy
    },
}


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of two dictionaries of tensors."""
    assert left.keys() == right.keys()
    return max((left[name] - right[name]).abs().max().item() for name in left)


def whole_gradients(compiled: Any) -> dict[str, torch.Tensor]:
    """Return the gradients of the whole parameters."""
    transform = thunder.list_transforms(compiled)[0]
    gradients = {name: p.grad for name, p in compiled.named_parameters() if p.grad is not None}
    if isinstance(transform, thunder.distributed.DDPTransform):
        return {name: gradient.clone() for name, gradient in gradients.items()}
    whole = {}
    for name, gradient in gradients.items():
        layout = transform.layouts[name]
        gathered = [torch.empty_like(gradient) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, gradient)
        parts = [gathered[rank] for rank in layout.members.ranks]
        whole[name] = layout.whole(torch.cat(parts))
    return whole


def reference(clip: float | None = None, accumulated: int = 1) -> Any:
    """Return losses, the gradients of the first step, norms and final state of one process."""
    model, losses, first, norms = words(), [], {}, []
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for index, batch in enumerate(batches(STEPS, 3, dist.get_world_size())):
        loss = model(*batch)
        (loss / accumulated).backward()
        losses.append(loss.item())
        if (index + 1) % accumulated:
            continue
        if not first:
            first = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        if clip is not None:
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, first, norms, {name: p.detach() for name, p in model.state_dict().items()}


def trained(
    transform: Any, clip: float | None = None, accumulated: int = 1, skip: Any = None, **options: Any
) -> dict[str, Any]:
    """Return the differences from one process, and the collectives of a step."""
    expected = reference(clip, accumulated)
    model = words()
    compiled, rank = thunder.jit(model, transforms=transform, **options), dist.get_rank()
    size = dist.get_world_size()
    optimizer = torch.optim.AdamW([p for p in compiled.parameters() if p.requires_grad], lr=0.01)
    losses, first, norms, sent = [], {}, [], []
    for index, batch in enumerate(batches(STEPS, 3, size)):
        if (index + 1) % accumulated:
            with skip() if skip is not None else compiled.no_sync():
                loss = compiled(*part(batch, rank, size))
                (loss / accumulated).backward()
        else:
            loss = compiled(*part(batch, rank, size))
            (loss / accumulated).backward()
        sent.append([c.name for c in communication(compiled)])
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
        if (index + 1) % accumulated:
            continue
        first = first or whole_gradients(compiled)
        if clip is not None:
            norms.append(clip_grad_norm_(compiled, clip).item())
        optimizer.step()
        optimizer.zero_grad()
    return {
        "losses": max(abs(a - b) for a, b in zip(losses, expected[0], strict=True)),
        "gradients": distance(first, expected[1]),
        "norms": max([0.0, *(abs(a - b) for a, b in zip(norms, expected[2], strict=True))]),
        "state": distance(compiled.original_state_dict(), expected[3]),
        "collectives": sent,
        "compiles": thunder.cache_misses(compiled),
        "attributes": sorted(vars(model)) == sorted(vars(words())),
    }


for _name, _strategy in STRATEGIES.items():
    CASES[f"trained {_name}"] = lambda _strategy=_strategy: trained(_strategy())


@case
def scheduled_fsdp():
    """Several gathers ahead, within a limit of bytes, as late as the figures of a machine allow."""
    machine = Machine(flops={"f64": 1e9}, bandwidth=1e9, within=1e6, between=1e6)
    zero3 = fsdp(sharding_strategy=FSDPType.ZERO3)
    return trained(zero3, overlap_collectives=4, overlap_bytes=1500, overlap_machine=machine)


@case
def clipped_fsdp():
    return trained(fsdp(), clip=0.1)


@case
def clipped_ddp():
    return trained(ddp(), clip=0.1)


@case
def accumulated_fsdp():
    bucketing = FSDPBucketingStrategy.BLOCK
    return trained(fsdp(sharding_strategy=FSDPType.ZERO3, bucketing_strategy=bucketing), accumulated=4)


@case
def accumulated_ddp():
    return trained(ddp(), accumulated=2)


@case
def skipped_ddp():
    return trained(ddp(), accumulated=2, skip=skip_data_parallel_grad_sync)


@case
def processes_begin_with_the_values_of_one():
    result = []
    for transform in (ddp(broadcast_from=1), fsdp(broadcast_from=1)):
        compiled = thunder.jit(words(seed=dist.get_rank()), transforms=[transform])
        result.append(distance(compiled.original_state_dict(), words(seed=1).state_dict()))
    return result
