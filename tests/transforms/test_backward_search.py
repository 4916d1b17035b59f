"""The search for a backward within a number of bytes, against all choices of what is saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest
import torch

import sweeping
import thunder
from thunder.core.symbol import BoundSymbol
from thunder.core.vjp_utils import JointProgram
from thunder.examine.memory_calculation import estimate_memory
from thunder_transforms.backward_search import Search
from thunder_transforms.step_model import BackwardPlan, StepModel, step_model
from transforms.test_memory_budget import program


class Planned(thunder.Transform):
    """Calls a function with the program before the partition, and with its model."""

    def __init__(self, examine: Any) -> None:
        self.examine = examine

    def configure_pipeline(self, pipeline: Any, options: Any) -> None:
        def stage(trace: Any, context: Any) -> Any:
            def plan(program: JointProgram) -> Any:
                return self.examine(program, step_model(program, trace, context.executors))

            context.plan_backward = plan
            return trace

        pipeline.insert_before("partition", "examined", stage)


def examined(seed: int, examine: Any) -> None:
    f, args = program(seed)
    torch.autograd.grad(thunder.jit(f, executors="torch", transforms=[Planned(examine)])(*args), args)


def simple_orders(program: JointProgram, model: StepModel) -> Iterator[Sequence[BoundSymbol]]:
    """Yield orders that compute each value again at most once, for all sets of saved values."""
    producer = {p.name: b for b in program.forward for p in b.flat_proxy_outs}
    names = [n for n in producer if n in model.storage and n not in model.unsaved]
    for count in range(len(names) + 1):
        for saved in combinations(names, count):
            order: list[BoundSymbol] = []
            available = {*saved, *(n for n in model.storage if n not in producer)}

            def compute(name: str, available: set[str] = available, order: Any = order) -> None:
                if name not in available and name in producer:
                    for p in producer[name].flat_proxy_args:
                        compute(p.name)
                    order.append(producer[name])
                    available.update(p.name for p in producer[name].flat_proxy_outs)

            for bsym in program.backward:
                for p in bsym.flat_proxy_args:
                    compute(p.name)
                order.append(bsym)
            yield order


@pytest.mark.parametrize("seed", sweeping.one_in(30, range(30), 2))
def test_no_choice_of_saved_values_needs_less(seed):
    def examine(program: JointProgram, model: StepModel) -> None:
        calls = {id(call.bsym): call for call in (*model.forward, *model.backward)}
        least = model.peak(Search(model).least())
        for number, order in enumerate(simple_orders(program, model)):
            assert least <= model.peak(BackwardPlan(tuple(calls[id(b)] for b in order)))
            if number > 300:
                break

    examined(seed, examine)


def test_the_model_agrees_with_the_estimate_of_the_program_that_runs():
    def examine(program: JointProgram, model: StepModel) -> Any:
        search = Search(model)
        for plan in (search.keeping(), search.least()):
            memory = estimate_memory(*program.traces([call.bsym for call in plan.order]))
            assert model.peak(plan) == memory.peak - memory.inputs

    examined(3, examine)
