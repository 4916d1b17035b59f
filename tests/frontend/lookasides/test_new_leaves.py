"""Leaves that a program makes, and on which its results depend: the caller's backward reaches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import thunder
from thunder.base.errors import UnsupportedProgram

PROGRAMS: dict[str, Callable[[Tensor], Any]] = {}


def program(fn: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def by_a_factory(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    return w, x * w


@program
def with_random_values(x: Tensor) -> Any:
    w = torch.randn(3, requires_grad=True)
    b = torch.rand(3, requires_grad=True)
    return x * w + b, {"w": w, "b": b}


@program
def of_an_input(x: Tensor) -> Any:
    start = x.detach().clone().requires_grad_()
    return start, (start * x).sin()


@program
def a_perturbation(x: Tensor) -> Any:
    delta = torch.zeros_like(x, requires_grad=True)
    loss = ((x + delta) ** 3).sum()
    return loss, delta


@program
def written_before_it_requires_grad(x: Tensor) -> Any:
    w = torch.empty(3)
    w.uniform_()
    before = w * 2
    w.requires_grad_()
    return w, x * w, before


@program
def written_under_no_grad(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        w.mul_(2)
        w += x.sum()
    return w, x * w


@program
def trained_in_the_program(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    for _ in range(2):
        loss = (x.detach() * w).sin().sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
    return w, x * w


@program
def with_a_gradient(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    (x.detach() * w).sin().sum().backward()
    return w, x * w


@program
def a_parameter(x: Tensor) -> Any:
    w = nn.Parameter(torch.arange(3.0))
    return w, x * w, type(w), w.is_leaf, w.grad_fn is None


@program
def a_module(x: Tensor) -> Any:
    layer = nn.Linear(3, 2)
    return layer, layer(x)


@program
def a_module_with_submodules(x: Tensor) -> Any:
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2, bias=False))
    return net(x).square().mean(), net


@program
def shared_by_two_results(x: Tensor) -> Any:
    w = torch.full((3,), 2.0, requires_grad=True)
    return x * w, (w * w).sum(), w


@program
def that_does_not_leave(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    return x.detach() * w, x * 2


@program
def of_other_strides(x: Tensor) -> Any:
    w = torch.randn(2, 3, 1, 2).to(memory_format=torch.channels_last).requires_grad_()
    return w, x.sum() * w, w.stride()


@program
def after_a_decision(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    y = x * w if x.sum() > -1000 else x - w
    v = torch.ones(3, requires_grad=True) if y.sum() > -1000 else w
    return w, v, y * v


@program
def in_memory_of_no_other(x: Tensor) -> Any:
    w = torch.arange(6.0).reshape(2, 3)[1].requires_grad_()
    return w, x * w


@program
def frozen_again(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    v = torch.ones(3, requires_grad=True)
    v.requires_grad_(False)
    return w, v, x * w * v


@program
def in_double(x: Tensor) -> Any:
    w = torch.ones((), dtype=torch.float64, requires_grad=True)
    return w, x * w, x.double() * w


@program
def differentiated_inside(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    y = (x * w).exp()
    (g,) = torch.autograd.grad(y.sum(), w, create_graph=True)
    return w, (g * g).sum()


def tensors_of(result: Any) -> list[Tensor]:
    found = []
    for leaf in tree_leaves(result):
        found += list(leaf.parameters()) if isinstance(leaf, nn.Module) else [leaf]
    return [t for t in found if isinstance(t, Tensor)]


def outcome(fn: Any, seed: int, rows: int, *, again: bool = False, tracked: bool = True) -> Any:
    """Return the results, their gradients and the input's, and what else a program returns."""
    torch.manual_seed(seed)
    x = torch.randn(rows, 3, requires_grad=tracked)
    result = fn(x)
    tensors = tensors_of(result)
    facts = [(t.is_leaf, t.requires_grad, type(t), t.stride()) for t in tensors]
    loss = sum((t.sum() ** 2 for t in tensors if t.grad_fn is not None), torch.zeros(()))
    if loss.requires_grad:
        loss.backward(retain_graph=again)
        if again:
            (3 * loss).backward()
    others = [leaf for leaf in tree_leaves(result) if not isinstance(leaf, Tensor | nn.Module)]
    return [t.detach() for t in tensors], [t.grad for t in tensors if t.is_leaf], x.grad, facts, others


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_leaf_of_the_program_gets_its_gradient_as_in_eager(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for seed, rows, options in (
        (0, 2, {}),
        (1, 2, {"again": True}),
        (2, 5, {}),
        (3, 7, {}),
        (4, 7, {"tracked": False}),
    ):
        expected = outcome(PROGRAMS[name], seed, rows, **options)
        *values, facts, others = outcome(compiled, seed, rows, **options)
        assert (facts, others) == (expected[-2], expected[-1])
        torch.testing.assert_close(values, list(expected[:-2]))


def test_each_call_has_a_leaf_of_its_own() -> None:
    compiled = thunder.jit(by_a_factory)
    x = torch.ones(3)
    (w, y), (v, z) = compiled(x), compiled(x)
    y.sum().backward()
    assert w is not v
    assert v.grad is None
    assert w.grad is not None
    with torch.no_grad():
        w.add_(1)
    assert v.tolist() == [1.0] * 3
    z.sum().backward()
    assert torch.equal(v.grad, x)
    assert thunder.cache_misses(compiled) == 1


def test_without_gradients_a_leaf_is_one_too() -> None:
    with torch.no_grad():
        for fn in (by_a_factory, thunder.jit(by_a_factory)):
            w, y = fn(torch.ones(3))
            assert (w.requires_grad, w.is_leaf, y.requires_grad) == (True, True, False)


def test_a_module_that_is_returned_trains() -> None:
    def losses(build: Any) -> list[float]:
        torch.manual_seed(0)
        x = torch.randn(4, 3)
        _, net = build(x)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    compiled = thunder.jit(a_module_with_submodules)
    expected = losses(a_module_with_submodules)
    for _ in range(2):
        assert losses(compiled) == pytest.approx(expected)


def in_memory_of_another(x: Tensor) -> Any:
    rows = torch.ones(2, 3)
    w = rows[0].requires_grad_()
    return w, x * w, rows


def in_memory_of_an_input(x: Tensor) -> Any:
    w = x.detach()[0].requires_grad_()
    return w, x * w


def with_a_hook(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=True)
    w.register_hook(lambda g: g * 10)
    return w, x * w


@pytest.mark.parametrize("fn", [in_memory_of_another, in_memory_of_an_input, with_a_hook])
def test_what_an_input_cannot_be_in_place_of_is_refused(fn: Any) -> None:
    with pytest.raises(UnsupportedProgram, match="the program sets"):
        thunder.jit(fn)(torch.ones(2, 3))


def module_of_an_input(x: Tensor) -> Any:
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(x)
    return layer.weight.data


#: what a program returns of a parameter that it has made, of an input and of a tensor of its own
PARTS: dict[str, Callable[[Tensor], Any]] = {
    "detached": lambda x: nn.Parameter(x).detach(),
    "its data": lambda x: nn.Parameter(x.detach()).data,
    "a row": lambda x: nn.Parameter(x).detach()[0],
    "in another shape": lambda x: nn.Parameter(x).data.view(-1),
    "with itself": lambda x: (lambda p: (p, p.detach()))(nn.Parameter(x)),
    "another leaf": lambda x: nn.Parameter(x).detach().requires_grad_(),
    "of a tensor of the program": lambda x: (lambda y: (y, nn.Parameter(y).detach()))(x * 2),
    "of a buffer": lambda x: nn.Buffer(x).detach(),
    "of a module": module_of_an_input,
}


@pytest.mark.parametrize("name", PARTS)
def test_what_is_detached_from_a_parameter_is_a_part_of_its_data(name: str) -> None:
    def run(fn: Any) -> Any:
        found: list[Any] = []
        for start in (0.0, 1.0):
            x = torch.arange(6.0).reshape(2, 3) + start
            results = tree_leaves(fn(x))
            with torch.no_grad():
                results[-1].add_(10)
            found += [x, *(r.detach().clone() for r in results)]
            found += [(r.requires_grad, r.is_leaf, r._is_view(), r.stride()) for r in results]
        return found

    found, expected = run(thunder.jit(PARTS[name])), run(PARTS[name])
    assert [v for v in found if type(v) is tuple] == [v for v in expected if type(v) is tuple]
    torch.testing.assert_close(*([v for v in vs if isinstance(v, Tensor)] for vs in (found, expected)))


@pytest.mark.parametrize(
    "fn", [lambda x: nn.Parameter(x).view(-1).detach(), lambda x: nn.Parameter(x.detach()).t()]
)
def test_another_part_of_a_parameter_that_is_made_of_an_input_is_not_returned(fn: Any) -> None:
    with pytest.raises(UnsupportedProgram, match="makes a parameter, and returns a part of it"):
        thunder.jit(fn)(torch.ones(2, 3))
