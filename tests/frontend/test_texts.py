"""Texts of tensors: refused in programs, however they are made; authors' code may make them."""

# ruff: noqa: UP031  (formatting by percent is what is tested)

from __future__ import annotations

import collections
import types

import pytest
import torch

import thunder
from thunder.extend import OperatorExecutor

PROGRAMS = {
    "percent": lambda x: "%s" % x,
    "percent of a list": lambda x: "%s" % [x],
    "percent by name": lambda x: "%(x)s" % {"x": x},
    "percent of a mapping": lambda x: "%(x)s" % collections.OrderedDict(x=x),
    "f-string": lambda x: f"{x}",
    "format_map": lambda x: "{x}".format_map({"x": x}),
    "text of an exception": lambda x: str(ValueError(x)),
    "repr of a deque": lambda x: repr(collections.deque([x])),
    "text of a namespace": lambda x: str(types.SimpleNamespace(x=x)),
    "method": lambda x: x.__format__(""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_makes_a_text_of_a_tensor_is_refused(name):
    with pytest.raises(thunder.UnsupportedProgram, match="the text of a tensor shows its values"):
        thunder.jit(PROGRAMS[name])(torch.ones(2))


@pytest.mark.parametrize("name", ["percent", "percent of a list", "f-string", "text of a namespace"])
def test_a_program_that_makes_a_text_of_a_number_out_of_a_tensor_is_refused(name):
    with pytest.raises(thunder.DataDependentControlFlow, match="the text of a number that comes out of a"):
        thunder.jit(lambda x: PROGRAMS[name](x.sum().item()))(torch.ones(2))


def test_texts_without_tensors_are_made():
    def program(x):
        return "%s %s" % (1, [2]) + "%s" % [1, 2] + "%(a)s" % {"a": 3}, x

    assert thunder.jit(program)(torch.ones(2))[0] == "1 [2][1, 2]3"


def test_a_meta_function_prints_proxies(capsys):
    def meta(x):
        print(x, f"{x} {x!r:>70}")
        return thunder.TensorProxy(like=x)

    executor = OperatorExecutor("printing_ex")
    operator = executor.register_operator("shown", meta=meta, fn=torch.sin)
    thunder.jit(lambda x: operator(x), executors=[executor])(torch.ones(2))
    assert capsys.readouterr().out.count('<TensorProxy(name="t0", dtype=thunder.dtypes.float32') == 3


def test_a_transform_prints_proxies():
    texts = []

    class Shows(thunder.Transform):
        def transform_trace_pre_execution(self, trace, **kwargs):
            texts.extend(f"{out} {out!s}" for bsym in trace.bound_symbols for out in bsym.flat_proxy_outs)
            return trace

    thunder.jit(lambda x: x.sum().item(), transforms=[Shows()])(torch.ones(2))
    tensor = '<TensorProxy(name="t0", dtype=thunder.dtypes.float32, shape=())>'
    assert texts == [f"{tensor} {tensor}", '<FloatProxy(name="f1")> <FloatProxy(name="f1")>']
