"""Gradients at the nodes of torch's graph: written arguments, hooks, leaves, functions with a ``jvp``."""

import gc
from typing import Any

import pytest
import torch
from torch.autograd import Function, forward_ad

import thunder
from thunder.core.errors import UnsupportedOperator, UnsupportedProgram


def _x() -> torch.Tensor:
    return torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)


class Double(Function):
    """Writes to its argument, and says nothing about it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 5


class Product(Function):
    """Writes to its second argument, and saves it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(x)
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = ctx.saved_tensors
        return g * y, g * x


class Dirty(Function):
    """Returns the argument to which it writes, and saves it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * ctx.saved_tensors[0]


def test_the_gradient_of_a_written_argument_passes_the_function() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 3
        z = Double.apply(y)
        return torch.autograd.grad((z + y).sum(), (y, x))

    def alone(x: torch.Tensor) -> Any:
        y = x * 3
        return torch.autograd.grad(Double.apply(y).sum(), y)

    for fn in (f, alone):
        torch.testing.assert_close(thunder.jit(fn)(_x()), fn(_x()))


@pytest.mark.parametrize("fn", [lambda x: Product.apply(x * 1, x * 5), lambda x: Dirty.apply(x * 3)])
def test_second_derivatives_of_functions_that_save_what_they_write(fn: Any) -> None:
    def derivatives(f: Any) -> Any:
        x = _x()
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return g.detach(), torch.autograd.grad((g * g).sum(), x)

    torch.testing.assert_close(derivatives(thunder.jit(fn)), derivatives(fn))


def test_an_input_that_is_no_leaf_gets_no_gradient_from_an_earlier_call() -> None:
    def f(x: torch.Tensor) -> Any:
        (x * x).sum().backward()
        return x.grad

    compiled = thunder.jit(f)
    torch.testing.assert_close(compiled(_x()), f(_x()))
    with pytest.raises(UnsupportedProgram, match="reaches tensors outside of the program"):
        compiled(-_x())


def test_a_hooked_input_before_another_is_refused() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return torch.autograd.grad((y * y).sum(), (x, y))

    with pytest.raises(UnsupportedProgram, match="has hooks, and by one that it depends on"):
        thunder.jit(f)(_x())


class Exp(Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, t: torch.Tensor) -> torch.Tensor:
        return t * 7


def test_tangents_through_a_function_with_a_jvp_are_refused() -> None:
    def jvp(x: torch.Tensor) -> Any:
        return torch.func.jvp(Exp.apply, (x,), (torch.ones_like(x),))

    def dual(x: torch.Tensor) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(Exp.apply(forward_ad.make_dual(x, torch.ones_like(x)))).tangent

    for fn in (jvp, dual):
        with pytest.raises(UnsupportedProgram, match="which has a jvp of its own"):
            thunder.jit(fn)(_x().detach())


def test_a_refusal_within_a_dual_level_leaves_the_grad_mode() -> None:
    def f(x: torch.Tensor) -> Any:
        with forward_ad.dual_level():
            d = forward_ad.make_dual(x, torch.ones_like(x))
            with torch.no_grad():
                y = d * 2
            return forward_ad.unpack_dual(y)

    with torch.no_grad(), pytest.raises(UnsupportedProgram, match="region without gradients"):
        thunder.jit(f)(_x().detach())
    gc.collect()
    assert torch.is_grad_enabled()


def test_an_operator_that_writes_and_is_composed_of_torchs_has_their_gradient() -> None:
    library = torch.library.Library("thunder_test_nodes", "DEF")
    library.define("times_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    library.impl("times_", lambda x, y: x.mul_(y), "CompositeImplicitAutograd")

    def f(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.thunder_test_nodes.times_(x * 1, x)
        return y

    compiled = thunder.jit(f)
    with pytest.raises(UnsupportedOperator, match="has a gradient of its own"):
        compiled(_x())
    torch.testing.assert_close(compiled(_x().detach()), f(_x().detach()))


def test_views_of_composites_in_inference_mode() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        torch.einsum("ii->i", y).zero_()
        return y

    x = torch.ones(3, 3)
    for _ in range(3):  # torch's fake tensors remember calls
        with torch.inference_mode():
            torch.testing.assert_close(thunder.jit(f)(x), f(x))


def test_derivatives_in_inference_mode_are_refused() -> None:
    def by_grad(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda t: (t**3).sum())(x)

    def by_jvp(x: torch.Tensor) -> Any:
        return torch.func.jvp(torch.sin, (x,), (x,))

    for fn in (by_grad, by_jvp):
        compiled = thunder.jit(fn)
        with torch.inference_mode(), pytest.raises(UnsupportedProgram, match="in inference mode"):
            compiled(_x().detach())
        with torch.no_grad():
            torch.testing.assert_close(compiled(_x().detach()), fn(_x().detach()))


def test_numbers_of_a_dual_level_without_gradients_require_none() -> None:
    def f(x: torch.Tensor) -> Any:
        with forward_ad.dual_level():
            number = forward_ad.make_dual(x, torch.ones_like(x))
            return x.sin(), number * x

    with torch.no_grad():
        assert not any(t.requires_grad for t in thunder.jit(f)(_x()))


class Same(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


def test_an_argument_that_a_function_returns_is_an_alias_also_without_gradients() -> None:
    x = _x().detach()
    result = thunder.jit(lambda x: Same.apply(x))(x)
    assert result is not x
    assert result.data_ptr() == x.data_ptr()


def test_a_tensor_twice_in_a_list_that_is_written_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        torch._foreach_add_([y, y], [x, x])
        return y

    compiled = thunder.jit(f)
    with pytest.raises(UnsupportedOperator, match="with a tensor twice in the list"):
        compiled(_x())
    torch.testing.assert_close(compiled(_x().detach()), f(_x().detach()))
