"""What the caller changes between forward and backward: the gradient is eager's, or there is an error."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder
from comparison.inputs import leaf
from comparison.values import TOLERANCE

PROGRAMS = {
    "sin of a product": lambda p, x: (p * 2).sin() * x,
    "exp": lambda p, x: p.exp() * x,
    "tanh": lambda p, x: (p * x).tanh(),
    "sigmoid": lambda p, x: torch.sigmoid(p + x) * x,
    "softplus": lambda p, x: F.softplus(p) * F.softplus(x),
    "norm": lambda p, x: (p / p.norm()) * x,
    "gelu": lambda p, x: F.gelu(p * 3) * x,
    "a sum in a product": lambda p, x: ((p + 1) * (p + 2)).exp() + x,
    "two of one": lambda p, x: (p * 2).sin() * (p * 3).cos() + x,
    "a matrix": lambda p, x: (p.outer(x).sin() @ p).exp(),
    "relu": lambda p, x: F.relu(p - 0.7) * x,
    "detached": lambda p, x: p.detach().sin() * x * p,
    "a mask": lambda p, x: (p > 0.7) * x * p,
    "converted": lambda p, x: p.float() * x.float(),
    "linear": lambda p, x: F.linear(p[None], x[None]),
    "reshaped": lambda p, x: p.reshape(3, 1) * x.view(1, 3),
}


def by_optimizer(t):
    with torch.no_grad():
        t.add_(1.0)


def by_data_copy(t):
    t.data.copy_(torch.ones(3, dtype=t.dtype))


def by_data_mul(t):
    t.data.mul_(2)


def by_new_data(t):
    t.data = torch.ones(3, dtype=t.dtype)


def by_detach(t):
    t.detach().mul_(2)


CHANGES = [by_optimizer, by_data_copy, by_data_mul, by_new_data, by_detach]


def gradients(run, change, which, made):
    """The gradients, or None if the backward raises torch's error."""
    leaves = [leaf(3), leaf(3, seed=1)]
    inputs = [t * 1 for t in leaves] if made else leaves
    result = run(*inputs)
    change(inputs[which])
    try:
        return torch.autograd.grad(result.sum(), leaves, allow_unused=True)
    except RuntimeError as error:
        if "needed for gradient computation has been" not in str(error):
            raise
        return None


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_change_of_an_input_changes_gradients_as_in_eager_or_is_an_error(name):
    program = PROGRAMS[name]
    compiled = thunder.jit(program)
    for change in CHANGES:
        for which, made in ((0, False), (0, True), (1, False), (1, True)):
            theirs = gradients(program, change, which, made)
            ours = gradients(compiled, change, which, made)
            if change is by_new_data and ours is None:
                continue  # eager computes with the old memory, or the new one
            assert (ours is None) == (theirs is None), (change, which, made)
            if ours is not None:
                for o, t in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(o, t, **TOLERANCE)


def test_a_result_that_is_written_through_data_is_not_computed_from_again():
    def program(x):
        y = x * 2
        return y, (y + 1).sin().sum()

    def run(f):
        x = leaf(3)
        y, loss = f(x)
        y.data.zero_()
        loss.backward()
        return x.grad

    torch.testing.assert_close(run(thunder.jit(program)), run(program))


def test_an_assignment_to_the_data_of_what_eager_saves_a_view_of_is_an_error():
    x, w = leaf(2, 3, grad=False), leaf(4, 3)
    loss = thunder.jit(F.linear)(x.requires_grad_(), w).sum()
    w.data = torch.ones_like(w)
    with pytest.raises(RuntimeError, match="given other memory since the forward"):
        loss.backward()


def test_what_hooks_keep_of_saved_tensors_may_lie_elsewhere():
    x, w = leaf(2, 3), leaf(4, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        loss = thunder.jit(F.linear)(x, w).sum()
    w.data = torch.zeros_like(w)
    loss.backward()
    torch.testing.assert_close(w.grad, x.detach().sum(0).expand(4, 3))


def test_a_mask_that_is_kept_is_that_of_the_forward():
    def program(x):
        return x.clamp(0.5, 0.9)

    seen = []
    for run in (program, thunder.jit(program)):
        x = torch.tensor([0.0, 0.7, 2.0], requires_grad=True)
        y = x * 1
        result = run(y)
        y.data.fill_(0.7)
        result.sum().backward()
        seen.append(x.grad.tolist())
    assert seen == [[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]


def test_a_budget_of_bytes_computes_again_from_inputs():
    def program(x):
        return (x * 2).sin()

    seen = []
    for options in ({}, {"rematerialization": 0}):
        x = leaf(3)
        result = thunder.jit(program, **options)(x)
        before = (2 * (x * 2).cos()).detach()
        x.data.zero_()
        result.sum().backward()
        seen.append(torch.allclose(x.grad, before))
    assert seen == [True, False]


def test_writes_in_place_are_counted_and_those_by_a_copy_are_one_version():
    def writes(x):
        x.add_(1)
        x[0] = 2
        return x.mul_(3)

    def writes_a_product(x):
        x.add_(1)
        return x.copy_(x.outer(x) @ x)

    for program, expected, counts in ((writes, [6, 6], [3, 3]), (writes_a_product, [16, 16], [2, 1])):
        versions = []
        for fn in (program, thunder.jit(program, executors=["torch"])):
            x = torch.ones(2)
            assert fn(x) is x
            assert x.tolist() == expected
            versions.append(x._version)
        assert versions == counts
    with pytest.raises(thunder.UnsupportedProgram, match="'_version' of a tensor"):
        thunder.jit(lambda x: x * x._version)(torch.ones(2))
