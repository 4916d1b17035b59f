"""Sequences divided between processes, compared with one process that has all of them."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.context_models import Attentions, Mixing, Operators, language_model, sequences, texts
from distributed.launching import case, sliced
from distributed.trainings import STEPS
from distributed.trainings import compared as training_compared
from thunder.distributed import FSDPType, communication, context_parallel, ddp, fsdp

FORMS = {
    "zigzag ring": {},
    "plain ring": {"arrangement": "plain"},
    "allgather": {"rotate": "allgather"},
    "plain allgather": {"arrangement": "plain", "rotate": "allgather"},
}


def trained(transforms, steps: int = STEPS, **options):
    """Return the differences from one process, which has the whole sequences."""
    data = texts(steps, ignored=not options)
    return training_compared(language_model(), language_model(), transforms, data, **options)


def _context(**options):
    return trained([context_parallel(divide={"tokens": 1}, **options)])


TRAINED = sliced(4, {f"context {name}": partial(_context, **options) for name, options in FORMS.items()})


def compared(module, arguments, **options):
    """Return the largest difference of results and gradients from eager."""
    parallel = thunder.jit(module, transforms=[context_parallel(**options)])
    differences, gradients = [], []
    for call in (module, parallel):
        inputs = [t.clone().requires_grad_(t.is_floating_point()) for t in arguments]
        results = call(*inputs)
        torch.manual_seed(2)
        loss = sum((r * torch.randn(r.shape, dtype=r.dtype)).sum() for r in results)
        leaves = [*(t for t in inputs if t.requires_grad), *call.parameters()]
        gradients.append((results, torch.autograd.grad(loss, leaves)))
    for left, right in zip(*gradients, strict=True):
        for a, b in zip(left, right, strict=True):
            assert a.shape == b.shape
            differences.append((a - b).abs().max().item())
    return max(differences), [c.name for c in communication(parallel)]


def _attentions(**options):
    bias = torch.randn(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return compared(Attentions(), [*sequences(8, 16), bias], divide={"x": 1, "y": 1}, **options)


ATTENTIONS = sliced(
    4,
    {f"attentions {name}": partial(_attentions, **options) for name, options in FORMS.items()},
    start=3,
)


def _operators(**options):
    torch.manual_seed(4)
    arguments = [torch.randn(3, 8, 4, dtype=torch.float64), torch.randint(0, 4, (3, 8))]
    return compared(Operators().double(), arguments, **options)


OPERATORS = sliced(
    2,
    {
        "operators": partial(_operators, divide={"x": 1}),
        "operators, arranged plainly": partial(
            _operators, divide={"classes": 1, "x": -2}, arrangement="plain"
        ),
    },
    start=1,
)


@case
def gathered_operators():
    return compared(Mixing(), sequences(8), divide={"x": 1}, otherwise="gather")


def _of_a_mesh(*makers):
    """Divide sequences over one dimension of a mesh, batches and parameters over the other."""
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "context"))

    def part(batch):
        return [tensor.chunk(2)[mesh["data"].get_local_rank()] for tensor in batch]

    return trained([make(mesh) for make in makers], steps=4, own=part)


def _divided(mesh):
    return context_parallel(divide={"tokens": 1}, process_group=mesh["context"])


def _sharded(mesh, strategy=FSDPType.ZERO3):
    return fsdp(process_group=mesh["data"], sharding_strategy=strategy)


def _replicated(mesh):
    return ddp(process_group=mesh["data"])


OF_A_MESH = sliced(
    3,
    {
        "context and ZeRO-3": partial(_of_a_mesh, _divided, _sharded),
        "ZeRO-2 and context": partial(_of_a_mesh, partial(_sharded, strategy=FSDPType.ZERO2), _divided),
        "context and ddp": partial(_of_a_mesh, _divided, _replicated),
    },
)
