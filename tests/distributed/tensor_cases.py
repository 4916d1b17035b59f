"""Training with parameters in parts, compared with one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import thunder
from distributed.attention_models import COLUMNS, ROWS, pages, reader
from distributed.launching import case, message
from distributed.small_models import batches, words
from distributed.training_cases import distance
from thunder.distributed import column_parallel, communication, row_parallel

STEPS = 20
WORDS_COLUMNS, WORDS_ROWS = ["blocks.*.up", "head"], ["blocks.*.down", "embedding"]


def in_parts(columns=COLUMNS, rows=ROWS, group=None, sequence_dim=None) -> list[Any]:
    """Return the transforms that divide the layers of a model."""
    return [
        column_parallel(target_modules=columns, process_group=group),
        row_parallel(target_modules=rows, process_group=group, sequence_dim=sequence_dim),
    ]


def losses_of(model: Any, batches: Any, accumulated: int = 1, clip: Any = None) -> Any:
    """Return the losses of training a model, the gradients of its first step, and the norms of gradients."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    losses, first, norms = [], {}, []
    for index, batch in enumerate(batches):
        torch.manual_seed(index)
        loss = model(*batch)
        (loss / accumulated).backward()
        losses.append(loss.item())
        if (index + 1) % accumulated:
            continue
        if not first:
            first = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        if clip is not None:
            norms.append(clip(model, 0.1).item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, first, norms


def whole_gradients(compiled: Any, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the gradients of whole parameters from those of parts, as a state dict is made whole."""
    gradients = dict(gradients)
    for transform in reversed(thunder.list_transforms(compiled)):
        gradients = transform.reverse_transform_state_dict_for_submodule(compiled, "", gradients)
    return gradients


def compared(
    transforms: list[Any],
    make: Callable[[], Any] = reader,
    data: Any = None,
    own: Callable[[Any], Any] = lambda batch: batch,
    replicas: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """Return the differences of training by transforms from training in one process, and the collectives."""
    data = pages(STEPS, 4) if data is None else data
    plain, model = make(), make()
    clips = options.pop("clip", (None, None))
    expected = losses_of(plain, data, clip=clips[0], **options)
    compiled = thunder.jit(model, transforms=transforms)
    losses, first, norms = losses_of(compiled, [own(batch) for batch in data], clip=clips[1], **options)
    means = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(means)
    means /= dist.get_world_size()
    return {
        "losses": (means - torch.tensor(expected[0], dtype=torch.float64)).abs().max().item(),
        "gradients": distance(whole_gradients(compiled, first), expected[1]),
        "norms": max([0.0, *(abs(a - b) for a, b in zip(norms, expected[2], strict=True))]),
        "state": distance(compiled.original_state_dict(), plain.state_dict()),
        "collectives": [c.name for c in communication(compiled)],
        "sums": {c.shape for c in communication(compiled) if c.name == "all_reduce"},
        "compiles": thunder.cache_misses(compiled),
        "attributes": sorted(vars(model)) == sorted(vars(make())),
    }


@case
def tensor_parallel():
    return compared(in_parts())


@case
def sequence_parallel():
    return compared(in_parts(sequence_dim=-2), lambda: reader(dropout=0.2))


@case
def uneven_tensor_parallel():
    """Widths of 11, a table of 7 words, a tied and a frozen parameter."""
    return compared(in_parts(WORDS_COLUMNS, WORDS_ROWS), words, batches(STEPS, 3))


@case
def dropped_tensor_parallel():
    return compared(in_parts(), lambda: reader(dropout=0.2), accumulated=2)


@case
def draws_that_differ():
    """Dropout is drawn by processes with other seeds, and then with the same one."""
    compiled = thunder.jit(reader(dropout=0.2), transforms=in_parts())
    (batch,) = pages(1, 2)
    torch.manual_seed(dist.get_rank())
    error = message(compiled, *batch)
    torch.manual_seed(3)
    return error, compiled(*batch).item(), communication(compiled)[0].signature
