"""Under check_traces, what an implementation computes is compared with what its meta function says."""

from __future__ import annotations

import pytest
import torch

from ir.building import EAGER, body, compiled, traced, with_sources
from ir.example_symbols import like, toy
from thunder.base.errors import PluginError
from thunder.compiler.pipeline import Pipeline
from thunder.passes.runtime_checks import watch


@pytest.mark.parametrize(
    ("implementation", "found"),
    [
        (lambda x: x.reshape(2, 2), "cpu f32[2, 2]"),
        (lambda x: x.double(), "cpu f64[4]"),
        (lambda x: x.to("meta"), "meta f32[4]"),
        (lambda x: None, "None"),
    ],
    ids=["shape", "dtype", "device", "kind"],
)
def test_a_result_that_differs_from_its_proxy_names_operator_and_types(implementation, found):
    liar = toy("liar", like, implementation)
    trace = with_sources(traced(lambda x: liar(x), "x"), "model.py", "y = liar(x)\n", 1)
    with pytest.raises(PluginError, match=r"toys\.liar computes a result that differs") as caught:
        compiled(trace).fn(torch.ones(4))
    assert caught.value.facts == {"meta": "cpu f32[4]", "result": found}
    assert "model.py:1   y = liar(x)" in str(caught.value)


def test_a_result_that_is_as_promised_passes_and_the_trace_on_record_has_no_checks():
    result = compiled(traced(lambda x: (x.sin(), x.sum(0)), "x"))
    assert torch.equal(result.fn(torch.ones(4))[0], torch.ones(4).sin())
    assert not any("check_result" in line for line in body(result.traces[-1]))


def test_without_the_option_nothing_is_compared():
    liar = toy("liar", like, lambda x: x.reshape(2, 2))
    result = Pipeline().run(traced(lambda x: liar(x), "x"), EAGER)
    assert result.fn(torch.ones(4)).shape == (2, 2)


def test_each_tensor_is_checked_directly_behind_its_statement():
    assert body(watch(traced(lambda x: x.sin(), "x"))) == [
        't0 = ltorch.sin(x)  # t0: "cpu f32[4]"',
        "check_result(t0, 'torch.sin', 'cpu f32[4]')",
        "return t0",
    ]
