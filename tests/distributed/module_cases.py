"""Compiled modules in two processes: agreement, groups, state dicts, files, programs that raise."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.launching import case, message, shared_folder, sliced
from distributed.small_models import Words, batches, part, words
from distributed.trainings import distance, shapes_in_use
from thunder.distributed import FSDPBucketingStrategy, FSDPType, communication, ddp, fsdp
from thunder.distributed.checkpoint import (
    StateDictOptions,
    get_model_state_dict,
    has_fsdp_modules,
    load,
    load_model_state_dict,
    save,
)
from thunder_bnb.four_bit import BitsAndBytesLinearQuant4bit
from thunder_transforms.lora import LORATransform
from thunder_transforms.materialization import MaterializationTransform


@case
def batches_of_other_sizes():
    """One process compiles again for its size, the other one does not."""
    compiled, rank = thunder.jit(words(), transforms=[fsdp()]), dist.get_rank()
    tokens, targets = batches(1, 3)[0]
    compiled(tokens[:2], targets[:2]).backward()
    compiled.zero_grad()
    size = 2 - rank
    compiled(tokens[:size], targets[:size]).backward()
    model = words()
    losses = [model(tokens[:n], targets[:n]) for n in (2, 1)]
    (sum(losses) / 2).backward()
    gradient = compiled.get_parameter("scale").grad
    gathered = [torch.empty_like(gradient) for _ in range(2)]
    dist.all_gather(gathered, gradient)
    return thunder.cache_misses(compiled), (gathered[0] - model.scale.grad).abs().max().item()


@case
def hybrid_meshes():
    """Parameters are sharded over one dimension of a mesh, and replicated over the other."""
    result = []
    for shape in ((1, 2), (2, 1)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        transforms = [
            fsdp(process_group=mesh["shard"], bucketing_strategy=FSDPBucketingStrategy.BLOCK),
            ddp(process_group=mesh["replicate"]),
        ]
        compiled = thunder.jit(words(), transforms=transforms)
        optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
        model, sgd = words(), torch.optim.SGD
        plain = sgd(model.parameters(), lr=0.1)
        for batch in batches(3, 2):
            compiled(*part(batch, dist.get_rank())).backward()
            model(*batch).backward()
            for each in (optimizer, plain):
                each.step()
                each.zero_grad()
        names = [c.name for c in communication(compiled)]
        result.append((distance(compiled.original_state_dict(), model.state_dict()), sorted(set(names))))
    return result


@case
def state_dicts():
    compiled = thunder.jit(words(), transforms=[fsdp(sharding_strategy=FSDPType.ZERO3)])
    other = words(seed=3).state_dict()
    loaded = compiled.load_original_state_dict(other)
    parts = shapes_in_use(compiled)
    original = distance(compiled.original_state_dict(), other)
    again = thunder.jit(words(), transforms=[fsdp()])
    again.load_state_dict(compiled.state_dict())
    transformed = distance(again.original_state_dict(), other)
    full = get_model_state_dict(again, StateDictOptions(full_state_dict=True, rank0_only=True))
    load_model_state_dict(words(seed=4).state_dict(), again, StateDictOptions(full_state_dict=True))
    loaded_full = distance(again.original_state_dict(), words(seed=4).state_dict())
    tied = again.get_parameter("head.weight") is again.get_parameter("embedding.weight")
    return (
        str(loaded),
        parts,
        max(original, transformed, loaded_full),
        len(full),
        tied,
        has_fsdp_modules(again),
    )


@case
def files_of_parts():
    folder = shared_folder()
    compiled = thunder.jit(words(seed=5), transforms=[fsdp()])
    save(get_model_state_dict(compiled), folder / "parts")
    other = thunder.jit(words(), transforms=[fsdp(bucketing_strategy=FSDPBucketingStrategy.LAYER)])
    state = get_model_state_dict(other)
    load(state, folder / "parts")
    return str(folder / "parts"), distance(other.original_state_dict(), words(seed=5).state_dict())


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, index):
        return self.layer(x)[index]


@case
def a_program_that_raises():
    compiled = thunder.jit(Raises(), transforms=[fsdp()])
    x = torch.ones(3, 3)
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.fill_(2.0)
        error = message(compiled, x, torch.tensor([7]))
        return error, compiled(x, torch.tensor([1])).tolist()


def _quantised_and_sharded(has_adapters: bool):
    """Weights in 4 bits, sharded: the published list of transforms, with and without adapters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 3)).requires_grad_(False)
    x = torch.randn(4, 16)
    mine, others = ([LORATransform(r=2)] if has_adapters else [] for _ in range(2))
    expected = thunder.jit(copy.deepcopy(model), transforms=[*others, BitsAndBytesLinearQuant4bit()])
    compiled = thunder.jit(model, transforms=[*mine, BitsAndBytesLinearQuant4bit(), fsdp()])
    if has_adapters:
        compiled.load_state_dict(_parts_of(expected, compiled))
    rank, gradient = dist.get_rank(), 0.0
    result = compiled(x.chunk(2)[rank])
    difference = (result - expected(x).chunk(2)[rank]).abs().max().item()
    state = distance(compiled.original_state_dict(), expected.original_state_dict())
    if has_adapters:
        result.square().mean().backward()
        expected(x).square().mean().backward()
        name = "0.weight.lora_b"
        part_of = thunder.list_transforms(compiled)[-1].layouts[name].shard(expected.get_parameter(name).grad)
        gradient = (compiled.get_parameter(name).grad - part_of).abs().max().item()
    shapes = {n: shape for n, shape in shapes_in_use(compiled).items() if n.startswith("0.weight")}
    return max(difference, state, gradient), shapes


#: what a test calls them → whether there are adapters
QUANTISED = sliced(
    2,
    {
        "quantised": lambda: _quantised_and_sharded(False),
        "quantised with adapters": lambda: _quantised_and_sharded(True),
    },
    start=1,
)


def _parts_of(expected, compiled):
    """Return the state of a module of one process, in the parts of this one."""
    layouts = thunder.list_transforms(compiled)[-1].layouts
    return {
        name: layouts[name].shard(tensor) if name in layouts else tensor
        for name, tensor in expected.state_dict().items()
    }


@case
def from_the_meta_device():
    """No process allocates the whole model: values are read parameter by parameter."""
    with torch.device("meta"):
        model = Words().double()
    init = MaterializationTransform.init_from_original_state_dict(words(seed=6).state_dict())
    compiled = thunder.jit(model, transforms=[fsdp(), MaterializationTransform("cpu", init=init)])
    return distance(compiled.original_state_dict(), words(seed=6).state_dict())
