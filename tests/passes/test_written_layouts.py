"""What was written lies in memory as eager's tensor does: in the strides of the memory, not of the value."""

from __future__ import annotations

import pytest
import torch

import thunder


def copied(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    return y


def copied_and_viewed(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    return y, y.view(-1)


def copied_through_a_view(x):
    y = torch.empty(4, 3).t()
    y.copy_(x)
    return y.t().view(-1)


def assigned_whole(x):
    y = torch.zeros(4, 3).t()
    y[:] = x
    return y


def computed_into(x):
    y = torch.empty(4, 3).t()
    torch.exp(x, out=y)
    return y


def strided(x):
    y = torch.empty_strided((3, 4), (1, 3))
    y.copy_(x)
    return y + 1, y


def added_to(x):
    y = torch.zeros(4, 3)
    y += x.t()
    return y


def copied_and_written_in_part(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    y[1:].mul_(2)
    return y, y.view(2, 6)


def copied_twice(x):
    y = torch.empty(4, 3)
    y.copy_(x.t())
    y.t().copy_(x + 1)
    return y


def kept_apart(x):
    z = (x * 2).t()
    y = torch.empty(4, 3)
    y.copy_(z)
    y.add_(1)
    return y, z


def an_input_and_a_view_of_it(x):
    x.t().copy_(x.t() * 2)
    part = x[:]
    return part.view(-1)


@pytest.mark.parametrize(
    "program",
    [
        copied,
        copied_and_viewed,
        copied_through_a_view,
        assigned_whole,
        computed_into,
        strided,
        added_to,
        copied_and_written_in_part,
        copied_twice,
        kept_apart,
        an_input_and_a_view_of_it,
    ],
)
def test_strides_and_values_are_eagers(program):
    results = []
    for call in (program, thunder.jit(program)):
        x = torch.arange(12.0).reshape(3, 4)
        out = call(x)
        results.append([x, *(out if isinstance(out, tuple) else (out,))])
    for expected, found in zip(*results, strict=True):
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)


def test_gradients_flow_through_what_was_placed():
    grads = []
    for call in (copied_and_viewed, thunder.jit(copied_and_viewed)):
        x = torch.arange(12.0, dtype=torch.float32).reshape(3, 4).requires_grad_()
        whole, flat = call(x)
        ((whole * torch.arange(3.0)).sum() + (flat * torch.arange(12.0)).sum()).backward()
        grads.append(x.grad)
    assert torch.equal(*grads)
