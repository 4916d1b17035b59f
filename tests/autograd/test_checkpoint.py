"""`torch.utils.checkpoint`: values are computed again, with the same random numbers."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors


def body(x, w):
    return torch.sin(torch.tanh(x @ w) @ w)


def program(x, w):
    return checkpoint(body, x, w, use_reentrant=False) * 2


@pytest.mark.parametrize("policy", ["none", "min-cut"])
def test_derivatives_are_eagers(policy):
    assert_as_eager(program, leaf(3, 3), leaf(3, 3, seed=1), rematerialization=policy)


def test_intermediates_are_computed_again_and_not_kept():
    plain = thunder.jit(lambda x, w: body(x, w) * 2, rematerialization="none")
    compiled = thunder.jit(program, rematerialization="none")
    for f in (plain, compiled):
        f(leaf(3, 3), leaf(3, 3, seed=1)).sum().backward()
    kept = [p.name for p in get_saved_for_backward_tensors(thunder.last_traces(compiled)[-1])]
    assert sorted(kept) == ["w", "x"]
    assert len(get_saved_for_backward_tensors(thunder.last_traces(plain)[-1])) > 2
    assert "bw_" in str(thunder.last_backward_traces(compiled)[-1])


def test_random_numbers_are_replayed():
    def with_dropout(x):
        def inner(x):
            return torch.nn.functional.dropout(torch.sin(x), 0.5, True) * x

        return checkpoint(inner, x, use_reentrant=False)

    assert_as_eager(with_dropout, leaf(50))


def test_the_reentrant_form_gives_the_same_gradients():
    found = []
    for fn in (program, thunder.jit(lambda x, w: checkpoint(body, x, w, use_reentrant=True) * 2)):
        x, w = leaf(3, 3), leaf(3, 3, seed=1)
        fn(x, w).sum().backward()
        found.append((x.grad, w.grad))
    assert all(torch.allclose(want, have) for want, have in zip(*found, strict=True))


def test_writes_inside_a_checkpointed_region():
    def writing(x, w):
        def inner(x, w):
            h = x * w
            h[0].mul_(2)
            return torch.sin(h)

        return checkpoint(inner, x, w, use_reentrant=False)

    assert_as_eager(writing, leaf(3, 3), leaf(3, 3, seed=1))
