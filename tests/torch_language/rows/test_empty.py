"""Empty tensors: what eager makes of them, to the gradients, also in operators that divide by a size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from new_processes import run_python


def leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, max(torch.Size(shape).numel(), 1))[: torch.Size(shape).numel()].reshape(
        shape
    )


def outcome(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Results, gradients and inputs after the call; or the class of the error."""
    given = [x.clone().requires_grad_(x.is_floating_point()) if torch.is_tensor(x) else x for x in inputs]
    try:
        result = fn(*given)
    except (RuntimeError, ValueError, IndexError) as error:
        return next(c for c in (ValueError, IndexError, RuntimeError) if isinstance(error, c))
    result.sum().backward()
    tensors = [x for x in given if torch.is_tensor(x)]
    grads = [x.grad if x.grad is not None else torch.zeros_like(x) for x in tensors]
    return [result.detach(), *(x.detach() for x in tensors), *grads]


def assert_as_eager(fn: Callable[..., Any], *inputs: Any) -> None:
    expected, found = outcome(fn, inputs), outcome(thunder.jit(fn), inputs)
    if isinstance(expected, type):
        assert found is expected
    else:
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


SHAPES = [(0, 3), (0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 3, 0, 5), (0, 3, 4, 5), (2, 0), (1, 3, 1), (2, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_batch_norm(shape: tuple[int, ...], training: bool) -> None:
    channels, vector = shape[1], leaf(shape[1])
    statistics = torch.zeros(channels, dtype=torch.float64), torch.ones(channels, dtype=torch.float64)

    def running(x: torch.Tensor, w: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor:
        mean, var = (s.to(x.dtype) for s in statistics)
        return F.batch_norm(x, mean, var, w, b, training)

    assert_as_eager(running, leaf(*shape), vector, vector)
    assert_as_eager(running, leaf(*shape), None, None)
    assert_as_eager(lambda x, w: F.batch_norm(x, None, None, w, None, True), leaf(*shape), vector)


@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) > 2], ids=str)
def test_instance_norm(shape: tuple[int, ...]) -> None:
    assert_as_eager(F.instance_norm, leaf(*shape))


WITHOUT_HEADS = """
import torch
q = torch.ones(2, 0, 3, 4)
torch.nn.functional.scaled_dot_product_attention(q, q, q)
"""


@functools.cache
def dies_without_heads() -> bool:
    """Whether torch's attention on CPUs divides by the number of heads, a signal that ends the process."""
    return run_python("-c", WITHOUT_HEADS).returncode < 0


@pytest.mark.parametrize(
    "sizes", [(0, 2, 3, 3), (2, 0, 3, 3), (2, 2, 0, 3), (2, 2, 3, 0), (2, 2, 0, 0)], ids=str
)
@pytest.mark.parametrize("width", [4, 0])
def test_attention(sizes: tuple[int, ...], width: int) -> None:
    batch, heads, queries, keys = sizes
    if heads == 0 and width > 0 and dies_without_heads():
        pytest.skip("this torch ends the process")
    q, k, v = (leaf(batch, heads, n, e) for n, e in ((queries, width), (keys, width), (keys, 4)))
    assert_as_eager(F.scaled_dot_product_attention, q, k, v)
    assert_as_eager(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), q, k, v)


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0)], ids=str)
@pytest.mark.parametrize("weights", [True, False], ids=["weights", "no weights"])
def test_multi_head_attention(sizes: tuple[int, ...], weights: bool) -> None:
    batch, queries, keys = sizes
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    assert_as_eager(
        lambda q, k: attention(q, k, k, need_weights=weights)[0],
        leaf(batch, queries, 4),
        leaf(batch, keys, 4),
    )


CALLS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "layer_norm": (lambda x: F.layer_norm(x, x.shape[-1:]), (0, 3)),
    "group_norm": (lambda x: F.group_norm(x, 1), (0, 3, 4)),
    "softmax": (lambda x: F.softmax(x, -1), (2, 0)),
    "logsumexp": (lambda x: x.logsumexp(0), (0, 2)),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(3, 2, 3)), (0, 2, 5)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (0, 2, 4, 4)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), (0, 2, 4, 4)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.zeros(0, dtype=torch.long)), (0, 4)),
    "mean": (torch.mean, (0, 3)),
    "var": (lambda x: x.var(0), (0, 3)),
    "norm": (lambda x: x.norm(), (0, 3)),
    "prod": (torch.prod, (0, 3)),
    "max": (lambda x: x.amax(0), (0, 3)),
    "inv": (torch.linalg.inv, (0, 3, 3)),
    "det": (torch.linalg.det, (2, 0, 0)),
    "scatter at no places, of floats": (lambda x: x.scatter(0, torch.empty(0), torch.ones(3)), (3,)),
    "scatter_add at no places, of floats": (lambda x: x.scatter_add(0, torch.empty(0), torch.ones(3)), (3,)),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_operators(name: str) -> None:
    fn, shape = CALLS[name]
    assert_as_eager(fn, leaf(*shape))
