"""Experts divided between processes, compared with one process on the joined batch."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401  (registers the operator)
from torch import nn

import thunder
from distributed.launching import case, sliced
from distributed.trainings import STEPS, compared
from thunder.distributed import expert_parallel


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


def trained(**options):
    """Return the differences of a training from one process on the joined batch."""
    size, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    data = [(torch.randn(6 * size, 6, dtype=torch.float64, generator=generator),) for _ in range(STEPS)]

    def own(batch):
        return [tensor.chunk(size)[rank] for tensor in batch]

    model = mixture()
    return compared(mixture(Looped), model, [expert_parallel(experts=["up", "down"])], data, own, **options)


class Published(nn.Module):
    """Mixtral of transformers, whose experts are grouped products, or a loop over those that have rows."""

    def __init__(self, implementation: str) -> None:
        from transformers import MixtralConfig, MixtralForCausalLM

        super().__init__()
        sizes = {"hidden_size": 16, "intermediate_size": 12, "num_local_experts": 4}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}
        config = MixtralConfig(
            vocab_size=20, use_cache=False, experts_implementation=implementation, **sizes, **heads
        )
        torch.manual_seed(0)
        self.model = MixtralForCausalLM(config).double()

    def forward(self, tokens):
        scores = self.model(input_ids=tokens).logits  # the loss of transformers is in float32
        return F.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def published():
    """Return the differences of a training of Mixtral from the loop of one process."""
    size, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    data = [torch.randint(0, 20, (2 * size, 6), generator=generator) for _ in range(STEPS)]
    transform = expert_parallel(experts=["*.mlp.experts.*"])
    return compared(
        Published("eager"),
        Published("grouped_mm"),
        [transform],
        [(tokens,) for tokens in data],
        lambda batch: [batch[0].chunk(size)[rank]],
    )


TRAINED = sliced(3, {"clipped experts": lambda: trained(clip=0.05), "experts": trained, "Mixtral": published})


@case
def experts_without_rows():
    """All rows of all processes are for the experts of one process."""
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
