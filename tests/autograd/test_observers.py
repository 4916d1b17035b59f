"""Transforms that observe: they see what runs, and change neither results nor derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from comparison.inputs import leaf
from thunder.core import prims
from thunder.core.errors import InvalidArgument, PluginError
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, from_trace


class Observing(thunder.Transform):
    """Notes the name of each operator that runs."""

    observes = True

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.note = Symbol(
            "note", "tests.note", python_impl=self.seen.append, tags=frozenset({OpTags.DONT_DCE})
        )

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        new = from_trace(computation_trace)
        for bsym in computation_trace.bound_symbols:
            new.bound_symbols.append(bsym)
            if bsym.sym.executor is not None:
                new.bound_symbols.append(self.note.bind(bsym.sym.name, output=None))
        return new


def two_results(x, w):
    h = torch.sin(x)
    return h * w, torch.exp(h)


def test_gradients_of_one_of_two_results_are_eagers_and_are_observed():
    """Each result has its own node: a backward from the second one does not reach `w`."""
    transform = Observing()
    compiled = thunder.jit(two_results, transforms=[transform])
    x, w = leaf(3), leaf(3, seed=1)
    a, b = compiled(x, w)
    assert transform.seen == ["sin", "mul", "exp"]
    transform.seen.clear()
    grad_x, grad_w = torch.autograd.grad(b.sum(), (x, w), allow_unused=True)
    assert grad_w is None
    assert "cos" in transform.seen
    _, expected = two_results(x, w)
    torch.testing.assert_close(grad_x, torch.autograd.grad(expected.sum(), x)[0])
    assert torch.autograd.grad(a.sum(), w)[0] is not None


def test_second_derivatives_exist_and_are_observed():
    transform = Observing()
    compiled = thunder.jit(lambda x: torch.sin(x).square(), transforms=[transform])
    x = leaf(3)
    (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    transform.seen.clear()
    (second,) = torch.autograd.grad(first.sum(), x)
    assert transform.seen
    torch.testing.assert_close(second, 2 * torch.cos(2 * x))


class Dropping(Observing):
    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        computation_trace.bound_symbols = [
            b for b in computation_trace.bound_symbols if b.sym.id != prims.set_default_dtype.id
        ]
        return computation_trace


class Computing(Observing):
    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        first = next(b for b in computation_trace.bound_symbols if b.sym.name == "sin")
        copy = first.from_bsym(output=first.output.replace(name="copy_of_sin"))
        computation_trace.bound_symbols.insert(0, copy)
        return computation_trace


def sets_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(before)
    return torch.sin(x) * y


@pytest.mark.parametrize(("transform", "text"), [(Dropping, "drops"), (Computing, "adds")])
def test_a_transform_that_observes_changes_nothing(transform, text):
    with pytest.raises(PluginError, match=f"has observes = True, and {text}") as error:
        thunder.jit(sets_dtype, transforms=[transform()])(torch.ones(3))
    assert "call" in error.value.facts


def test_a_transform_that_observes_has_no_other_hook_on_traces():
    with pytest.raises(InvalidArgument, match="observes = True, and defines transform_joint_trace"):

        class Wrong(thunder.Transform):
            observes = True

            def transform_joint_trace(self, joint_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
                return joint_trace
