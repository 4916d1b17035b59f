"""The estimate of a step's memory, against the allocator's numbers for the workloads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import thunder
import thunder_inductor
from sweeping import MARK, one_in
from thunder.plugins import get_manager
from thunder_benchmarks.step_memory import peak_bytes
from thunder_benchmarks.workloads import WORKLOADS
from thunder_inductor.executor import ex
from thunder_transforms.memory_budget import MemoryBudgetTooSmall

#: without those for which a search takes long
_NAMES = [n for n in WORKLOADS if not n.endswith(("4096", "4x512", "-100", "-32", "-8"))]


@pytest.fixture(autouse=True, scope="module")
def _inductor() -> Iterator[None]:
    """Register the plugin of the executor, as an installed package is."""
    with get_manager().temporary(thunder_inductor, name="inductor-under-test"):
        yield


class Loss(nn.Module):
    """A number from the result of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        result = self.model(*inputs)
        return (result[0] if isinstance(result, tuple) else result).square().mean()


def measured(compiled, loss, inputs) -> int:
    compiled(*inputs).backward()
    loss.zero_grad()
    existing = {id(t): t.nbytes for t in (*loss.parameters(), *loss.buffers(), *inputs)}
    return sum(existing.values()) + peak_bytes(lambda: compiled(*inputs).backward())


@pytest.mark.parametrize("name", one_in(len(WORKLOADS), WORKLOADS, [*WORKLOADS].index("U-Net")))
@pytest.mark.parametrize("executors", ["torch", pytest.param(ex, marks=MARK)], ids=["torch", "inductor"])
def test_the_estimate_is_the_peak_of_a_step(name, executors):
    model, inputs = WORKLOADS[name].make(torch.float32)
    loss = Loss(model)
    compiled = thunder.jit(loss, executors=executors)
    peak = measured(compiled, loss, inputs)
    assert thunder.plan(compiled, *inputs).memory.peak == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize("name", one_in(len(_NAMES), _NAMES, _NAMES.index("convolutions")))
def test_the_least_budget_of_a_workload_is_met(name):
    model, inputs = WORKLOADS[name].make(torch.float32)
    loss = Loss(model)
    with pytest.raises(MemoryBudgetTooSmall, match="memory_budget=1 bytes") as error:
        thunder.plan(loss, *inputs, executors="torch", memory_budget=1)
    least = error.value.facts["least"]
    compiled = thunder.jit(loss, executors="torch", memory_budget=least)
    assert measured(compiled, loss, inputs) <= 1.1 * least


@pytest.mark.sweep
@pytest.mark.parametrize("name", _NAMES)
def test_budgets_from_the_least_to_the_default_are_met_with_compiled_regions(name):
    model, inputs = WORKLOADS[name].make(torch.float32)
    loss = Loss(model)
    default = thunder.plan(loss, *inputs, executors=ex).memory.peak
    with pytest.raises(MemoryBudgetTooSmall, match="memory_budget=1 bytes") as error:
        thunder.plan(loss, *inputs, executors=ex, memory_budget=1)
    least = error.value.facts["least"]
    for part in (0, 0.02, 0.3, 0.9, 1):
        budget = int(least + part * (default - least))
        assert thunder.plan(loss, *inputs, executors=ex, memory_budget=budget).memory.peak <= budget
