"""Training with parameters in parts that are sharded or replicated over a second dimension of a mesh."""

from __future__ import annotations

import copy
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.attention_models import COLUMNS, ROWS, reader
from distributed.launching import CASES, case, message, shared_folder, sliced
from distributed.small_models import batches, words
from distributed.tensor_cases import (
    WORDS_COLUMNS,
    WORDS_ROWS,
    in_parts,
    random_programs,
    trained,
)
from distributed.training_cases import unsynchronised
from distributed.trainings import STEPS, distance, gradients_of
from thunder.distributed import FSDPBucketingStrategy, FSDPType, communication, context_parallel, ddp, fsdp
from thunder.distributed.checkpoint import get_model_state_dict, load, save

SECOND = {
    "fsdp": lambda group: fsdp(process_group=group),
    "zero3": lambda group: fsdp(
        process_group=group,
        sharding_strategy=FSDPType.ZERO3,
        bucketing_strategy=FSDPBucketingStrategy.BLOCK,
    ),
    "ddp": lambda group: ddp(process_group=group),
}


def both_dimensions(
    second: str, columns=COLUMNS, rows=ROWS, sequence_dim=None, make=reader, data=None, **options
):
    """Return what `trained` does, for tensor parallelism in one dimension of a mesh."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    transforms = [*in_parts(columns, rows, mesh["tp"], sequence_dim), SECOND[second](mesh["dp"])]
    rank = mesh["dp"].get_local_rank()

    def own(batch):
        return [tensor.chunk(2)[rank] for tensor in batch]

    return trained(transforms, make, data, own=own, clip=0.1, **options)


for _second in SECOND:
    CASES[f"tensors and {_second}"] = lambda _second=_second: both_dimensions(_second)
    CASES[f"sequences and {_second}"] = lambda _second=_second: both_dimensions(_second, sequence_dim=1)
    CASES[f"uneven tensors and {_second}"] = lambda _second=_second: both_dimensions(
        _second, WORDS_COLUMNS, WORDS_ROWS, make=words, data=batches(STEPS, 3)
    )


#: gradients of parts are accumulated without communication between the copies of a part
ACCUMULATED = sliced(
    1,
    {
        f"accumulated tensors and {second}": partial(
            both_dimensions, second, accumulated=2, local=unsynchronised
        )
        for second in SECOND
    },
)


@case
def contexts_and_tensors():
    """Sequences are divided over one dimension of a mesh, layers over the other; in both orders."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("context", "tp"))
    context = partial(context_parallel, divide={"tokens": 1, "targets": 1}, process_group=mesh["context"])
    layers = partial(in_parts, group=mesh["tp"])
    return [
        trained([context(), *layers()], clip=0.1),
        trained([*layers(sequence_dim=1), context(rotate="allgather")]),
    ]


@case
def four_parts():
    return trained(in_parts(sequence_dim=-2), lambda: reader(dropout=0.1))


@case
def four_uneven_parts():
    return trained(in_parts(WORDS_COLUMNS, WORDS_ROWS), words, batches(STEPS, dist.get_world_size()))


@case
def a_published_model():
    """Llama of transformers as it is, with keys and values that heads share."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=50, num_hidden_layers=2, use_cache=False, **sizes)
    plain = LlamaForCausalLM(config).double()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    columns = [f"*.{name}_proj" for name in ("q", "k", "v", "gate", "up")] + ["lm_head"]
    rows = ["*.o_proj", "*.down_proj", "*.embed_tokens"]
    compiled = thunder.jit(copy.deepcopy(plain), transforms=in_parts(columns, rows, mesh["tp"]))
    tokens = torch.randint(0, 50, (2, 8))
    results = []
    for module in (plain, compiled):
        loss = module(input_ids=tokens, labels=tokens).loss
        loss.backward()
        results.append(gradients_of(module))
    forward = [c.name for c in communication(compiled) if c.trace == "forward"]
    return distance(*results), forward.count("all_reduce")


@case
def many_random_programs():
    return "\n".join(random_programs(range(100, 180))[0])


NAMES = (
    *(f"{kind} and {second}" for kind in ("tensors", "sequences", "uneven tensors") for second in SECOND),
    "four_parts",
    "four_uneven_parts",
)


@case
def files_of_two_dimensions():
    """Parts that are sharded are saved, and loaded with other layouts."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    folder = shared_folder()

    def compiled(seed, second=True, group=mesh["tp"]):
        transforms = in_parts(group=group) + ([fsdp(process_group=mesh["dp"])] if second else [])
        return thunder.jit(reader(seed=seed), transforms=transforms)

    save(get_model_state_dict(compiled(5)), folder / "parts")
    results = []
    for other in (compiled(0), compiled(0, False), compiled(0, False, None)):
        state = get_model_state_dict(other)
        load(state, folder / "parts")
        results.append(distance(other.original_state_dict(), reader(seed=5).state_dict()))
    uneven = in_parts(WORDS_COLUMNS, WORDS_ROWS, mesh["tp"])
    refused = thunder.jit(words(), transforms=[*uneven, fsdp(process_group=mesh["dp"])])
    return str(folder / "parts"), results, message(get_model_state_dict, refused)
