"""Hooks on gradients inside of programs: ``register_hook``, ``retain_grad``, backward hooks of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram

#: programs of one tensor, each with hooks
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(fn: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def hooks_in_order(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: None)
    y.register_hook(lambda g: g * 3)
    return y * y


@program
def used_before_the_hook(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.exp()
    y.register_hook(lambda g: g.clamp(-1, 1))
    return z + y


@program
def written_before_the_hook(x: torch.Tensor) -> Any:
    y = x * 2
    y.relu_()
    z = y * 3
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 4)
    return z + y


@program
def written_after_the_hook(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.mul_(x)
    return y * 2


@program
def removed(x: torch.Tensor) -> Any:
    y = x * 2
    handles = [y.register_hook(lambda g, k=k: g * k) for k in (2, 3, 5)]
    handles[0].remove()
    handles[2].remove()
    return y * y


@program
def captures_a_tensor(x: torch.Tensor) -> Any:
    y = x * 2
    mask = x.detach() > 0
    y.register_hook(lambda g: g * mask)
    return y * y


@program
def in_a_checkpoint(x: torch.Tensor) -> Any:
    def region(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        y.register_hook(lambda g: g * 2)
        return y.sin()

    return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)


@program
def between_decisions(x: torch.Tensor) -> Any:
    y = x * 2 + torch.rand(3)
    if y.sum() > 100:
        return y
    y.register_hook(lambda g: g * 2)
    if y.sum() < -100:
        return y
    return y * y * torch.rand(3)


def gradients(fn: Any, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    x = torch.randn(3, requires_grad=True)
    result = fn(x)
    result.sum().backward()
    return [result.detach(), x.grad]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hook_sees_and_replaces_the_whole_gradient(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for seed in (0, 1):
        torch.testing.assert_close(gradients(compiled, seed), gradients(PROGRAMS[name], seed))
    assert thunder.cache_misses(compiled) == 1


def test_a_hook_with_effects_is_called_when_the_backward_runs() -> None:
    def build(seen: list[Any], scale: dict[str, float]) -> Callable[[torch.Tensor], Any]:
        def fn(x: torch.Tensor) -> Any:
            y = x * 2
            y.register_hook(seen.append)
            y.register_hook(lambda g: seen.append(g * scale["by"]))
            return y * y, x * 3

        return fn

    results: dict[str, list[Any]] = {}
    for name, wrap in (("eager", lambda f: f), ("compiled", thunder.jit)):
        seen: list[Any] = []
        scale = {"by": 1.0}
        fn = wrap(build(seen, scale))
        for chosen in (0, 1, 0):
            x = torch.arange(3.0, requires_grad=True)
            result = fn(x)
            scale["by"] += 1
            result[chosen].sum().backward()
        results[name] = seen
    assert len(results["eager"]) == 4
    torch.testing.assert_close(results["compiled"], results["eager"])


def test_the_gradient_of_a_result_is_retained() -> None:
    def fn(x: torch.Tensor) -> Any:
        a = x * 2
        a.retain_grad()
        b = a.exp()
        b.retain_grad()
        hidden = b * 3
        hidden.retain_grad()
        return (a * hidden).sum(), {"a": a, "b": b}

    def run(fn: Any) -> list[Any]:
        x = torch.arange(3.0, requires_grad=True)
        loss, kept = fn(x)
        loss.backward()
        return [x.grad, kept["a"].grad, kept["b"].grad]

    torch.testing.assert_close(run(thunder.jit(fn)), run(fn))


def hooked_model(seen: list[Any]) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[1].register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0].clamp(min=0.0),))
    model[2].register_full_backward_pre_hook(lambda module, grad_out: (grad_out[0] * 2,))
    for layer in model:
        layer.register_full_backward_hook(
            lambda *args: seen.append([g for gs in args[1:] for g in gs if g is not None])
        )
    return model


@pytest.mark.parametrize("input_requires_grad", [True, False])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_backward_hooks_of_modules(input_requires_grad: bool) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        seen: list[Any] = []
        model = hooked_model(seen)
        fn = wrap(model)
        for _ in range(2):
            x = torch.arange(6.0).reshape(2, 3).requires_grad_(input_requires_grad)
            fn(x).pow(2).sum().backward()
        return [p.grad for p in model.parameters()] + [seen] + [x.grad] * input_requires_grad

    torch.testing.assert_close(run(thunder.jit), run(lambda m: m))


def test_what_a_hook_cannot_do_is_refused() -> None:
    def reads_later_values(x: torch.Tensor) -> Any:
        y = x * 2
        mask = y.detach() > 0
        y.register_hook(lambda g: g * mask)
        return y

    def on_a_view(x: torch.Tensor) -> Any:
        y = x * 2
        v = y[1:]
        v.register_hook(lambda g: g + 1)
        y.mul_(2)
        return v * 2

    def keeps_a_view(x: torch.Tensor) -> Any:
        y = (x * 2)[1:]
        y.retain_grad()
        return y

    for fn, text in (
        (reads_later_values, "computed after a use of the tensor"),
        (on_a_view, "memory of a view that has a hook"),
        (keeps_a_view, "keeps the gradient of a view"),
    ):
        with pytest.raises(UnsupportedProgram, match=text):
            thunder.jit(fn)(torch.ones(3, requires_grad=True))

    def without_gradient(x: torch.Tensor) -> Any:
        return x.exp().register_hook(print)

    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        thunder.jit(without_gradient)(torch.ones(3))


def test_a_handle_cannot_be_used_after_the_call() -> None:
    handles: list[Any] = []

    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        handles.append(y.register_hook(lambda g: g * 2))
        return y

    thunder.jit(fn)(torch.ones(3, requires_grad=True))
    with pytest.raises(UnsupportedProgram, match="removed after the call"):
        handles[0].remove()


def test_a_write_to_the_input_of_a_hooked_module_raises_as_in_torch() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    model[1].register_full_backward_hook(lambda *args: None)
    for fn in (model, thunder.jit(model)):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            fn(torch.ones(2, 3))


def test_a_region_of_save_on_cpu_computes_and_other_hooks_on_saved_tensors_are_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return (x.exp() * x).sum()

    torch.testing.assert_close(gradients(thunder.jit(fn), 0), gradients(fn, 0))

    def with_hooks(x: torch.Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            return x.exp()

    with pytest.raises(UnsupportedProgram, match="hooks on the tensors that are saved"):
        thunder.jit(with_hooks)(torch.ones(3, requires_grad=True))
