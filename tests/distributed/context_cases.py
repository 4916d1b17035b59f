"""Sequences divided between processes, compared with one process that has all of them."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.context_models import Attentions, Mixing, Operators, language_model, sequences, texts
from distributed.launching import CASES, case
from distributed.training_cases import distance
from thunder.distributed import FSDPType, communication, context_parallel, ddp, fsdp

STEPS = 20
FORMS = {
    "zigzag ring": {},
    "plain ring": {"arrangement": "plain"},
    "allgather": {"rotate": "allgather"},
    "plain allgather": {"arrangement": "plain", "rotate": "allgather"},
}


def _losses(model, batches, part=None):
    """Return losses, first gradients and final state of a training."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    losses, first = [], {}
    for batch in batches:
        loss = model(*(batch if part is None else part(batch)))
        loss.backward()
        losses.append(loss.item())
        first = first or {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
    return losses, first


def trained(transforms, steps: int = STEPS, part=None):
    """Return the differences from one process, and the collectives of a step."""
    expected_model = language_model()
    batches = texts(steps, ignored=part is None)
    losses, gradients = _losses(expected_model, batches)
    compiled = thunder.jit(language_model(), transforms=transforms)
    found, first = _losses(compiled, batches, part)
    if part is not None:  # each process has the loss of its part of the batch
        mean = torch.tensor(found, dtype=torch.float64)
        dist.all_reduce(mean)
        found = (mean / dist.get_world_size()).tolist()
    same_shapes = all(first[name].shape == gradients[name].shape for name in first)
    return {
        "losses": max(abs(a - b) for a, b in zip(losses, found, strict=True)),
        "gradients": distance(first, gradients) if same_shapes else 0.0,
        "state": distance(compiled.original_state_dict(), expected_model.state_dict()),
        "collectives": [c.name for c in communication(compiled)],
    }


for _name, _options in FORMS.items():
    CASES[f"context {_name}"] = lambda _options=_options: trained(
        [context_parallel(divide={"tokens": 1}, **_options)]
    )


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


for _name, _options in FORMS.items():
    CASES[f"attentions {_name}"] = partial(_attentions, **_options)


@case
def operators():
    torch.manual_seed(4)
    arguments = [torch.randn(3, 8, 4, dtype=torch.float64), torch.randint(0, 4, (3, 8))]
    module = Operators().double()
    return [
        compared(module, arguments, divide={"x": 1}),
        compared(module, arguments, divide={"classes": 1, "x": -2}, arrangement="plain"),
    ]


@case
def gathered_operators():
    return compared(Mixing(), sequences(8), divide={"x": 1}, otherwise="gather")


@case
def context_of_a_mesh():
    """Sequences are divided over one dimension of a mesh, batches and parameters over the other."""
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("data", "context"))

    def part(batch):
        return [tensor.chunk(2)[mesh["data"].get_local_rank()] for tensor in batch]

    context = partial(context_parallel, divide={"tokens": 1}, process_group=mesh["context"])
    return [
        trained([context(), fsdp(process_group=mesh["data"], sharding_strategy=FSDPType.ZERO3)], 5, part),
        trained([fsdp(process_group=mesh["data"]), context()], 5, part),
        trained([context(), ddp(process_group=mesh["data"])], 5, part),
    ]
