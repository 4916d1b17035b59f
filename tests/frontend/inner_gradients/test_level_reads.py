"""`requires_grad` and `is_leaf` within functions that torch.func differentiates are eager's, or refused."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad

import thunder


def factor(q: Tensor) -> int:
    """A number that tells what the program has seen."""
    return (2 if q.is_leaf else 3) + (10 if q.requires_grad else 20)


def without_gradients(q: Tensor) -> int:
    with torch.no_grad():
        return factor(q * 2)


def dual(x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        number = forward_ad.make_dual(x, torch.ones(3))
        return forward_ad.unpack_dual(number * factor(number)).tangent


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "argument": lambda x: func.grad(lambda q: (q * factor(q)).sum())(x),
    "computed from the argument": lambda x: func.grad(lambda q: (q * factor(q * 2)).sum())(x),
    "input of the program": lambda x: func.grad(lambda q: (q * factor(x)).sum())(x * 1.0),
    "detached": lambda x: func.grad(lambda q: (q * factor(q.detach())).sum())(x),
    "constant": lambda x: func.grad(lambda q: (q * factor(torch.ones(3))).sum())(x),
    "without gradients": lambda x: func.grad(lambda q: (q * without_gradients(q)).sum())(x),
    "vjp": lambda x: func.vjp(lambda q: q * factor(q), x)[1](torch.ones(3))[0],
    "jvp": lambda x: func.jvp(lambda q: q * factor(q), (x,), (torch.ones(3),))[1],
    "jacrev": lambda x: func.jacrev(lambda q: (q * factor(q)).sum(0))(x),
    "jacfwd": lambda x: func.jacfwd(lambda q: (q * factor(q)).sum(0))(x),
    "hessian": lambda x: func.hessian(lambda q: (q * q * factor(q)).sum())(x),
    "nested": lambda x: func.grad(lambda p: func.grad(lambda q: (q * q * factor(q)).sum())(p).sum())(x),
    "mapped": lambda x: func.vmap(func.grad(lambda q: q * factor(q)))(x),
    "dual number": dual,
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_sees_what_eager_sees(name: str, requires_grad: bool) -> None:
    x = torch.arange(1.0, 4.0, requires_grad=requires_grad)
    torch.testing.assert_close(thunder.jit(PROGRAMS[name])(x), PROGRAMS[name](x), rtol=0, atol=0)


def test_a_tensor_that_is_computed_from_others_is_refused() -> None:
    compiled = thunder.jit(lambda x: func.grad(lambda q: (q * factor(x * 2)).sum())(x))
    with pytest.raises(thunder.UnsupportedProgram, match="does not depend on the function's arguments"):
        compiled(torch.arange(3.0, requires_grad=True))
