"""Convolutions without channels, batch, space or kernel: eager's results, gradients and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder


def outcome(convolve: Any, *inputs: torch.Tensor) -> Any:
    """Return the result and its gradients, or the first line of the error."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    try:
        result = convolve(*leaves)
    except (RuntimeError, IndexError) as error:
        return str(error).splitlines()[0]
    return result.detach(), torch.autograd.grad(result.sum(), leaves)


def assert_as_eager(convolve: Any, *inputs: torch.Tensor) -> bool:
    """Compare a compiled convolution with eager's; return whether eager accepts it."""
    expected, found = outcome(convolve, *inputs), outcome(thunder.jit(convolve), *inputs)
    if isinstance(expected, str):
        assert isinstance(found, str), (expected, found)
        assert found.startswith(expected), (expected, found)
        return False
    torch.testing.assert_close(found, expected)
    return True


SIZES = list(itertools.product((0, 2), (0, 2), (0, 4), (0, 5), (0, 3)))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
def test_convolutions_of_empty_tensors(transposed: bool, dimensions: int, groups: int) -> None:
    function = getattr(F, f"conv_transpose{dimensions}d" if transposed else f"conv{dimensions}d")
    accepted = 0
    for batch, channels, outputs, space, kernel in SIZES:
        x = torch.randn(batch, channels, *[space] * dimensions)
        sides = (channels, outputs // groups) if transposed else (outputs, channels // groups)
        weight, bias = torch.randn(*sides, *[kernel] * dimensions), torch.randn(outputs)
        sizes = {"stride": 2, "padding": 2} if space == 5 else {}
        for rest in ((), (bias,)):
            accepted += assert_as_eager(
                lambda x, w, b=None, sizes=sizes: function(x, w, b, groups=groups, **sizes), x, weight, *rest
            )
    assert accepted >= 4


def test_an_input_without_channels_has_a_result_without_channels() -> None:
    compiled = thunder.jit(lambda x, w, b: F.conv2d(x, w, b, stride=(2, 2), padding=2))
    x, w, b = torch.empty(1, 0, 4, 4), torch.empty(3, 0, 3, 3), torch.zeros(3)
    assert compiled(x, w, b).shape == (1, 0, 3, 3)
    assert thunder.last_traces(compiled)[0].output.shape == (1, 0, 3, 3)
    assert compiled(x[0], w, b).shape == F.conv2d(x[0], w, b, stride=2, padding=2).shape
    assert compiled(*(t.to(torch.complex64) for t in (x, w, b))).shape == (1, 0, 3, 3)


def test_the_second_gradient_of_a_convolution_without_channels() -> None:
    leaves = [torch.randn(s, requires_grad=True) for s in ((2, 0, 4, 4), (3, 0, 3, 3), (3,))]
    result = thunder.jit(F.conv2d)(*leaves)
    first = torch.autograd.grad(result.square().sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, allow_unused=True)
    assert all(g is None or not g.any() for g in second)
