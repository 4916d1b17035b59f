"""Experts divided between processes, compared with one process on the joined batch."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401  (registers the operator)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.launching import case, sliced
from distributed.trainings import STEPS, compared
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    column_parallel,
    context_parallel,
    ddp,
    expert_parallel,
    fsdp,
    row_parallel,
)


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


EXPERTS = ["up", "down"]


def trained(layout="experts", steps=STEPS, **options):
    """Return the differences of a training from one process on the joined batch."""
    size = dist.get_world_size()
    transforms, part, parts = LAYOUTS[layout]()
    generator = torch.Generator().manual_seed(3)
    data = [(torch.randn(6 * size, 6, dtype=torch.float64, generator=generator),) for _ in range(steps)]

    def own(batch):
        return [tensor.chunk(parts)[part] for tensor in batch]

    return compared(mixture(Looped), mixture(), transforms, data, own, **options)


def _alone(*others):
    """Return experts over all processes, and other transforms over the same."""
    transforms = [expert_parallel(experts=EXPERTS), *(other() for other in others)]
    return transforms, dist.get_rank(), dist.get_world_size()


def _on_mesh(first, *after):
    """Return experts over one dimension of a mesh, with a transform over the other one, and those after them.

    `first` is the name of a transform and whether it comes before the experts.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("other", "experts"))
    name, is_before = first
    other = OTHERS[name](mesh["other"])
    experts = expert_parallel(experts=EXPERTS, process_group=mesh["experts"])
    transforms = [other, experts] if is_before else [experts, other]
    transforms += [each(process_group=mesh["experts"]) for each in after]
    if name in ("ddp", "fsdp", "zero3"):
        return transforms, dist.get_rank(), dist.get_world_size()
    return transforms, mesh["experts"].get_local_rank(), 2


#: transforms of the other parameters, for a dimension of a mesh
OTHERS = {
    "ddp": lambda mesh: ddp(process_group=mesh),
    "fsdp": lambda mesh: fsdp(process_group=mesh, bucketing_strategy=FSDPBucketingStrategy.LAYER),
    "zero3": lambda mesh: fsdp(process_group=mesh, sharding_strategy=FSDPType.ZERO3),
    "columns": lambda mesh: column_parallel(target_modules=["inner"], process_group=mesh),
    "rows": lambda mesh: row_parallel(target_modules=["inner"], process_group=mesh),
    "sequence": lambda mesh: context_parallel(divide={"x": 0}, otherwise="gather", process_group=mesh),
}
#: what a test calls them → transforms, the part of the batch that this process gets, the number of parts
LAYOUTS = {
    "experts": _alone,
    "experts, ddp": lambda: _alone(ddp),
    "experts, fsdp": lambda: _alone(fsdp),
    "experts x ddp": lambda: _on_mesh(("ddp", False)),
    "experts x fsdp": lambda: _on_mesh(("fsdp", False), ddp),
    "experts x zero3": lambda: _on_mesh(("zero3", False), ddp),
    "columns x experts": lambda: _on_mesh(("columns", True)),
    "columns x experts, fsdp": lambda: _on_mesh(("columns", True), fsdp),
    "rows x experts": lambda: _on_mesh(("rows", True)),
    "sequence x experts": lambda: _on_mesh(("sequence", True)),
    "experts x sequence": lambda: _on_mesh(("sequence", False)),
}


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


TRAINED = sliced(
    12,
    {
        "clipped experts": lambda: trained(clip=0.05),
        "Mixtral": published,
        **{name: lambda name=name: trained(name) for name in LAYOUTS},
    },
    start=4,
)


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
