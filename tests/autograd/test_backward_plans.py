"""Planners of backwards: the order of its calls decides what is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.core.errors import PluginError
from thunder.core.vjp_utils import JointProgram, get_saved_for_backward_tensors

X = torch.linspace(-1, 1, 6, dtype=torch.float64)


def f(x: torch.Tensor) -> torch.Tensor:
    return (x.exp().tanh() * x.sigmoid()).sum()


class Planned(thunder.Transform):
    """Sets the planner of the backward."""

    def __init__(self, plan: Callable[[JointProgram], Any]) -> None:
        self.plan = plan

    def configure_pipeline(self, pipeline: Any, options: Any) -> None:
        def stage(trace: Any, context: Any) -> Any:
            context.plan_backward = self.plan
            return trace

        pipeline.insert_before("partition", "planned", stage)


def compiled(plan: Callable[[JointProgram], Any], fn: Callable[..., Any] = f) -> Any:
    return thunder.jit(fn, executors="torch", transforms=[Planned(plan)])


def gradient(fn: Callable[..., torch.Tensor]) -> torch.Tensor:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(fn(x), x)[0]


def saved_names(cf: Any) -> list[str]:
    return [p.name for p in get_saved_for_backward_tensors(thunder.last_traces(cf)[-1])]


def all_again(program: JointProgram) -> list[Any]:
    return [*program.forward, *program.backward]


def before_each(program: JointProgram) -> list[Any]:
    """Return an order in which the forward runs again before each call of the backward."""
    return [b for call in program.backward for b in (*program.forward, call)]


@pytest.mark.parametrize("plan", [all_again, before_each])
def test_values_that_are_computed_before_they_are_read_are_not_saved(plan):
    cf = compiled(plan)
    torch.testing.assert_close(gradient(cf), gradient(f))
    assert saved_names(cf) == ["x"]


def test_values_that_are_read_first_are_saved():
    cf = compiled(lambda program: program.backward)
    torch.testing.assert_close(gradient(cf), gradient(f))
    assert len(saved_names(cf)) > 1


def test_without_an_order_the_option_decides():
    cf, plain = compiled(lambda program: None), thunder.jit(f, executors="torch")
    gradient(cf), gradient(plain)
    texts = [thunder.last_backward_traces(c)[-1].python(include_timing=False) for c in (cf, plain)]
    assert texts[0] == texts[1]


def test_a_planner_sees_the_traces_of_its_orders():
    names: list[list[str]] = []

    def plan(program: JointProgram) -> Any:
        for order in (program.backward, all_again(program)):
            forward, _ = program.traces(order)
            names.append([p.name for p in get_saved_for_backward_tensors(forward)])
        return all_again(program)

    cf = compiled(plan)
    torch.testing.assert_close(gradient(cf), gradient(f))
    assert len(names[0]) > len(names[1]) == 1


def test_second_derivatives_are_those_of_eager():
    x = X.clone().requires_grad_()
    seconds = []
    for fn in (f, compiled(all_again)):
        (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(seconds[1], seconds[0])


def test_what_draws_random_numbers_may_not_run_again():
    def dropped(x: torch.Tensor) -> torch.Tensor:
        return torch.dropout(x.exp(), 0.5, True).sin().sum()

    with pytest.raises(PluginError, match="may not run again"):
        gradient(compiled(all_again, dropped))
