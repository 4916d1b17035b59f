"""Tensors that a program makes: legacy constructors, lists of tensors, parameters of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram


def legacy(x: torch.Tensor) -> Any:
    return (
        torch.FloatTensor([[1, 2.5], [3, 4]]),
        torch.LongTensor([1, 2]) + torch.BoolTensor([True]),
        torch.Tensor(2, 3).fill_(1) + torch.Tensor(torch.Size([3])).zero_(),
        torch.Tensor([1, 2]).dtype,
        torch.Tensor().shape,
        torch.Tensor(x).add_(1),
        x.new(2, 3).fill_(2),
        x.new([1, 2]),
        x.long().new(x.size()).zero_(),
        torch.zeros(2).type(torch.DoubleTensor),
        x * 1,
    )


def of_tensors(x: torch.Tensor) -> Any:
    return (
        torch.tensor([x.sum(), x[0].item(), 2]),
        torch.tensor([[x[0], x[1]], [1, 2]]),
        torch.tensor([torch.tensor(1), True]).dtype,
        torch.tensor([x[0]], dtype=torch.float64),
        x.new_tensor([x.max(), 1]),
    )


@pytest.mark.parametrize("fn", [legacy, of_tensors])
def test_constructors_are_those_of_torch(fn: Callable[..., Any]) -> None:
    compiled = thunder.jit(fn)
    for start in (0.0, 1.0):
        x = torch.arange(start, start + 3)
        assert str(compiled(x.clone())) == str(fn(x.clone()))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.Tensor(2.5),
        lambda x: torch.LongTensor(x),
        lambda x: torch.tensor([x[0]], dtype=torch.int64),
        lambda x: torch.FloatTensor([[1, 2], [3]]),
    ],
)
def test_what_torch_does_not_construct_raises(fn: Callable[..., Any]) -> None:
    for call in (fn, thunder.jit(fn)):
        with pytest.raises((TypeError, ValueError, RuntimeError), match=r"expected|sequence|converted"):
            call(torch.ones(2))


def test_a_module_made_in_a_program_computes_and_differentiates() -> None:
    def fn(x: torch.Tensor) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))
        nn.init.constant_(model[2].bias, 0.5)
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        weight = nn.Parameter(torch.ones(1))
        is_parameter = isinstance(weight, nn.Parameter) and type(weight) is nn.Parameter and weight.is_leaf
        return (model(x) * weight).sum(), count, is_parameter, list(model.state_dict())

    def run(fn: Any) -> Any:
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        loss, *facts = fn(x)
        loss.backward()
        return loss.detach(), x.grad, str(facts)

    compiled = thunder.jit(fn)
    for _ in range(2):
        ours, theirs = run(compiled), run(fn)
        torch.testing.assert_close(ours[:2], theirs[:2])
        assert ours[2] == theirs[2]


def test_a_parameter_is_trained_within_a_program() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            ((weight * x).sum() ** 2).backward()
            optimizer.step()
        return weight.detach() * 1

    x = torch.tensor([0.1, 0.2, 0.3])
    torch.testing.assert_close(thunder.jit(fn)(x), fn(x))


class Renewed(nn.Module):
    """A module that makes a layer in each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer = nn.Linear(3, 2)
        return self.layer(x)


def test_a_module_makes_a_layer_in_each_call() -> None:
    found = []
    for wrap in (lambda module: module, thunder.jit):
        torch.manual_seed(0)
        module = Renewed()
        call = wrap(module)
        for i in range(3):
            call(torch.arange(3.0) + i).sum().backward()
            found.append([p.grad for p in module.parameters()])
    assert all(g is not None for g in found[0])
    torch.testing.assert_close(found[3:], found[:3])


def test_a_parameter_whose_data_are_used_cannot_be_made_again() -> None:
    def writes_to_its_data(x: torch.Tensor) -> Any:
        weight = nn.Parameter(x)
        with torch.no_grad():
            weight.mul_(2)
        return x * 2

    with pytest.raises(UnsupportedProgram, match="writes in place to it or to its data"):
        thunder.jit(writes_to_its_data)(torch.ones(3))


class MadeLater(nn.Module):
    """A module that makes a layer and a parameter in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: nn.Parameter | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            self.scale = nn.Parameter(torch.full((x.shape[-1],), 2.0))
            self.layer = nn.Linear(x.shape[-1], 2)
        return self.layer(x * self.scale)


def test_a_call_that_makes_parameters_is_compiled_and_so_is_the_next_one() -> None:
    def run(module: nn.Module, wrap: Callable[[Any], Any]) -> tuple[Any, Any]:
        torch.manual_seed(0)
        call = wrap(module)
        outcomes = []
        for i in range(3):
            loss = call(torch.arange(3.0) + i).square().sum()
            loss.backward()
            outcomes.append([loss.detach(), *(p.grad.clone() for p in module.parameters())])  # type: ignore[union-attr]
        return outcomes, call

    expected, _ = run(MadeLater(), lambda module: module)
    found, compiled = run(MadeLater(), thunder.jit)
    torch.testing.assert_close(found, expected)
    stats = thunder.compile_stats(compiled)
    assert (stats.runs_by_python, stats.cache_misses) == (0, 2)


def test_legacy_constructors_of_ranges_and_variables() -> None:
    def fn(x: torch.Tensor) -> Any:
        own = torch.autograd.Variable(x * 2, requires_grad=True)
        constant = torch.autograd.Variable(x * 3)
        (gradient,) = torch.autograd.grad((own * x).sum(), own)
        return x * torch.IntTensor(range(3)) + constant, gradient, constant.requires_grad

    compiled = thunder.jit(fn)
    for start in (1.0, 2.0):
        leaves = [torch.arange(start, start + 3).requires_grad_() for _ in range(2)]
        outcomes = fn(leaves[0]), compiled(leaves[1])
        torch.testing.assert_close(outcomes[1], outcomes[0])
        for outcome in outcomes:
            outcome[0].sum().backward()
        torch.testing.assert_close(leaves[1].grad, leaves[0].grad)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "cls", [torch.FloatTensor, torch.LongTensor, torch.cuda.FloatTensor, torch.sparse.FloatTensor]
)
def test_a_tensor_is_of_the_legacy_class_of_its_dtype_and_device(cls: type, device: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x * 2, isinstance(x, cls)

    x = torch.ones(2, device=device)
    assert thunder.jit(program)(x)[1] is program(x)[1]
