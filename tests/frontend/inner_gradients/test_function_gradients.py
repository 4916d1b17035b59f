"""A program differentiates functions, by `torch.func` and `torch.autograd.functional`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import functional
from torch.func import functional_call, grad, grad_and_value, vjp
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import thunder


def values(*shape: int, requires_grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=requires_grad)


def energy(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


MODEL = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def adapted(x: Tensor, y: Tensor) -> Tensor:
    """The loss after a step of gradient descent: a meta-learner's."""

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return F.mse_loss(functional_call(MODEL, parameters, (x,)), y)

    parameters = dict(MODEL.named_parameters())
    gradients = grad(loss)(parameters)
    return loss({name: p - 0.1 * gradients[name] for name, p in parameters.items()})


def with_auxiliary(x: Tensor, y: Tensor) -> Any:
    def fn(x: Tensor, others: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return (x.sin() * others["y"]).sum(), {"doubled": x * 2}

    return grad_and_value(fn, argnums=(0, 1), has_aux=True)(x, {"y": y})


def pulled_back(x: Tensor) -> Any:
    result, fn = vjp(lambda x: (x.sin(), x.exp()), x)
    (g,) = fn((x, torch.ones_like(x)))
    return g.sum() + result[0].sum()


def mixed_levels(x: Tensor) -> Tensor:
    return grad(lambda y: (y * grad(lambda z: (y + z * y).sum())(x * 2)).sum())(x).sum()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.a(x))
        return y


TIED = Tied().double()

DETACHED = {name: p.detach() for name, p in MODEL.named_parameters()}

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "nested": (lambda x: grad(lambda y: grad(energy)(y).pow(2).sum())(x), (values(3),)),
    "with outer gradients": (
        lambda x: grad(energy)(x).pow(2).sum() + x.sum(),
        (values(3, requires_grad=True),),
    ),
    "without outer gradients": (torch.no_grad()(grad(energy)), (values(3, requires_grad=True),)),
    "levels that use each other": (mixed_levels, (values(3, requires_grad=True),)),
    "auxiliary results": (with_auxiliary, (values(3), values(3, requires_grad=True))),
    "a step of gradient descent": (adapted, (values(4, 3), values(4, 1))),
    "vjp": (pulled_back, (values(3, requires_grad=True),)),
    "gradients of examples": (
        lambda x: torch.vmap(grad(lambda p, x: functional_call(MODEL, p, (x,)).sum()), (None, 0))(
            DETACHED, x
        ),
        (values(4, 3),),
    ),
    "tied parameters": (lambda x: functional_call(TIED, {"a.weight": x @ x.T}, (x,)), (values(3, 3),)),
    "Jacobian": (
        lambda x: functional.jacobian(lambda x: x.sin() * x.sum(), x, create_graph=True).pow(2).sum(),
        (values(3, requires_grad=True),),
    ),
    "Hessian": (lambda x: functional.hessian(lambda x: x.sin().prod(), x), (values(2),)),
    "products": (
        lambda x: (
            functional.hvp(energy, x, x),
            functional.jvp(torch.sin, x, x),
            functional.vjp(torch.sin, x, x),
        ),
        (values(3),),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_are_eagers(name: str) -> None:
    program, args = PROGRAMS[name]
    compiled = thunder.jit(program)
    inputs = [*(a for a in args if a.requires_grad), *MODEL.parameters()]
    outcomes = []
    for call in (program, compiled):
        results = pytree.tree_leaves(call(*args))
        tracked = [r.sum() for r in results if r.requires_grad]
        gradients = torch.autograd.grad(tracked, inputs, allow_unused=True) if tracked else ()
        outcomes.append((results, gradients, [r.requires_grad for r in results]))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_a_module_has_its_own_parameters_after_a_functional_call() -> None:
    weight = TIED.a.weight
    compiled = thunder.jit(lambda x: (functional_call(TIED, {"a.weight": x}, (x,)), TIED(x)))
    for x in (values(3, 3), values(3, 3)):
        torch.testing.assert_close(compiled(x), (x @ x.T @ x.T, TIED(x)))
    assert TIED.a.weight is weight
    assert thunder.cache_misses(compiled) == 1


ERRORS: dict[str, Callable[[Tensor], Any]] = {
    "not a scalar": lambda x: grad(torch.sin)(x),
    "integers": lambda x: grad(lambda i: i.sum())(x.long()),
    "no auxiliary results": lambda x: grad(energy, has_aux=True)(x),
    "independent": lambda x: functional.jacobian(lambda x: torch.ones(3), x, strict=True),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_eagers(name: str) -> None:
    messages = []
    for call in (ERRORS[name], thunder.jit(ERRORS[name])):
        with pytest.raises(RuntimeError, match=r"[a-z]") as caught:
            call(torch.ones(3))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
