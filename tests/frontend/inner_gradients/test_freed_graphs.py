"""Results of the program whose graph its own backward has freed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder
from autograd.random_steps import random_step
from sweeping import one_in

TORCH = [thunder.get_executor("torch")]


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4)).requires_grad_()


def test_a_loss_that_was_differentiated_holds_no_tensor_and_its_backward_raises() -> None:
    def step(x: Tensor) -> Tensor:
        loss = x.sin().square().mean()
        loss.backward()
        return loss

    compiled = thunder.jit(step, executors=TORCH)
    for run in (step, compiled):
        x = leaf(5)
        loss = run(x)
        assert loss.requires_grad
        assert not loss.is_leaf
        assert not getattr(loss.grad_fn, "saved_tensors", ())
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()
        loss *= 2  # it is no view
    assert not thunder.last_backward_traces(compiled)


def test_the_graph_is_kept_where_the_program_retains_it() -> None:
    def step(x: Tensor) -> Tensor:
        loss = x.sin().square().mean()
        loss.backward(retain_graph=True)
        return loss

    compiled, gradients = thunder.jit(step, executors=TORCH), []
    for run in (step, compiled):
        x = leaf(5)
        run(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_a_graph_that_saves_nothing_is_not_freed() -> None:
    def step(x: Tensor) -> Tensor:
        loss = (x + 1).sum()
        loss.backward()
        return loss

    compiled, gradients = thunder.jit(step, executors=TORCH), []
    for run in (step, compiled):
        x = leaf(5)
        run(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_what_depends_on_a_freed_graph_raises_and_other_results_do_not() -> None:
    def step(x: Tensor, w: Tensor) -> dict[str, Any]:
        y = x.sin()
        (g,) = torch.autograd.grad(y.square().sum(), x)
        loss = y.exp()
        return {"freed": [y, loss + 1, loss + 1], "free": w.cos() * g, "twice": (loss, loss)}

    compiled = thunder.jit(step, executors=TORCH)
    for run in (step, compiled):
        x, w = leaf(5), leaf(5)
        results = run(x, w)
        assert results["twice"][0] is results["twice"][1]
        for result in (*results["freed"], *results["twice"]):
            with pytest.raises(RuntimeError, match="a second time"):
                result.sum().backward()
        results["free"].sum().backward()
        torch.testing.assert_close(w.grad, -w.detach().sin() * 2 * (x.sin() * x.cos()).detach())


def test_a_result_that_the_program_keeps_elsewhere_is_the_same_object() -> None:
    class Model(nn.Module):
        last: Tensor

        def forward(self, x: Tensor) -> Tensor:
            self.last = x.sin().mean()
            self.last.backward()
            return self.last

    model = Model()
    compiled = thunder.jit(model, executors=TORCH)
    result = compiled(leaf(5))
    assert result is model.last
    assert result.requires_grad


def test_containers_of_results_stay_what_they_are() -> None:
    kept: dict[str, Any] = {}

    def step(x: Tensor) -> Any:
        loss = x.sin().mean()
        loss.backward()
        inner = [loss * 2]
        inner.append(inner)  # type: ignore[arg-type]
        return inner

    def stored(x: Tensor) -> Any:
        loss = x.sin().mean()
        loss.backward()
        kept["results"] = [loss, 1]
        return kept["results"]

    result = thunder.jit(stored, executors=TORCH)(leaf(5))
    assert result is kept["results"]
    with pytest.raises(thunder.UnsupportedProgram, match="contains itself"):
        thunder.jit(step, executors=TORCH)(leaf(5))


def test_without_gradients_nothing_is_freed() -> None:
    def step(x: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = x.sin().mean()
            loss.backward()
        return loss * 2

    compiled = thunder.jit(step, executors=TORCH)
    for run in (step, compiled):
        with torch.no_grad():
            assert not run(leaf(5)).requires_grad


def ends(program: Callable[..., Any]) -> list[Any]:
    """Return what a call returns, and what the backward of each result leaves or raises."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(8, 16, generator=generator, dtype=torch.float64)
    w = nn.Parameter(torch.randn(16, 16, generator=generator, dtype=torch.float64) / 4)
    b = nn.Parameter(torch.rand(16, generator=generator, dtype=torch.float64))
    torch.manual_seed(3)
    seen: list[Any] = []
    for result in program(x, w, b, torch.zeros((), dtype=torch.float64)):
        seen.append((result.detach().clone(), result.requires_grad))
        if result.requires_grad:
            w.grad = b.grad = None
            try:
                result.sum().backward(retain_graph=True)
            except RuntimeError as error:
                seen.append("second time" in str(error))
            else:
                seen.append((w.grad, b.grad))
    return seen


@pytest.mark.parametrize("block", one_in(16, range(64)))
def test_backwards_of_the_results_of_random_steps_are_eagers(block: int) -> None:
    raised = 0
    for seed in range(6):
        program, text = random_step(random.Random(100 * block + seed), detached=False)
        try:
            expected = ends(program)
        except RuntimeError:  # the program itself goes through a graph a second time
            continue
        found = ends(thunder.jit(program, executors=TORCH))
        for ours, theirs in zip(found, expected, strict=True):
            if theirs is not False:  # of a write to what a backward needs, which only eager refuses
                torch.testing.assert_close(ours, theirs, msg=lambda m, t=text: f"{m}\n{t}")
        raised += sum(x is True for x in expected)
    assert raised
