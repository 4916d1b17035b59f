"""`torch.func.jvp`, `jacfwd` and `hessian` in programs, and `thunder.jvp`, against torch's own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn import functional as F

import thunder

X, V = torch.tensor([0.3, -1.2, 2.0]).double(), torch.tensor([1.0, 0.5, -0.7]).double()
WEIGHT = torch.arange(12.0).reshape(4, 3).double().cos()
MODEL = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.RMSNorm(4)).double()


def energy(x: Tensor) -> Tensor:
    return (torch.tanh(WEIGHT @ x) ** 2).sum()


def convolution(x: Tensor) -> Tensor:
    kernel = WEIGHT[:2, :2].reshape(1, 1, 2, 2)
    return F.conv2d(torch.outer(x, x)[None, None], kernel).relu().sum((2, 3))


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a product": lambda x, v: jvp(lambda a: a.sin() * a.sum(), (x,), (v,)),
    "two arguments and results": lambda x, v: jvp(lambda a, b: (a * b, a.exp()), (x, v), (v, x)),
    "trees": lambda x, v: jvp(lambda d: {"y": d["a"].exp()}, ({"a": x},), ({"a": v},)),
    "nested": lambda x, v: jvp(lambda a: jvp(lambda b: b.sin() * a, (a,), (v,))[1], (x,), (v,)),
    "auxiliary results": lambda x, v: jvp(lambda a: (a.sin(), a * 2), (x,), (v,), has_aux=True),
    "results without tangents": lambda x, v: jvp(lambda a: (WEIGHT, a, a > 0, a.argmax()), (x,), (v,)),
    "detach": lambda x, v: jvp(lambda a: a * a.detach(), (x.detach(),), (v,)),
    "a write": lambda x, v: jvp(lambda a: a.clone().mul_(a), (x,), (v,)),
    "without gradients": torch.no_grad()(lambda x, v: jvp(torch.sin, (x,), (v,))),
    "a convolution": lambda x, v: jvp(convolution, (x,), (v,)),
    "complex numbers": lambda x, v: jvp(lambda a: a * a.conj() + a.exp(), (x + 1j,), (v * 1j,)),
    "jacfwd of a module": lambda x, v: jacfwd(MODEL)(x),
    "jacfwd by two arguments": lambda x, v: jacfwd(lambda a, b: a * b, argnums=(0, 1))(x, v),
    "hessian": lambda x, v: hessian(energy)(x),
    "jacfwd of jacfwd": lambda x, v: jacfwd(jacfwd(energy))(x),
    "jacrev of jacfwd": lambda x, v: jacrev(jacfwd(energy))(x),
    "grad of jvp": lambda x, v: grad(lambda a: jvp(energy, (a,), (v,))[1])(x),
    "jvp of grad": lambda x, v: jvp(grad(energy), (x,), (v,)),
    "vmap of jvp": lambda x, v: vmap(lambda a, b: jvp(torch.sin, (a,), (b,))[1])(x, v),
    "jvp of vmap": lambda x, v: jvp(lambda a: vmap(torch.sin)(a), (x,), (v,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents_and_their_gradients_are_eagers(name: str) -> None:
    program, outcomes = PROGRAMS[name], []
    for call in (program, thunder.jit(program)):
        x = X.clone().requires_grad_()
        results = torch.utils._pytree.tree_leaves(call(x, V))
        tracked = [r.abs().sum() for r in results if r.requires_grad]
        gradients = torch.autograd.grad(tracked, x, allow_unused=True) if tracked else ()
        outcomes.append((results, gradients, [r.requires_grad for r in results]))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_tangents_agree_with_finite_differences() -> None:
    _, tangent = thunder.jvp(energy)((X,), (V,))
    step = 1e-6
    difference = (energy(X + step * V) - energy(X - step * V)) / (2 * step)
    torch.testing.assert_close(tangent, difference, rtol=1e-6, atol=1e-8)


def region_without_gradients(a: Tensor) -> Tensor:
    with torch.no_grad():
        factor = a * 2
    return a * factor


REFUSED: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "a region without gradients": (
        lambda x, v: jvp(region_without_gradients, (x,), (v,)),
        "region without gradients",
    ),
    "gradients of symmetric matrices": (
        lambda x, v: jacfwd(torch.linalg.cholesky)(torch.outer(x, x) + torch.eye(3)),
        "cannot be derived from its gradient",
    ),
    "a tangent of another shape": (lambda x, v: jvp(torch.sin, (x,), (v[:2],)), "same size"),
    "a constant, strictly": (lambda x, v: jvp(lambda a: WEIGHT, (x,), (v,), strict=True), "independent"),
    "primals that are not a tuple": (lambda x, v: jvp(torch.sin, x, v), "primals to be a tuple"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_tangent_is_an_error(name: str) -> None:
    program, text = REFUSED[name]
    with pytest.raises((thunder.ThunderError, RuntimeError), match=text):
        thunder.jit(program)(X, V)


def test_transforms_compose_and_are_compiled_once() -> None:
    directional = thunder.jvp(energy)
    for x in (X, X + 1):
        torch.testing.assert_close(directional((x,), (V,)), jvp(energy, (x,), (V,)))
    assert thunder.cache_misses(directional) == 1
    mapped = thunder.vmap(thunder.jvp(torch.sin))
    torch.testing.assert_close(mapped((X,), (V,)), (X.sin(), X.cos() * V))
    (gradient,) = thunder.grad(lambda x: thunder.jvp(energy)((x,), (V,))[1])(X)
    torch.testing.assert_close(gradient, torch.autograd.functional.hvp(energy, X, V)[1])
    torch.testing.assert_close(thunder.jvp(thunder.jit(torch.sin), (X,), (V,)), (X.sin(), X.cos() * V))


def test_functions_of_thunder_grad_are_differentiated_within_programs() -> None:
    gradient, rows = thunder.grad(energy), torch.stack([X, V])
    mapped = thunder.vmap(gradient)
    expected = vmap(grad(energy))(rows)
    torch.testing.assert_close(mapped(rows), (expected,))
    torch.testing.assert_close(mapped(rows * 2), (vmap(grad(energy))(rows * 2),))
    assert thunder.cache_misses(mapped) == 1
    torch.testing.assert_close(
        thunder.vmap(thunder.value_and_grad(energy))(rows), (vmap(energy)(rows), (expected,))
    )
    torch.testing.assert_close(thunder.vmap(thunder.vjp(torch.sin))(X, V), (X.sin(), (X.cos() * V,)))
    hessian_product = torch.autograd.functional.hvp(energy, X, V)[1]
    torch.testing.assert_close(thunder.jvp(gradient)((X,), (V,))[1], (hessian_product,))
    second = thunder.vmap(thunder.grad(thunder.grad(lambda x: (x**3).sum())))(rows)
    torch.testing.assert_close(second, (6 * rows,))


def test_another_gradient_under_the_same_name_is_another_program() -> None:
    functions = [thunder.grad(torch.sin)]
    compiled = thunder.jit(lambda x: functions[0](x)[0])
    torch.testing.assert_close(compiled(X), X.cos())
    functions[0] = thunder.grad(torch.exp)
    torch.testing.assert_close(compiled(X), X.exp())


def test_dual_numbers_around_a_compiled_module_have_their_tangents() -> None:
    compiled = thunder.jit(MODEL)
    compiled(X)
    for call in (lambda x: compiled(x), compiled):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(X, V)
            tangent = forward_ad.unpack_dual(call(dual)).tangent
        torch.testing.assert_close(tangent, jvp(MODEL, (X,), (V,))[1])
    compiled(X)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)
