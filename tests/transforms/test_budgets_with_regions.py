"""Budgets of programs with fusions: each from the least on is met, whatever the code of regions needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import sweeping
import thunder
from thunder.core.vjp_utils import JointProgram
from thunder.examine.memory_calculation import estimate_memory
from thunder.extend import FusionExecutor
from thunder_transforms.memory_budget import MemoryBudgetTooSmall
from transforms.test_backward_search import Planned
from transforms.test_memory_budget import Deep, least_of, program, x


class Compiler(FusionExecutor):
    """Takes every call, and says of its code that it needs some bytes beside the outputs."""

    def __init__(self, needs: int) -> None:
        super().__init__("compiler_of_budgets")
        self.needs, self.compiled = needs, 0

    def can_fuse(self, bsym: Any) -> bool:
        return True

    def compile_region(self, region: Any) -> Callable[..., Any]:
        self.compiled += 1
        return lambda *inputs: None  # plans do not run

    def region_workspace(self, region: Any, function: Any) -> int:
        return self.needs


#: bytes of code: none, about as many as a value of the programs has, and many more than all values have
NEEDS = (0, 8_000, 1_000_000)


@pytest.mark.parametrize("seed", sweeping.one_in(40, range(40), 31))
def test_every_budget_from_the_least_to_the_default_is_met(seed: int) -> None:
    f, args = program(seed)
    options: dict[str, Any] = {"executors": [Compiler(NEEDS[seed % len(NEEDS)])]}
    default, least = thunder.plan(f, *args, **options).memory.peak, least_of(f, *args, **options)
    assert least <= least_of(f, *args, executors="torch"), "regions may be left out"
    for part in (0, 0.05, 0.4, 0.9, 1):
        budget = int(least + part * (default - least))
        assert thunder.plan(f, *args, memory_budget=budget, **options).memory.peak <= budget
    with pytest.raises(MemoryBudgetTooSmall, match=f"memory_budget={least - 1} bytes"):
        thunder.plan(f, *args, memory_budget=least - 1, **options)


def test_plans_are_compared_without_compiling_their_regions() -> None:
    compiler = Compiler(0)
    default = thunder.plan(Deep(), x(), executors=[compiler])
    regions, compiler.compiled = compiler.compiled, 0
    assert regions > 0
    budget = default.memory.peak * 9 // 10
    planned = thunder.plan(Deep(), x(), executors=[compiler], memory_budget=budget)
    assert planned.memory.peak <= budget
    # the default, which might have fitted, and the plan that was chosen; equal regions are compiled once
    assert compiler.compiled <= 2 * regions


def test_the_code_of_a_program_within_the_budget_is_compiled() -> None:
    compiler = Compiler(0)
    default = thunder.plan(Deep(), x(), executors=[compiler]).memory.peak
    plan = thunder.plan(Deep(), x(), executors=[compiler], memory_budget=default * 9 // 10)
    assert any(bsym.sym.is_fusion for trace in plan.traces[-1:] for bsym in trace.bound_symbols)


def test_without_regions_the_ledger_says_why() -> None:
    compiler = Compiler(1_000_000)
    plan = thunder.plan(Deep(), x(), executors=[compiler], memory_budget=400_000)
    assert not any(bsym.sym.is_fusion for bsym in plan.traces[-1].bound_symbols)
    assert "no region is compiled in this program" in str(plan.explain())


def test_a_sketch_has_the_regions_of_a_program_and_no_code() -> None:
    compiler, seen = Compiler(0), dict[str, list[Any]]()

    def examine(program: JointProgram, model: object) -> None:
        for regions in ("sketched", "compiled", "left"):
            before = compiler.compiled
            traces = program.traces(None, regions)  # type: ignore[arg-type]
            fusions = [[b.sym.name for b in trace.bound_symbols if b.sym.is_fusion] for trace in traces]
            seen[regions] = [fusions, compiler.compiled - before, estimate_memory(*traces).peak]

    thunder.plan(Deep(), x(), executors=[compiler], transforms=[Planned(examine)])
    assert seen["sketched"][0] == seen["compiled"][0] != seen["left"][0] == [[], []]
    assert seen["sketched"][1] == seen["left"][1] == 0 < seen["compiled"][1]
    assert seen["compiled"][2] <= seen["sketched"][2] <= seen["left"][2]


def test_another_word_for_regions_is_refused() -> None:
    def examine(program: JointProgram, model: object) -> None:
        with pytest.raises(thunder.core.errors.InvalidArgument, match="regions are compiled, sketched, left"):
            program.traces(None, "some")  # type: ignore[arg-type]

    thunder.plan(
        torch.sin, torch.ones(3, requires_grad=True), executors="torch", transforms=[Planned(examine)]
    )
