"""Fusion regions beside collectives, offloaded residuals and autocast under data-parallel transforms."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import thunder
import thunder_inductor
from distributed.trainings import distance, gradients_of
from sweeping import in_turn
from thunder.distributed import FSDPType, ddp, fsdp, run_ranks
from thunder.plugins import get_manager
from thunder_transforms.cpu_offloading import CPUOffloading

pytestmark = pytest.mark.xdist_group("inductor")

TRANSFORMS: dict[str, Callable[[], thunder.Transform]] = {
    "ddp": ddp,
    "ZeRO-2": fsdp,
    "ZeRO-3": lambda: fsdp(sharding_strategy=FSDPType.ZERO3),
}
#: the collectives of each, which wait for what comes before them and for what comes after
COLLECTIVES = {
    "ddp": {"all_reduce"},
    "ZeRO-2": {"all_gather", "reduce_scatter"},
    "ZeRO-3": {"all_gather", "reduce_scatter"},
}


@pytest.fixture(autouse=True)
def _inductor() -> Iterator[None]:
    """Register the plugin of thunder-inductor, as that of an installed package is."""
    with get_manager().temporary(thunder_inductor, name="inductor-under-test"):
        yield


class Gated(nn.Module):
    """Three layers between which several pointwise operators are."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.a(x)) * 2 + 1
        return self.c(torch.tanh(self.b(h).sigmoid() * 3).exp())


def _names(trace) -> list[str]:
    return [bsym.sym.name for bsym in trace.bound_symbols]


def _one_step(make, *, offloads: bool, lowers: bool) -> tuple[float, float, list[str], list[str]]:
    """Return how far loss and gradients are from one process's, and the calls of forward and backward."""
    torch.manual_seed(0)
    plain, x = Gated().double(), torch.randn(6, 8, dtype=torch.float64)
    if lowers:
        plain, x = plain.float(), x.float()
    executors = ["torch"] if lowers else ["inductor", "torch"]
    transforms = [make(), *([CPUOffloading(devices="cpu")] if offloads else [])]
    compiled = thunder.jit(copy.deepcopy(plain), transforms=transforms, executors=executors)
    rank = dist.get_rank()
    with torch.autocast("cpu", torch.bfloat16) if lowers else contextlib.nullcontext():
        part = compiled(x[3 * rank :][:3]).square().mean()
        whole = plain(x).square().mean()
    part.backward()
    whole.backward()
    mean = part.detach().clone()
    dist.all_reduce(mean)
    forward, backward = (t(compiled)[-1] for t in (thunder.last_traces, thunder.last_backward_traces))
    apart = distance(gradients_of(compiled), gradients_of(plain))
    return abs(mean.item() / 2 - whole.item()), apart, _names(forward), _names(backward)


@pytest.mark.parametrize(("name", "offloads"), in_turn(TRANSFORMS, (True, False)))
def test_regions_and_offloaded_residuals_beside_collectives_give_the_gradients_of_one_process(name, offloads):
    for loss, gradients, forward, backward in run_ranks(
        lambda: _one_step(TRANSFORMS[name], offloads=offloads, lowers=False), 2
    ):
        assert loss < 1e-10
        assert gradients < 1e-10
        calls = forward + backward
        assert COLLECTIVES[name] <= set(calls)
        for part in (forward, backward):
            assert any("InductorFusion" in call for call in part)
        assert ("offload_to_cpu" in forward) is offloads


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_step_under_autocast_is_that_of_one_process_up_to_its_precision(name):
    for loss, gradients, *_ in run_ranks(lambda: _one_step(TRANSFORMS[name], offloads=False, lowers=True), 2):
        assert loss < 0.05
        assert gradients < 0.1
