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
from thunder.distributed import mixture as sum_of_experts


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


class Expert(nn.Module):
    """An expert that is a module."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(width, 5), nn.Linear(width, 5, bias=False)
        self.down = nn.Linear(5, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x).clamp(max=1.5))


class Modules(Mixture):
    """Experts that are modules, each for the rows that chose it."""

    def __init__(self, experts: int = 4, width: int = 6, chosen: int = 2) -> None:
        super().__init__(experts, width, chosen)
        del self.up, self.down
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))
        for expert in self.experts:
            expert.up.bias.requires_grad_(False)

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        weights, experts = self.router(x).softmax(-1).topk(self.chosen, -1)
        return (x + sum_of_experts(self.experts, x, experts, weights)).square().mean()


class LitGPT(nn.Module):
    """The mixture of litgpt, which selects rows by data."""

    def __init__(self, width: int = 6) -> None:
        from litgpt.config import Config
        from litgpt.model import LLaMAMoE

        super().__init__()
        sizes = {"n_embd": width, "n_expert": 4, "n_expert_per_token": 2, "moe_intermediate_size": 5}
        config = Config(n_layer=1, n_head=1, mlp_class_name="LLaMAMoE", n_shared_expert=1, **sizes)
        self.inner, self.mixture = nn.Linear(width, width), LLaMAMoE(config)

    def forward(self, x):
        return self.mixture(torch.tanh(self.inner(x))[None]).square().mean()


#: the names of the parameters of experts in each of these modules
EXPERTS = {
    Mixture: ["up", "down"],
    Modules: ["experts.*"],
    LitGPT: ["mixture.experts.*"],
}


def trained(layout="experts", steps=STEPS, kinds=(Looped, Mixture), **options):
    """Return the differences of a training from one process on the joined batch.

    `kinds` are the classes of the judge's module and of the one that is divided.
    """
    size = dist.get_world_size()
    transforms, part, parts = LAYOUTS[layout](EXPERTS[kinds[1]])
    generator = torch.Generator().manual_seed(3)
    data = [(torch.randn(6 * size, 6, dtype=torch.float64, generator=generator),) for _ in range(steps)]

    def own(batch):
        return [tensor.chunk(parts)[part] for tensor in batch]

    plain, divided = map(mixture, kinds)
    return compared(plain, divided, transforms, data, own, **options)


def _alone(names, *others):
    """Return experts over all processes, and other transforms over the same."""
    transforms = [expert_parallel(experts=names), *(other() for other in others)]
    return transforms, dist.get_rank(), dist.get_world_size()


def _on_mesh(names, first, *after):
    """Return experts over one dimension of a mesh, with a transform over the other one, and those after them.

    `first` is the name of a transform and whether it comes before the experts.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("other", "experts"))
    name, is_before = first
    other = OTHERS[name](mesh["other"])
    experts = expert_parallel(experts=names, process_group=mesh["experts"])
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
    "experts": lambda names: _alone(names),
    "experts, ddp": lambda names: _alone(names, ddp),
    "experts, fsdp": lambda names: _alone(names, fsdp),
    "experts x ddp": lambda names: _on_mesh(names, ("ddp", False)),
    "experts x fsdp": lambda names: _on_mesh(names, ("fsdp", False), ddp),
    "experts x zero3": lambda names: _on_mesh(names, ("zero3", False), ddp),
    "columns x experts": lambda names: _on_mesh(names, ("columns", True)),
    "columns x experts, fsdp": lambda names: _on_mesh(names, ("columns", True), fsdp),
    "rows x experts": lambda names: _on_mesh(names, ("rows", True)),
    "sequence x experts": lambda names: _on_mesh(names, ("sequence", True)),
    "experts x sequence": lambda names: _on_mesh(names, ("sequence", False)),
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


def published(implementation="grouped_mm"):
    """Return the differences of a training of Mixtral from the loop of one process."""
    size, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    data = [torch.randint(0, 20, (2 * size, 6), generator=generator) for _ in range(STEPS)]
    transform = expert_parallel(experts=["*.mlp.experts.*"])
    return compared(
        Published("eager"),
        Published(implementation),
        [transform],
        [(tokens,) for tokens in data],
        lambda batch: [batch[0].chunk(size)[rank]],
    )


TRAINED = sliced(
    18,
    {
        "clipped experts": lambda: trained(clip=0.05),
        "Mixtral": published,
        "Mixtral as a loop": lambda: published("eager"),
        **{name: lambda name=name: trained(name) for name in LAYOUTS},
        "modules": lambda: trained(kinds=(Modules, Modules)),
        "modules, fsdp": lambda: trained("experts, fsdp", kinds=(Modules, Modules), clip=0.05),
        "modules x ddp": lambda: trained("experts x ddp", kinds=(Modules, Modules)),
        "modules x fsdp": lambda: trained("experts x fsdp", kinds=(Modules, Modules)),
    },
    start=15,
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
