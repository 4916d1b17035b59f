"""`grad`, `value_and_grad` and `vjp`: gradients as functions of functions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder
from comparison.inputs import leaf
from thunder.base.errors import UnsupportedProgram
from thunder.compiler.functional_transforms import value_and_grad, vjp
from thunder.ops import torch_support


def loss(x, w):
    return (torch.sin(x) * w).sum()


def eager(x, w):
    x, w = (t.detach().requires_grad_() for t in (x, w))
    return torch.autograd.grad(loss(x, w), (x, w))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_grad_is_the_tuple_of_gradients_of_all_tensors(requires_grad, compiled):
    x, w = leaf(3, grad=requires_grad), leaf(3, seed=1, grad=requires_grad)
    fn = thunder.grad(thunder.jit(loss) if compiled else loss)
    found = fn(x, w)
    assert isinstance(found, tuple)
    torch.testing.assert_close(found, eager(x, w))
    assert x.grad is None


def test_grad_is_the_same_object_under_its_other_name():
    assert thunder.core.transforms.grad is thunder.grad


def test_grad_of_grad():
    x = leaf(3, grad=False)

    def cube(x):
        return (x * x * x).sum()

    second = thunder.grad(thunder.grad(cube))
    torch.testing.assert_close(second(x)[0], 6 * x)
    torch.testing.assert_close(thunder.grad(second)(x)[0], torch.full((3,), 6.0, dtype=torch.float64))


def test_grad_inside_a_compiled_program_is_a_part_of_it():
    def program(x):
        return thunder.grad(lambda t: (t * t).sum())(x)[0]

    compiled, x = thunder.jit(program), leaf(3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), 2 * x)
    assert thunder.cache_misses(compiled) == 1


def test_torch_differentiates_what_grad_returns():
    x, w = leaf(3), leaf(3, seed=1)
    found = thunder.grad(loss)(x, w)
    again = torch.autograd.grad(found[0].sum(), (x, w))
    torch.testing.assert_close(again, (-torch.sin(x) * w, torch.cos(x)))


def test_grad_sums_a_result_of_several_elements_and_several_results():
    def program(x):
        return x * x, {"twice": 2 * x}

    x = leaf(3, grad=False)
    torch.testing.assert_close(thunder.grad(program)(x)[0], 2 * x + 2)


def test_an_input_without_influence_gets_zeros():
    x, w = leaf(3, grad=False), leaf(2, grad=False)
    found = thunder.grad(lambda x, w: x.sum())(x, w)
    torch.testing.assert_close(found, (torch.ones(3).double(), torch.zeros(2).double()))


def test_value_and_grad_returns_both():
    x, w = leaf(3, grad=False), leaf(3, seed=1, grad=False)
    value, gradients = value_and_grad(loss)(x, w)
    torch.testing.assert_close(value, loss(x, w))
    assert not value.requires_grad
    torch.testing.assert_close(gradients, eager(x, w))


def test_vjp_takes_cotangents_in_the_structure_of_the_result():
    def program(x, w):
        return {"a": x * w, "b": torch.exp(x)}

    x, w, g = leaf(3), leaf(3, seed=1), leaf(3, seed=2, grad=False)
    result, gradients = vjp(program)((x.detach(), w.detach()), {"a": g, "b": None})
    torch.testing.assert_close(result["b"], torch.exp(x).detach())
    torch.testing.assert_close(gradients, (g * w.detach(), g * x.detach()))
    with pytest.raises(thunder.InvalidArgument, match="structure"):
        vjp(program)((x, w), g)


def test_grad_of_a_complex_or_integer_result_is_refused():
    for program in (lambda x: torch.complex(x, x), lambda x: x.argmax()):
        with pytest.raises(thunder.InvalidArgument, match="grad differentiates"):
            thunder.grad(program)(leaf(3))


def test_grad_under_no_grad_still_differentiates():
    x, w = leaf(3), leaf(3, seed=1)
    with torch.no_grad():
        found = thunder.grad(loss)(x, w)
    torch.testing.assert_close(found, eager(x, w))
    assert not any(g.requires_grad for g in found)


def test_grad_with_keywords_and_containers():
    def program(tensors, *, scale):
        return (tensors["a"] * tensors["b"][0] * scale).sum()

    a, b = leaf(3, grad=False), leaf(3, seed=1, grad=False)
    found = thunder.grad(program)({"a": a, "b": [b]}, scale=2.0)
    torch.testing.assert_close(found, (2 * b, 2 * a))


def test_grad_caches_its_compile():
    compiled = thunder.jit(loss)
    fn = thunder.grad(compiled)
    for _ in range(3):
        fn(leaf(3), leaf(3, seed=1))
    assert thunder.cache_misses(compiled) == 1


BFLOAT16 = {
    "gelu": lambda x, w: F.gelu(x * w),
    "gelu tanh": lambda x, w: F.gelu(x * w, approximate="tanh"),
    "silu": lambda x, w: F.silu(x * w),
    "mish": lambda x, w: F.mish(x) * w,
    "softplus": lambda x, w: F.softplus(x) * w,
    "layer_norm": lambda x, w: F.layer_norm(x, (16,), w[0]),
    "softmax": lambda x, w: torch.softmax(x @ w, -1) * w,
}


@pytest.mark.parametrize("name", BFLOAT16)
def test_gradients_that_can_be_differentiated_again_are_the_same_numbers(name):
    """The kernels of a backward are not taken apart because their derivative may be wanted."""
    fn, generator = BFLOAT16[name], torch.Generator().manual_seed(0)
    x, w = (torch.randn(16, 16, generator=generator).bfloat16() for _ in range(2))

    def fresh():
        return x.clone().requires_grad_(), w.clone().requires_grad_()

    inputs = fresh()
    expected = torch.autograd.grad(fn(*inputs).sum(), inputs)
    for found in (thunder.grad(fn)(x, w), thunder.grad(fn)(*fresh())):
        for f, e in zip(found, expected, strict=True):
            assert torch.equal(f, e)


def test_vjp_passes_keyword_arguments_and_differentiates_the_primals_alone():
    x, weight = torch.randn(3), torch.randn(3)

    def scaled(x, *, weight, power=1):
        return x**power * weight

    result, gradients = thunder.vjp(scaled)((x,), torch.ones(3), weight=weight, power=2)
    assert torch.equal(result, x**2 * weight)
    (gradient,) = gradients
    torch.testing.assert_close(gradient, 2 * x * weight)


@pytest.mark.parametrize(
    "call", [lambda x: thunder.grad(torch.sin)(x), lambda x: thunder.vjp(torch.sin)(x, x)]
)
def test_thunder_trace_refuses_gradients_by_name(call):
    with pytest.raises(
        UnsupportedProgram, match=r"under thunder\.trace, which records operators and computes no"
    ):
        thunder.trace()(call, torch.ones(2))


def test_hooks_of_saved_tensors_see_the_program_alone():
    def seen(disabled=False):
        packed = []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t)
        none = torch.autograd.graph.disable_saved_tensors_hooks("none here")
        with none if disabled else hooks:
            thunder.jit(lambda x: torch.special.erfcx(x).sum())(leaf(3))
        return packed

    torch_support._derivative_errors.clear()
    assert seen() == seen()
    torch_support._derivative_errors.clear()
    assert seen(disabled=True) == []
