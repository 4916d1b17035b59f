"""Programs that read ``grad_fn`` of tensors: whether there is a node, its name and class."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram


def check(fn: Any, *args: Any) -> Any:
    """Compare two calls of the compiled function with eager; return it."""
    compiled = thunder.jit(fn)
    for _ in range(2):
        assert compiled(*args) == fn(*args)
    return compiled


def parameter() -> torch.Tensor:
    return torch.ones(2, 2, requires_grad=True)


def test_whether_there_is_a_node_is_known_and_a_fact() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        return y.grad_fn is None, y.grad_fn is not None, x.grad_fn is None, y.is_leaf, bool(y.grad_fn)

    compiled = check(fn, parameter())
    for x in (torch.ones(2, 2), parameter() * 1):
        assert compiled(x) == fn(x)
    with torch.no_grad():
        assert compiled(parameter()) == fn(parameter())
    assert thunder.cache_misses(compiled) == 4


def test_the_name_and_the_class_of_a_node() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x @ x
        node = y.grad_fn
        named = type(node).__name__, node.name(), node.__class__.__name__, hasattr(node, "saved")
        y.add_(1)
        return named, isinstance(node, torch.autograd.graph.Node), y.grad_fn.name(), x[0].grad_fn.name()

    check(fn, parameter())


def test_the_node_of_a_leaf_that_the_program_makes() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x.clone().requires_grad_()
        with torch.no_grad():
            z = y * 2
        return y.grad_fn is None, (y * 2).grad_fn.name(), z.grad_fn is None

    check(fn, torch.ones(2))


def test_a_write_to_a_view_is_the_node_of_its_base() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        row = y[0]
        row.mul_(3)
        return y.grad_fn.name(), row.grad_fn.name(), type(y.grad_fn).__name__

    check(fn, parameter())


def test_a_node_is_one_object_until_the_tensor_may_have_changed() -> None:
    def fn(x: torch.Tensor) -> bool:
        y = x * 2
        return y.grad_fn is y.grad_fn

    check(fn, parameter())


def halves(x: torch.Tensor) -> bool:
    a, b = x.chunk(2)
    return a.grad_fn is b.grad_fn


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: (x * 2).grad_fn.metadata, "reads metadata of the grad_fn"),
        (lambda x: (x * 2).grad_fn, "returns or stores the grad_fn of a tensor"),
        (lambda x: {(x * 2).grad_fn: 1}, "uses the grad_fn of a tensor as a key"),
        (lambda x: f"{(x * 2).grad_fn}", "shows the grad_fn of a tensor, with its address"),
        (halves, "compares the grad_fn of two tensors"),
        (torch.func.vmap(lambda row: row * ((row * 2).grad_fn is None)), "torch.func transforms"),
    ],
)
def test_what_leads_into_the_graph_is_refused(fn: Any, match: str) -> None:
    with pytest.raises(UnsupportedProgram, match=match):
        thunder.jit(fn)(parameter())
