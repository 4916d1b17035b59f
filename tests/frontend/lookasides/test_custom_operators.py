"""Operators of ``torch.library``: their metadata is that of the fake implementation, their gradient that of
``register_autograd``.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf

LIBRARY = "thunder_tests"
OPS = getattr(torch.ops, LIBRARY)


def operator(name, mutates=(), fake=None):
    def register(fn):
        defined = torch.library.custom_op(f"{LIBRARY}::{name}", fn, mutates_args=mutates)
        if fake is not None:
            defined.register_fake(fake)
        return defined

    return register


def like_first(x, *rest, **keywords):
    return torch.empty_like(x)


@operator("plain", fake=lambda x, y, k=2.0: torch.empty_like(x))
def plain(x: Tensor, y: Tensor, k: float = 2.0) -> Tensor:
    assert x.device.type == "cpu", "the kernel sees real tensors alone"
    return torch.from_numpy(x.detach().numpy() * y.detach().numpy() * k)


@operator("product", fake=lambda x, y, k=2.0: torch.empty_like(x))
def product(x: Tensor, y: Tensor, k: float = 2.0) -> Tensor:
    return torch.from_numpy(x.detach().numpy() * y.detach().numpy() * k)


def save_factors(ctx, inputs, output):
    x, y, ctx.k = inputs
    ctx.save_for_backward(x, y)


def product_backward(ctx, g):
    x, y = ctx.saved_tensors
    first = product(g, y, ctx.k) if ctx.needs_input_grad[0] else None
    return first, product(g, x, ctx.k) if ctx.needs_input_grad[1] else None, None


product.register_autograd(product_backward, setup_context=save_factors)


@operator("scaled", fake=lambda xs, k, z=1.0: [torch.empty_like(x) for x in xs])
def scaled(xs: list[Tensor], k: int, *, z: float = 1.0) -> list[Tensor]:
    return [x * k * z for x in xs]


def save_scale(ctx, inputs, keyword_only_inputs, output):
    ctx.scale = inputs[1] * keyword_only_inputs["z"]


def scaled_backward(ctx, gradients):
    assert isinstance(ctx.needs_input_grad[0], list)
    return [g * ctx.scale for g in gradients], None


scaled.register_autograd(scaled_backward, setup_context=save_scale)


@operator("ordered", fake=lambda x: (torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)))
def ordered(x: Tensor) -> tuple[Tensor, Tensor]:
    values, order = x.sort()
    return values.clone(), order.clone()


def ordered_backward(ctx, g, none):
    (order,) = ctx.saved_tensors
    return torch.zeros_like(g).index_add(0, order, g)


ordered.register_autograd(
    ordered_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[1])
)


@operator("without_fake")
def without_fake(x: Tensor) -> Tensor:
    return x.clone()


@operator("positive", fake=lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
def positive(x: Tensor) -> Tensor:
    return x[x > 0].clone()


@operator("factory", fake=lambda n: torch.empty(n))
def factory(n: int) -> Tensor:
    return torch.ones(n)


_library = torch.library.Library(LIBRARY, "FRAGMENT")
_library.define("doubled(Tensor x) -> Tensor")
_library.impl("doubled", lambda x: x * 2, "CPU")
torch.library.register_fake(f"{LIBRARY}::doubled", like_first)

PROGRAMS = {
    "an operator": lambda x, y: product(x, y),
    "between others": lambda x, y: product(x.sin(), y, 4.0).cos(),
    "by its path": lambda x, y: OPS.product(x, y) + OPS.product.default(x, k=3.0, y=y),
    "of the same twice": lambda x, y: product(product(x, y), y),
    "one gradient": lambda x, y: product(x, y.detach()),
    "lists": lambda x, y: scaled([x, y * 2], 3, z=2.0),
    "a part of a list": lambda x, y: scaled([x, y.detach()], 3)[0],
    "several results": lambda x, y: ordered(x * y),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_are_eagers(name):
    assert_as_eager(PROGRAMS[name], leaf(3), leaf(3, seed=1))


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_gradients(name):
    with torch.no_grad():
        assert_as_eager(PROGRAMS[name], leaf(3), leaf(3, seed=1), order=0)


def test_it_is_a_primitive_under_the_name_of_its_library():
    compiled = thunder.jit(lambda x, y: plain(x, y) + OPS.plain(x, y, 3.0))
    x, y = leaf(3, grad=False), leaf(3, grad=False, seed=1)
    assert torch.equal(compiled(x, y), plain(x, y) + plain(x, y, 3.0))
    first, second, *_ = thunder.last_traces(compiled)[0].bound_symbols
    assert (first.sym.name, first.sym.id, first.sym.is_prim) == (f"{LIBRARY}_plain",) * 2 + (True,)
    assert (first.args[2], second.args[2]) == (2.0, 3.0)
    assert f"torch.ops.{LIBRARY}.plain(" in str(thunder.last_traces(compiled)[-1])


def test_with_a_gradient_the_primitive_is_in_a_composite_for_it():
    compiled = thunder.jit(lambda x, y: product(x, y))
    compiled(leaf(3), leaf(3, seed=1))
    call, _ = thunder.last_traces(compiled)[0].bound_symbols
    assert (call.sym.name, call.sym.is_prim) == (f"{LIBRARY}_product_autograd", False)
    assert [sub.sym.id for sub in call.subsymbols] == [f"{LIBRARY}_product"]


def test_an_operator_that_is_defined_without_custom_op():
    compiled = thunder.jit(lambda x: OPS.doubled(x) + 1)
    x = leaf(3, grad=False)
    assert torch.equal(compiled(x), x * 2 + 1)


def test_the_program_names_the_users_line():
    compiled = thunder.jit(lambda x, y: plain(x, y))
    compiled(leaf(3, grad=False), leaf(3, grad=False))
    assert thunder.last_traces(compiled)[0].bound_symbols[0].source_filename == __file__


def test_without_register_autograd_there_is_no_gradient():
    with pytest.raises(thunder.MissingGradient, match=f"{LIBRARY}_plain"):
        thunder.jit(lambda x, y: plain(x, y))(leaf(3), leaf(3))


def test_another_gradient_is_noticed():
    compiled = thunder.jit(lambda x: OPS.tripled(x))

    @operator("tripled", fake=like_first)
    def tripled(x: Tensor) -> Tensor:
        return x * 3

    x = leaf(3)
    for factor in (3.0, 7.0):
        tripled.register_autograd(lambda ctx, g, factor=factor: g * factor)
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
        assert torch.equal(gradient, torch.full_like(x, factor))
    assert thunder.cache_misses(compiled) == 2


REFUSED = {
    "no fake implementation": (lambda x: without_fake(x), ("without_fake", "register_fake")),
    "no tensor": (lambda x: factory(3) + x, ("factory", "without a tensor argument")),
}


def test_a_shape_that_depends_on_data_is_a_decision():
    compiled = thunder.jit(lambda x: positive(x * 2) + 1)
    for x in (torch.tensor([1.0, -1.0]), torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 2.0])):
        assert torch.equal(compiled(x), positive(x * 2) + 1)
    assert thunder.cache_misses(compiled) == 2
    with pytest.raises(thunder.UnsupportedOperator, match=r"positive.*depends on data"):
        thunder.jit(lambda x: positive(x), data_dependent="refuse")(leaf(3, grad=False))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_refused_by_name(name):
    program, words = REFUSED[name]
    with pytest.raises(thunder.UnsupportedOperator) as caught:
        thunder.jit(lambda x: program(x))(leaf(3, grad=False))
    for word in (LIBRARY, "test_custom_operators.py", *words):
        assert word in str(caught.value)


def test_an_argument_that_the_schema_lacks_is_refused():
    with pytest.raises(TypeError, match="factor"):
        thunder.jit(lambda x, y: OPS.plain(x, y, factor=2.0))(leaf(3), leaf(3))


# -- a backward that has no trace ----------------------------------------------------------------------------


@operator("grouped", fake=lambda x, ends: torch.empty_like(x))
def grouped(x: Tensor, ends: Tensor) -> Tensor:
    return torch.cat([part * (i + 1) for i, part in enumerate(torch.tensor_split(x, ends))])


def save_ends(ctx, inputs, output):
    ctx.ends = inputs[1]


def grouped_backward(ctx, g):
    parts, start = [torch.rand(0)], 0  # drawn once in a backward, and not while tracing
    for i, end in enumerate([*ctx.ends.tolist(), len(g)]):
        parts.append(g[start:end] * (i + 1))
        start = end
    return torch.cat(parts), None


grouped.register_autograd(grouped_backward, setup_context=save_ends)


def test_a_backward_that_loops_over_data_is_run_by_torch():
    compiled = thunder.jit(lambda x, ends: (grouped(x.sin(), ends) * x).cos())
    for ends in ([1, 3], [2, 2]):
        gradients = []
        for call in (compiled, lambda x, ends: (grouped(x.sin(), ends) * x).cos()):
            x = leaf(4)
            torch.manual_seed(0)
            call(x, torch.tensor(ends)).sum().backward()
            gradients.append((x.grad, torch.get_rng_state()))
        torch.testing.assert_close(gradients[0][0], gradients[1][0])
        assert torch.equal(gradients[0][1], gradients[1][1])
    assert thunder.cache_misses(compiled) == 1, "what the backward reads of the data is read at each run"
    assert "run_backward" in str(thunder.last_backward_traces(compiled)[-1])


def test_without_the_fallback_a_backward_that_loops_over_data_is_refused_with_its_line():
    with pytest.raises(thunder.UnsupportedProgram, match=r"ctx\.ends\.tolist\(\)"):
        thunder.jit(grouped, operator_fallback="error")(leaf(4), torch.tensor([1, 3]))
