"""Backwards with effects run where eager runs them, in the program and after it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from comparison.derivatives import assert_same_log
from frontend.custom_gradients.backwards_with_effects import CASES, outcome
from frontend.custom_gradients.steps_that_make_parameters import STEPS
from sweeping import one_in


def as_lists(value: Any) -> Any:
    return [as_lists(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(("effect", "hook", "backward"), one_in(31, CASES))
def test_a_backward_has_its_effects_as_in_eager(effect: str, hook: str, backward: str) -> None:
    expected = outcome(effect, hook, backward, lambda fn: fn)
    assert_same_log(as_lists(outcome(effect, hook, backward, thunder.jit)), as_lists(expected))


@pytest.mark.parametrize("name", one_in(3, STEPS))
def test_a_step_is_as_in_eager(name: str) -> None:
    torch.manual_seed(0)
    expected = STEPS[name](lambda fn: fn)
    torch.manual_seed(0)
    assert_same_log(as_lists(STEPS[name](thunder.jit)), as_lists(expected))


def test_a_saved_result_passes_the_hooks_on_it_in_a_second_derivative() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        y.register_hook(lambda g: g * 2)
        y.register_hook(lambda g: g * g)
        return (y**3).sum()

    def second(program: Any) -> torch.Tensor:
        x = torch.linspace(-1, 1, 4, dtype=torch.float64).requires_grad_()
        (g,) = torch.autograd.grad(program(x), x, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), x)
        return h

    torch.testing.assert_close(second(thunder.jit(fn)), second(fn))


def test_a_step_that_accumulates_is_compiled_once_for_all_sizes() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    compiled = thunder.jit(step)
    for n in (4, 4, 4, 6, 3, 5, 7):
        compiled(torch.randn(n, 3))
    assert thunder.cache_misses(compiled) == 3  # without a gradient, with one, for any size


def test_a_hook_that_the_program_leaves_on_an_input_is_registered_by_each_call() -> None:
    def run(wrap: Any) -> list[Any]:
        seen: list[Any] = []
        w = torch.ones(3, requires_grad=True)

        def fn(x: torch.Tensor) -> Any:
            after = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
            return (w * x).sum(), x.register_hook(lambda g: g * 2), after

        compiled = wrap(fn)
        for i in range(3):
            x = torch.full((3,), float(i), requires_grad=True)
            loss, handle, after = compiled(x * 1 if i == 1 else x)
            assert type(handle) is torch.utils.hooks.RemovableHandle
            if i == 2:
                handle.remove()
            loss.backward()
            after.remove()
            seen += [x.grad, w.grad.clone()]
        return seen

    torch.testing.assert_close(run(thunder.jit), run(lambda fn: fn))
