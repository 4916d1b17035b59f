"""Trains a model in several processes, beside one that trains it on the joined batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

import thunder
from thunder.distributed import clip_grad_norm_, communication

STEPS = 20


@dataclass
class Training:
    """A record of the losses, the gradients of the first step, and the norms of all gradients."""

    losses: list[float] = field(default_factory=list)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    #: the collectives of a step whose gradients were accumulated, if there was one
    local: list[str] = field(default_factory=list)


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of two dictionaries of tensors."""
    assert left.keys() == right.keys()
    values = ((left[name] - right[name]).abs() for name in left)
    return max((difference.max().item() for difference in values if difference.numel()), default=0.0)


def shapes_in_use(compiled: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what this process has of each tensor."""
    return {name: tuple(t.shape) for name, t in compiled.state_dict(keep_vars=True).items()}


def gradients_of(model: Any) -> dict[str, torch.Tensor]:
    """Return the gradients of whole parameters: those of parts are joined as a state dict is."""
    # what another process has of an expert is empty here, and has its gradient there
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    parts = {name: p.grad if p.numel() else p.detach() for name, p in trained}
    gradients = {name: g.clone() for name, g in parts.items() if g is not None}
    if isinstance(model, thunder.ThunderModule):
        for transform in reversed(thunder.list_transforms(model)):
            gradients = transform.reverse_transform_state_dict_for_submodule(model, "", gradients)
    return gradients


def clipped(model: Any, most: float) -> float:
    """Clip the gradients of a module or a compiled module; return the norm that they had."""
    if isinstance(model, thunder.ThunderModule):
        return clip_grad_norm_(model, most).item()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), most).item()


def training(
    model: Any,
    batches: Sequence[Any],
    accumulated: int = 1,
    clip: float | None = None,
    local: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Training:
    """Train a model; `local` is the context of batches whose gradients are accumulated for a later one."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    result = Training()
    for index, batch in enumerate(batches):
        torch.manual_seed(index)
        is_last = (index + 1) % accumulated == 0
        with nullcontext() if is_last else local():
            loss = model(*batch)
            (loss / accumulated).backward()
        result.losses.append(loss.item())
        if not is_last and index == 0 and isinstance(model, thunder.ThunderModule):
            result.local = [c.name for c in communication(model)]
        if is_last:
            result.gradients = result.gradients or gradients_of(model)
            if clip is not None:
                result.norms.append(clipped(model, clip))
            optimizer.step()
            optimizer.zero_grad()
    return result


def compared(
    plain: torch.nn.Module,
    model: torch.nn.Module,
    transforms: Any,
    batches: Sequence[Any],
    own: Callable[[Any], Any] = lambda batch: batch,
    local: Callable[[Any], AbstractContextManager[None]] | None = None,
    accumulated: int = 1,
    clip: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the largest differences of a training in all processes from that of one, and what was sent.

    `own` is the part of a batch that this process gets; `local` is called with the compiled module. The
    options are those of `thunder.jit`.
    """
    expected = training(plain, batches, accumulated, clip)
    attributes = sorted(vars(model))
    compiled = thunder.jit(model, transforms=transforms, **options)
    found = training(
        compiled,
        [own(batch) for batch in batches],
        accumulated,
        clip,
        nullcontext if local is None else lambda: local(compiled),
    )
    sent = communication(compiled)
    means = torch.tensor(found.losses, dtype=torch.float64)
    dist.all_reduce(means)
    means /= dist.get_world_size()
    return {
        "losses": (means - torch.tensor(expected.losses, dtype=torch.float64)).abs().max().item(),
        "gradients": distance(found.gradients, expected.gradients),
        "norms": max([0.0, *(abs(a - b) for a, b in zip(found.norms, expected.norms, strict=True))]),
        "state": distance(compiled.original_state_dict(), plain.state_dict()),
        "local": found.local,
        "collectives": [c.name for c in sent],
        "sums": {c.shape for c in sent if c.name == "all_reduce"},
        "compiles": thunder.cache_misses(compiled),
        "attributes": sorted(vars(model)) == attributes,
    }
