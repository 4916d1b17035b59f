"""Experts divided between processes, compared with one process on the joined batch."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import thunder
from distributed.launching import case
from distributed.training_cases import distance
from thunder.distributed import clip_grad_norm_, communication, expert_parallel

STEPS = 20


class Mixture(nn.Module):
    """A router, and experts whose rows are multiplied together, as transformers computes them."""

    def __init__(self, experts: int = 4, width: int = 6, chosen: int = 2) -> None:
        super().__init__()
        self.inner, self.router = nn.Linear(width, width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, 10, width) * 0.4)
        self.down = nn.Parameter(torch.randn(experts, 5, width) * 0.4)
        self.count, self.chosen = experts, chosen

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        weights, experts = self.router(x).softmax(-1).topk(self.chosen, -1)
        order = torch.argsort(experts.flatten())
        rows = x.repeat_interleave(self.chosen, 0)[order]
        counts = F.one_hot(experts.flatten(), self.count).sum(0)
        offsets = counts.cumsum(0).to(torch.int32)
        product = torch.ops.transformers.grouped_mm_fallback
        gate, value = product(rows, self.up.transpose(-2, -1), offs=offsets).chunk(2, -1)
        result = product(F.silu(gate) * value, self.down, offs=offsets)
        result = result[torch.argsort(order)].view(*experts.shape, -1) * weights[..., None]
        return (x + result.sum(1)).square().mean()


class Looped(Mixture):
    """The same, expert by expert: the judge."""

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        weights, experts = self.router(x).softmax(-1).topk(self.chosen, -1)
        result = torch.zeros_like(x)
        for expert in range(self.count):
            weight = (weights * (experts == expert)).sum(-1, keepdim=True)
            gate, value = (x @ self.up[expert].T).chunk(2, -1)
            result = result + weight * ((F.silu(gate) * value) @ self.down[expert])
        return (x + result).square().mean()


def mixture(kind: type[Mixture] = Mixture) -> Mixture:
    """Return the model in float64, with the same values in every process."""
    torch.manual_seed(0)
    return kind().double()


def trained(clip: float | None = None):
    """Return the differences of a training from one process on the joined batch."""
    import transformers.integrations.moe  # noqa: F401  (registers the operator)

    size, rank = dist.get_world_size(), dist.get_rank()
    expected, model = mixture(Looped), mixture()
    compiled = thunder.jit(model, transforms=[expert_parallel(experts=["up", "down"])])
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.02) for m in (expected, compiled)]
    generator = torch.Generator().manual_seed(3)
    losses, gradients, norms = [0.0], [0.0], [0.0]
    for _ in range(STEPS):
        batch = torch.randn(6 * size, 6, dtype=torch.float64, generator=generator)
        loss, mine = expected(batch), compiled(batch.chunk(size)[rank])
        loss.backward()
        mine.backward()
        mean = mine.detach().clone()
        dist.all_reduce(mean)
        losses.append(abs(mean.item() / size - loss.item()))
        each = expected.up.shape[0] // size
        part = expected.up.grad[rank * each : (rank + 1) * each]
        gradients.append((compiled.get_parameter("up").grad - part).abs().max().item())
        inner = compiled.get_parameter("inner.weight").grad - expected.inner.weight.grad
        gradients.append(inner.abs().max().item())
        if clip is not None:
            norm = torch.nn.utils.clip_grad_norm_(expected.parameters(), clip)
            norms.append((norm - clip_grad_norm_(compiled, clip)).abs().item())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return {
        "losses": max(losses),
        "gradients": max(gradients),
        "norms": max(norms),
        "state": distance(compiled.original_state_dict(), expected.state_dict()),
        "parts": tuple(compiled.get_parameter("up").shape),
        "collectives": [c.name for c in communication(compiled)],
    }


@case
def experts_in_parts():
    return trained()


@case
def clipped_experts():
    return trained(clip=0.05)


@case
def experts_without_rows():
    """All rows of all processes are for the experts of one process."""
    import transformers.integrations.moe  # noqa: F401  (registers the operator)

    expected = mixture(Looped)
    with torch.no_grad():
        expected.router.bias.copy_(torch.tensor([30.0, 20.0, 0.0, 0.0]))
    model = mixture()
    model.load_state_dict(copy.deepcopy(expected.state_dict()))
    compiled = thunder.jit(model, transforms=[expert_parallel(experts=["up", "down"])])
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(dist.get_rank()))
    loss, mine = expected(x), compiled(x)
    mine.backward()
    return (loss - mine).abs().item(), compiled.get_parameter("up").grad.abs().max().item()
