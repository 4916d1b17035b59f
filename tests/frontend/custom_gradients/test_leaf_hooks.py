"""Hooks of parameters, where a program computes their gradients: order, replacement, accumulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder
from sweeping import one_in
from thunder.base.errors import UnsupportedProgram

Step = Callable[[Tensor], Any]
Seen = list[tuple[str, Any]]
CASES: dict[str, Callable[[nn.Sequential, Seen], Step]] = {}


def case(build: Callable[[nn.Sequential, Seen], Step]) -> Callable[[nn.Sequential, Seen], Step]:
    CASES[build.__name__] = build
    return build


def model() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4)]
    shared = nn.Linear(4, 4)
    return nn.Sequential(*layers, shared, nn.Tanh(), nn.Linear(4, 4, bias=False), shared).double()


def loss_of(m: nn.Module, x: Tensor) -> Tensor:
    return m(x).square().sum()  # type: ignore[no-any-return]


@case
def registered_before_the_call(m: nn.Sequential, seen: Seen) -> Step:
    for p in m.parameters():
        p.register_hook(lambda g: g.clamp(-0.01, 0.01))
    return lambda x: loss_of(m, x).backward()


@case
def with_effects_in_order(m: nn.Sequential, seen: Seen) -> Step:
    for n, p in m.named_parameters():
        p.register_hook(lambda g, n=n: seen.append((n, g.norm())))
    return lambda x: loss_of(m, x).backward()


@case
def removed_in_the_program(m: nn.Sequential, seen: Seen) -> Step:
    def step(x: Tensor) -> None:
        handles = [p.register_hook(lambda g, n=n: seen.append((n, g * 2))) for n, p in m.named_parameters()]
        loss_of(m, x).backward()
        for handle in handles:
            handle.remove()
        loss_of(m, x).backward()

    return step


@case
def reads_a_number_that_changes(m: nn.Sequential, seen: Seen) -> Step:
    scale = {"by": 2.0}
    m[0].weight.register_hook(lambda g: g * scale["by"])

    def step(x: Tensor) -> None:
        scale["by"] += 1
        loss_of(m, x).backward()

    return step


@case
def an_optimizer_in_each_hook(m: nn.Sequential, seen: Seen) -> Step:
    optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in m.parameters()}

    def hook(p: Tensor) -> None:
        optimizers[p].step()  # type: ignore[index]
        optimizers[p].zero_grad()  # type: ignore[index]

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x: Tensor) -> Tensor:
        loss = loss_of(m, x)
        loss.backward()
        return loss.detach()

    return step


@case
def in_a_with_statement(m: nn.Sequential, seen: Seen) -> Step:
    def step(x: Tensor) -> None:
        with m[0].weight.register_hook(lambda g: g * 10):
            loss_of(m, x).backward()
        with m[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad.clone()))):
            loss_of(m, x).backward()

    return step


@case
def by_autograd_grad(m: nn.Sequential, seen: Seen) -> Step:
    m[0].weight.register_hook(lambda g: g * 10)
    m[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(("not called", 1.0)))
    return lambda x: torch.autograd.grad(loss_of(m, x), list(m.parameters()))


@case
def reads_gradients_of_others(m: nn.Sequential, seen: Seen) -> Step:
    named = dict(m.named_parameters())
    named["2.bias"].register_hook(lambda g: seen.extend((n, float(p.grad is None)) for n, p in named.items()))

    def step(x: Tensor) -> None:
        m.zero_grad()
        loss_of(m, x).backward()

    return step


@case
def differentiated_again(m: nn.Sequential, seen: Seen) -> Step:
    m[0].weight.register_hook(lambda g: g * g)

    def step(x: Tensor) -> None:
        (g,) = torch.autograd.grad(loss_of(m, x), [m[0].weight], create_graph=True)
        g.sum().backward()

    return step


@case
def removed_before_the_callers_backward(m: nn.Sequential, seen: Seen) -> Step:
    def step(x: Tensor) -> Tensor:
        handle = m[0].weight.register_hook(lambda g: g * 10)
        loss = loss_of(m, x)
        handle.remove()
        return loss

    return step


@case
def a_handle_of_the_caller(m: nn.Sequential, seen: Seen) -> Step:
    handle = m[0].weight.register_hook(lambda g: g * 10)

    def step(x: Tensor) -> None:
        loss_of(m, x).backward()
        handle.remove()
        loss_of(m, x).backward()

    return step


@case
def one_is_removed_and_another_registered(m: nn.Sequential, seen: Seen) -> Step:
    handles: list[Any] = []

    def step(x: Tensor) -> Tensor:
        name = str(len(handles))
        handles.append(m[0].weight.register_hook(lambda g: seen.append((name, g.sum()))))
        if len(handles) > 1:
            handles[-2].remove()
        return loss_of(m, x)

    return step


def outcome(name: str, wrap: Callable[[Step], Step]) -> tuple[Any, ...]:
    m, seen = model(), list[tuple[str, Any]]()
    step, results = wrap(CASES[name](m, seen)), []
    for call in range(4):
        torch.manual_seed(call)
        result = step(torch.randn(5 + call // 2, 3, dtype=torch.float64) * (call + 1))
        if isinstance(result, Tensor) and result.requires_grad:
            result.backward()
        if call == 1:
            handle = m[2].bias.register_hook(lambda g: g * 0.5)
        if call == 2:
            handle.remove()
        results.append(result.detach() if isinstance(result, Tensor) else result)
    state = [(p.detach(), p.grad) for p in m.parameters()]
    return results, state, [value for _, value in seen], [n for n, _ in seen]


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_gradients_pass_hooks_as_in_eager(name: str) -> None:
    *values, order = outcome(name, thunder.jit)
    *expected, expected_order = outcome(name, lambda step: step)
    assert order == expected_order
    torch.testing.assert_close(values, expected)


def test_a_hook_on_a_leaf_of_the_program_is_refused_if_it_is_left() -> None:
    def leaves_it(x: Tensor) -> None:
        w = torch.ones(3, requires_grad=True)
        w.register_post_accumulate_grad_hook(lambda p: None)
        (w * x).sum().backward()

    with pytest.raises(UnsupportedProgram, match="does not remove it"):
        thunder.jit(leaves_it)(torch.ones(3))


def test_errors_of_hooks_are_torchs() -> None:
    w = torch.ones(3, requires_grad=True)
    step = thunder.jit(lambda x: (w * x).sum().backward())
    for register, hook, text in (
        (w.register_hook, lambda g: g.sum(), "has changed the size of value"),
        (w.register_post_accumulate_grad_hook, lambda p: p, "should return None"),
    ):
        handle = register(hook)  # type: ignore[operator]
        with pytest.raises(RuntimeError, match=text):
            step(torch.ones(3))
        handle.remove()

    def on_an_intermediate(x: Tensor) -> None:
        (w * x).register_post_accumulate_grad_hook(lambda p: None)

    with pytest.raises(RuntimeError, match="cannot be registered on non-leaf tensors"):
        thunder.jit(on_an_intermediate)(torch.ones(3))
