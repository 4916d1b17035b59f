"""A compile draws no random numbers of the program's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
from thunder.core.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.layouts import Layouts, MetaLayouts


class Draws(thunder.Transform):
    """Draws numbers in every hook, as one does that tries kernels out."""

    def transform_trace_pre_execution(self, trace: Any, **kwargs: Any) -> Any:
        torch.rand(3)
        return trace

    def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
        torch.rand(3)
        return computation_trace


def drawing(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    chosen = x[torch.randint(0, 4, (2,))]
    return torch.nn.functional.dropout(chosen).sin() * 2, torch.randperm(4), torch.rand(2) + x.sum()


@pytest.mark.parametrize("transforms", [(), (Draws,)], ids=["alone", "a transform that draws"])
@pytest.mark.parametrize("executors", [None, [thunder.pytorch_executor]], ids=["installed", "torch"])
def test_the_first_call_draws_eagers_numbers(transforms: Any, executors: Any) -> None:
    compiled = thunder.jit(drawing, transforms=[made() for made in transforms], executors=executors)
    x = torch.randn(4, 3, requires_grad=True)
    for _ in range(2):
        torch.manual_seed(0)
        expected, state = drawing(x), torch.get_rng_state()
        torch.manual_seed(0)
        torch.testing.assert_close(compiled(x), expected)
        assert torch.equal(torch.get_rng_state(), state)


def factories(x: Tensor) -> list[Tensor]:
    return [
        *(torch.randint(0, 4, (2,)), torch.randn(3), torch.rand(3), torch.randperm(4)),
        *(torch.normal(0.0, 1.0, (2,)), torch.randn_like(x), torch.bernoulli(x)),
        *(
            torch.full((2,), 3.0),
            torch.arange(3),
            torch.eye(2),
            torch.linspace(0, 1, 3),
            torch.hann_window(4),
        ),
    ]


@pytest.mark.parametrize("layouts", [Layouts, MetaLayouts])
def test_a_question_for_strides_makes_no_data(layouts: type[Layouts]) -> None:
    compiled = thunder.jit(factories)
    compiled(torch.rand(3))
    trace = thunder.last_traces(compiled)[0]
    found, state = layouts(trace.args, trace.bound_symbols), torch.get_rng_state()
    made = [p for b in trace.bound_symbols for p in b.flat_proxy_outs if isinstance(p, TensorProxy)]
    assert sum(OpTags.RANDOM_OP in b.sym.tags for b in trace.bound_symbols) >= 7
    for proxy in made:
        tensor = found.of(proxy)
        assert tensor.is_meta or isinstance(tensor, torch._subclasses.FakeTensor)
        assert tuple(tensor.shape) == proxy.shape
    assert torch.equal(torch.get_rng_state(), state)
