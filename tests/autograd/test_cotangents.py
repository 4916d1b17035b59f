"""Cotangents as callers give them: missing, None, expanded, strided."""

from __future__ import annotations

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf


def several(x, w):
    return x * w, torch.sin(x), w + 1, x.detach() * 2, (x > 0.5)


def test_results_without_gradient_do_not_claim_one():
    x, w = leaf(3), leaf(3, seed=1, grad=False)
    for run in (several, thunder.jit(several)):
        assert [t.requires_grad for t in run(x, w)] == [True, True, False, False, False]


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_results_that_are_not_used_have_no_cotangent(used):
    def gradients(run):
        x, w = leaf(3), leaf(3, seed=1)
        results = run(x, w)
        loss = sum((results[i] * (i + 1)).sum() for i in used)
        return torch.autograd.grad(loss, (x, w), allow_unused=True)

    found, expected = gradients(thunder.jit(several)), gradients(several)
    assert [g is None for g in found] == [g is None for g in expected]
    torch.testing.assert_close([g for g in found if g is not None], [g for g in expected if g is not None])


@pytest.mark.parametrize("reduce", [torch.max, torch.min, torch.amax, torch.median])
@pytest.mark.parametrize("cotangent", [torch.inf, torch.nan, 0.0, 2.0])
def test_a_cotangent_of_an_extremum_reaches_its_holders_alone(reduce, cotangent):
    values = [3.0, 1.0, 3.0, 2.0, 3.0]
    found, expected = (
        torch.autograd.grad(run(x), x, torch.tensor(cotangent))[0]
        for run in (thunder.jit(reduce), reduce)
        for x in [torch.tensor(values, requires_grad=True)]
    )
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("cotangent", [torch.inf, torch.nan])
def test_no_cotangent_passes_where_a_loss_is_constant(cotangent):
    x = torch.tensor([[5.0, 1.0, 4.5]], requires_grad=True)
    loss = thunder.jit(lambda x: torch.nn.functional.multi_margin_loss(x, torch.tensor([0])))(x)
    (gradient,) = torch.autograd.grad(loss, x, torch.tensor(cotangent))
    assert gradient[0, 1] == 0
    assert not gradient[0, ::2].isfinite().any()


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_sums_of_gradients_that_no_cotangent_reaches_belong_to_each_backward(used):
    def products(x):
        m = x.reshape(0, 1)
        product = torch.einsum("ij,kj->ik", m, m)
        return product.sin(), (product * product).sum()

    x = torch.randn(0, 6, 2, requires_grad=True)
    results = thunder.jit(products)(x)
    (gradient,) = torch.autograd.grad(sum(results[i].sum() for i in used), x)
    assert gradient.shape == x.shape


def test_an_input_that_no_result_depends_on_has_none():
    def program(x, w):
        return x * 2

    x, w = leaf(3), leaf(3, seed=1)
    thunder.jit(program)(x, w).sum().backward()
    assert w.grad is None
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0, dtype=torch.float64))


def test_inputs_of_whole_numbers_and_frozen_ones_get_none():
    def program(x, i, w):
        return x[i] * w

    x, i, w = leaf(4), torch.tensor([0, 2, 2]), leaf(3, seed=1, grad=False)
    compiled = thunder.jit(program)
    compiled(x, i, w).sum().backward()
    assert i.grad is None
    assert w.grad is None
    returned = thunder.last_backward_traces(compiled)[-1].bound_symbols[-1].args[0]
    assert [g is None for g in returned] == [False, True, True]


COTANGENTS = {
    "expanded": lambda: torch.ones((), dtype=torch.float64).expand(2, 3),
    "of a row": lambda: torch.arange(3, dtype=torch.float64).expand(2, 3),
    "transposed": lambda: torch.arange(6, dtype=torch.float64).view(3, 2).t(),
    "strided": lambda: torch.arange(12, dtype=torch.float64).view(2, 6)[:, ::2],
    "zeros": lambda: torch.zeros(2, 3, dtype=torch.float64),
    "conjugated": lambda: torch.arange(6, dtype=torch.float64).view(2, 3).neg(),
}


@pytest.mark.parametrize("kind", COTANGENTS)
def test_a_cotangent_may_lie_in_memory_as_it_likes(kind):
    def program(x, w):
        return torch.nn.functional.gelu(x.reshape(2, 3)) * w.view(2, 3)

    x, w, g = leaf(6), leaf(6, seed=1), COTANGENTS[kind]()
    before = g.clone()
    found = torch.autograd.grad(thunder.jit(program)(x, w), (x, w), g)
    torch.testing.assert_close(found, torch.autograd.grad(program(x, w), (x, w), g))
    assert torch.equal(g, before), "the backward changed its cotangent"


def test_a_gradient_that_is_the_cotangent_itself_does_not_tie_two_grads_together():
    def program(x, w):
        return x + w

    def grads(run):
        x, w = leaf(3), leaf(3, seed=1)
        run(x, w).sum().backward()
        x.grad.mul_(2)
        return x.grad, w.grad

    torch.testing.assert_close(grads(thunder.jit(program)), grads(program))


def test_a_cotangent_of_the_caller_is_not_written_by_accumulation():
    def grads(run):
        x, g = leaf(3), torch.ones(3, dtype=torch.float64)
        y = run(x)
        y.backward(g, retain_graph=True)
        y.backward(g)
        return x.grad, g

    torch.testing.assert_close(grads(thunder.jit(lambda x: x + 1)), grads(lambda x: x + 1))


def test_cotangents_of_float32_results_of_a_float64_program():
    def program(x):
        return x.float() * 2, x * 3

    assert_as_eager(program, leaf(3), order=1)
