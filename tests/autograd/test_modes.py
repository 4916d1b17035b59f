"""Grad mode, inference mode, autocast, frozen tensors: whatever surrounds a program, or stands inside it."""

from __future__ import annotations

import contextlib

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.base.errors import UnsupportedProgram


def plain(x, w):
    return torch.sin(x) * w


def under_no_grad(x, w):
    with torch.no_grad():
        h = torch.exp(x) * w
    return h * x


def decorated(x, w):
    @torch.no_grad()
    def constant(t):
        return torch.exp(t)

    return constant(x) * w


def enabled_inside(x, w):
    with torch.no_grad():
        h = torch.exp(x)
        with torch.enable_grad():
            k = torch.sin(x)
        m = k * 2
    return h * w, k, m * x


def as_call(x, w):
    torch.set_grad_enabled(False)
    h = torch.exp(x)
    torch.set_grad_enabled(True)
    return h * x * w


def set_as_context(x, w):
    with torch.set_grad_enabled(False):
        h = torch.exp(x)
    with torch.set_grad_enabled(True):
        k = torch.exp(x)
    return h * k * w


def same_calls_inside_and_outside(x, w):
    with torch.no_grad():
        a = torch.exp(x) * w
    b = torch.exp(x) * w
    return a * b


PROGRAMS = [
    plain,
    under_no_grad,
    decorated,
    enabled_inside,
    as_call,
    set_as_context,
    same_calls_inside_and_outside,
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("policy", ["none", "min-cut"])
def test_regions_inside_the_program(program, policy):
    assert_as_eager(program, leaf(3), leaf(3, seed=1), rematerialization=policy)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_modes_around_the_call(program, around):
    def facts(run):
        x, w = leaf(3), leaf(3, seed=1)
        with around():
            results = run(x, w)
        results = results if isinstance(results, tuple) else (results,)
        return [(r.requires_grad, r.is_leaf, r.is_inference()) for r in results], [
            r.detach().clone() for r in results
        ]

    found, expected = facts(thunder.jit(program)), facts(program)
    assert found[0] == expected[0]
    torch.testing.assert_close(found[1], expected[1])


def test_the_same_object_in_all_modes_in_turn():
    compiled, x, w = thunder.jit(plain), leaf(3), leaf(3, seed=1)
    for around in (contextlib.nullcontext, torch.no_grad, contextlib.nullcontext, torch.inference_mode) * 2:
        with around():
            result, expected = compiled(x, w), plain(x, w)
        assert result.requires_grad == expected.requires_grad
        assert result.is_inference() == expected.is_inference()
    assert thunder.cache_misses(compiled) == 3


def test_a_program_that_leaves_gradients_off_behind():
    def program(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y, y * 3

    for run in (program, thunder.jit(program)):
        x = leaf(3)
        try:
            y, z = run(x)
            assert not torch.is_grad_enabled()
        finally:
            torch.set_grad_enabled(True)
        assert (y.requires_grad, z.requires_grad) == (True, False)


def test_detach_cuts_and_leaves_the_other_path():
    def program(x, w):
        h = torch.sin(x)
        return h.detach() * w + h * 2, (h * w).detach()

    for policy in ("none", "min-cut"):
        assert_as_eager(program, leaf(3), leaf(3, seed=1), rematerialization=policy)


def test_frozen_parameters_get_no_gradient_and_cost_nothing_in_the_backward():
    def build():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
        model[0].weight.requires_grad_(False)
        return model

    ours, theirs, x = build(), build(), leaf(4, 3, grad=False)
    compiled = thunder.jit(ours)
    compiled(x).sum().backward()
    theirs(x).sum().backward()
    assert ours[0].weight.grad is None
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)
    returned = thunder.last_backward_traces(compiled)[-1].bound_symbols[-1].args[0]
    assert sum(g is not None for g in returned) == 3


def test_requires_grad_changed_between_calls_is_noticed():
    model = torch.nn.Linear(3, 2).double()
    compiled, x = thunder.jit(model), leaf(4, 3, grad=False)
    for weight, bias in [(True, True), (False, True), (False, False), (True, False), (True, True)]:
        model.weight.requires_grad_(weight)
        model.bias.requires_grad_(bias)
        model.zero_grad()
        result = compiled(x)
        assert result.requires_grad == (weight or bias)
        if result.requires_grad:
            result.sum().backward()
        assert (model.weight.grad is not None, model.bias.grad is not None) == (weight, bias)
    assert thunder.cache_misses(compiled) == 4


def test_disable_torch_autograd_gives_results_that_require_no_grad():
    compiled, x, w = thunder.jit(plain, disable_torch_autograd=True), leaf(3), leaf(3, seed=1)
    result = compiled(x, w)
    assert not result.requires_grad
    assert thunder.last_backward_traces(compiled) == []
    torch.testing.assert_close(result, plain(x, w).detach())


# -- autocast ------------------------------------------------------------------------------------------------


def network(x, w, b):
    h = torch.nn.functional.linear(x, w, b)
    return torch.nn.functional.mse_loss(torch.relu(h), h * 2), h


def autocast_inside(x, w, b):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = torch.nn.functional.linear(x, w, b)
        with torch.autocast("cpu", enabled=False):
            k = x @ w.t()
    return h.float() * k, h


def inputs():
    x, w, b = leaf(4, 3), leaf(2, 3, seed=1), leaf(2, seed=2)
    return [t.detach().float().requires_grad_() for t in (x, w, b)]


def observed(run, within_forward, within_backward):
    """dtypes, and numbers: bfloat16 rounds, here and there in another order."""
    made = inputs()
    with within_forward():
        results = run(*made)
    loss = sum(r.float().sum() * (i + 1) for i, r in enumerate(results))
    with within_backward():
        found = torch.autograd.grad(loss, made)
    tensors = [r.detach() for r in results] + list(found)
    return [t.dtype for t in tensors], [t.double() for t in tensors]


def bfloat16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("program", [network, autocast_inside])
@pytest.mark.parametrize("forward", [contextlib.nullcontext, bfloat16])
@pytest.mark.parametrize("backward", [contextlib.nullcontext, bfloat16])
def test_autocast_around_forward_and_backward(program, forward, backward):
    compiled = thunder.jit(program)
    for _ in range(2):
        found, expected = observed(compiled, forward, backward), observed(program, forward, backward)
        assert found[0] == expected[0]
        torch.testing.assert_close(found[1], expected[1], rtol=2e-2, atol=2e-2)
    assert not torch.is_autocast_enabled("cpu")


def test_gradients_have_the_dtypes_of_their_leaves_under_autocast():
    compiled, made = thunder.jit(network), inputs()
    with bfloat16():
        loss = compiled(*made)[0].sum()
    loss.backward()
    assert [t.grad.dtype for t in made] == [torch.float32] * 3


# -- random numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["none", "min-cut", 10_000])
def test_dropout_draws_eagers_numbers_and_its_backward_uses_the_same_mask(policy):
    def program(x):
        h = torch.nn.functional.dropout(x, 0.5, True)
        return torch.nn.functional.dropout(torch.sin(h), 0.3, True) * h

    assert_as_eager(program, leaf(20), rematerialization=policy)


# -- dtypes --------------------------------------------------------------------------------------------------


def test_mixed_dtypes():
    def program(x, h, i):
        return x * h.float() + i, (h * 2).to(torch.float64), x.to(torch.bfloat16)

    x, h, i = leaf(3), leaf(3, seed=1), torch.arange(3)
    assert_as_eager(program, x, h.detach().bfloat16().requires_grad_(), i, order=1)


def test_complex_numbers():
    def program(z, x):
        w = torch.exp(z * x)
        return w.real * x, torch.abs(w), w.conj() * z

    z = torch.complex(leaf(3).detach(), leaf(3, seed=1).detach()).requires_grad_()
    assert_as_eager(program, z, leaf(3, seed=2))


def test_a_real_input_of_a_complex_program_gets_a_real_gradient():
    def program(x):
        return torch.view_as_real(torch.complex(x, x * x) * 1j)

    assert_as_eager(program, leaf(3))


def test_empty_and_scalar_tensors():
    def program(x, s):
        return torch.sin(x) * s, s * s, x.sum()

    assert_as_eager(program, leaf(0), leaf())
    assert_as_eager(program, leaf(2, 0, 3), leaf())


@pytest.mark.parametrize("transposed", [False, True])
def test_contiguous_under_no_grad_is_the_tensor_itself_or_a_copy_without_gradient(transposed):
    def program(x, w):
        h = (x * w).mT if transposed else x * w
        with torch.no_grad():
            y = h.contiguous()
        return y * w, y.requires_grad, y is h

    x, w = leaf(2, 2), leaf(2, 2)
    assert_as_eager(lambda x, w: program(x, w)[0], x, w)
    assert thunder.jit(program)(x, w)[1:] == program(x, w)[1:] == (not transposed, not transposed)


def test_resolve_conj_under_no_grad_is_refused_where_it_may_be_the_tensor_itself():
    def program(x, w):
        h = x * w
        with torch.no_grad():
            y = h.resolve_conj()
        return y * w

    def detached(x, w):
        h = x * w
        with torch.no_grad():
            y = h.detach().resolve_conj()
        return y * w

    x, w = (torch.randn(3, requires_grad=True) for _ in range(2))
    assert_as_eager(program, leaf(3), leaf(3))
    x, w = (torch.randn(3, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    with pytest.raises(UnsupportedProgram, match=r"resolve_conj\(\) under torch.no_grad\(\)"):
        thunder.jit(program)(x, w)
    thunder.jit(detached)(x, w).abs().sum().backward()
    assert x.grad is None
    with torch.no_grad():
        thunder.jit(program)(x, w)
