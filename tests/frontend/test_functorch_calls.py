"""Transforms of `torch.func` and `torch.autograd.functional` take compiled functions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import functional
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import thunder


def energy(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()


def field(x: Tensor) -> Tensor:
    return x.sin() * x.sum()


MODEL = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
COMPILED: dict[Any, Any] = {fn: thunder.jit(fn) for fn in (energy, field, MODEL)}
PARAMETERS = {name: p.detach() for name, p in MODEL.named_parameters()}


def loss(model: nn.Module) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    return lambda parameters, x: functional_call(model, parameters, (x,)).sum()  # type: ignore[no-any-return]


TRANSFORMED: dict[str, Callable[[Callable[[Any], Any], Tensor], Any]] = {
    "grad": lambda of, x: grad(of(energy))(x),
    "vjp": lambda of, x: vjp(of(field), x)[1](x)[0],
    "jvp": lambda of, x: jvp(of(field), (x,), (x,)),
    "jacrev": lambda of, x: jacrev(of(field))(x),
    "jacfwd": lambda of, x: jacfwd(of(field))(x),
    "hessian": lambda of, x: hessian(of(energy))(x),
    "vmap": lambda of, x: vmap(of(field))(torch.stack([x, x + 1])),
    "parameters": lambda of, x: grad(loss(of(MODEL)))(PARAMETERS, x),
    "gradients of examples": lambda of, x: vmap(grad(loss(of(MODEL))), (None, 0))(PARAMETERS, x[None]),
    "functional": lambda of, x: (functional.jacobian(of(field), x), functional.hvp(of(energy), x, x)),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transform_of_a_compiled_function_is_that_of_the_function(name: str) -> None:
    transformed, x = TRANSFORMED[name], torch.randn(3, dtype=torch.float64)
    expected = transformed(lambda fn: fn, x)
    for _ in range(2):
        torch.testing.assert_close(transformed(COMPILED.__getitem__, x), expected)
        torch.testing.assert_close(COMPILED[field](x), field(x))


def test_gradients_of_a_compiled_function_to_second_order() -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(COMPILED[field], x)
    assert torch.autograd.gradgradcheck(COMPILED[field], x)
