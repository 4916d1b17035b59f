"""Primitives that a transform adds to prologues and epilogues: they are statements, run, and are guards."""

from __future__ import annotations

import dataclasses
import types

import numpy
import pytest
import torch

import thunder
from thunder.base.errors import GuardFailed, InvalidArgument, PluginError
from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import add_trace_output, get_checks
from thunder.core.trace import TraceCtx, tracectx

STATE = types.SimpleNamespace()


class Adds(thunder.Transform):
    """A transform that records statements at the end of the prologue."""

    def __init__(self, record):
        self.record = record

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        end = prologue_trace.bound_symbols.pop()
        with tracectx(prologue_trace):
            self.record(prims.unpack_function_obj(prims.Constant(STATE), name="state"))
        prologue_trace.bound_symbols.append(end)
        return prologue_trace, computation_trace, epilogue_trace


def value_of(state):
    return prims.unpack_attr(state, "value")


def unpacked(unpack):
    """Guard the first element of a tuple or list of two."""

    def record(state):
        first, _ = unpack(value_of(state), 2)
        prims.check_number_type_and_value(first, 1)

    return record


CHECKS = {
    "instance": (lambda state: prims.check_instance(value_of(state), (int, float)), 1, 2.5, "x"),
    "slice": (
        lambda state: prims.check_slice_value(value_of(state), prims.Constant(slice(0, 2))),
        slice(0, 2),
        slice(0, 2),
        slice(0, 3),
    ),
    "less": (lambda s: prims.check_compare(value_of(s), "<", 4), 1, 3, 4),
    "equal": (lambda s: prims.check_compare(value_of(s), "==", value_of(s)), 1, 2.0, float("nan")),
    "tuple": (unpacked(prims.unpack_tuple), (1, 2), (1, 3), [1, 2]),
    "elements": (unpacked(prims.unpack_tuple), (1, 2), (1, 3), (2, 3)),
    "list": (unpacked(prims.unpack_list), [1, 2], [1, 3], [1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_of_a_transform_holds_for_one_value_and_not_for_another(name):
    record, first, other, wrong = CHECKS[name]
    compiled = thunder.jit(lambda x: x + 1, transforms=[Adds(record)])
    for STATE.value in (first, other):
        compiled(torch.ones(2))
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (1, 1)
    STATE.value = wrong
    with pytest.raises(
        PluginError, match="a check of the prologue that a transform returned does not hold"
    ) as raised:
        compiled(torch.ones(2))
    assert __name__ in raised.value.facts["from"]


def test_the_tensors_of_a_prologue_are_checked_by_one_statement():
    class Grouped(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            checks = [check for check, _ in get_checks(prologue_trace).values()]
            statements = [b for b in prologue_trace.bound_symbols[:-1] if b not in checks]
            end = prologue_trace.bound_symbols[-1]
            prologue_trace.bound_symbols = statements
            with tracectx(prologue_trace):
                prims.check_tensors([c.args[0] for c in checks], [c.args[1:] for c in checks])
            statements.append(end)
            assert "x" in get_checks(prologue_trace)
            return prologue_trace, computation_trace, epilogue_trace

    compiled, x = thunder.jit(lambda x, y: x + y, transforms=[Grouped()]), torch.ones(2)
    compiled(x, torch.zeros(2))
    run = thunder.last_prologue_traces(compiled)[1].python_callable()
    run(x, torch.ones(2))
    for y in (x, torch.ones(3)):
        with pytest.raises(GuardFailed, match="check_tensors"):
            run(x, y)
    torch.testing.assert_close(compiled(x, x), x + x)
    compiled(x, torch.zeros(2))
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (1, 2)


def test_a_numpy_array_is_an_input_of_the_computation_as_a_tensor():
    STATE.value = numpy.arange(3.0, dtype=numpy.float32)

    class AddsArray(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            end = prologue_trace.bound_symbols.pop()
            with tracectx(prologue_trace):
                array = prims.unpack_attr(prims.unpack_function_obj(prims.Constant(STATE)), "value")
                proxy = TensorProxy("noise", shape=(3,), dtype=torch.float32, device="cpu")
                prologue_trace.bound_symbols += [
                    prims.numpy_array_to_torch_tensor.bind(array, output=proxy),
                    prims.check_tensor_shape_and_metadata.bind(
                        proxy, (3,), "cpu", torch.float32, False, output=None
                    ),
                ]
            prologue_trace.bound_symbols.append(end)
            add_trace_output(prologue_trace, proxy, subindex=0)
            computation_trace.add_name("noise")
            computation_trace.args.append(proxy)
            with tracectx(computation_trace):
                (end,) = computation_trace.bound_symbols[-1:]
                computation_trace.bound_symbols.pop()
                result = thunder.torch.add(end.args[0], proxy)
                prims.python_return(result)
            return prologue_trace, computation_trace, epilogue_trace

    compiled, x = thunder.jit(lambda x: x * 2, transforms=[AddsArray()]), torch.ones(3)
    torch.testing.assert_close(compiled(x), torch.tensor([2.0, 3.0, 4.0]))
    STATE.value[0] = 5
    torch.testing.assert_close(compiled(x), torch.tensor([7.0, 3.0, 4.0]))
    assert thunder.cache_misses(compiled) == 1


@dataclasses.dataclass
class Pair:
    first: object
    second: object


def test_an_epilogue_constructs_lists_tuples_and_dataclasses():
    trace = TraceCtx(name="epilogue")
    with tracectx(trace):
        x = TensorProxy("x", shape=(2,), dtype=torch.float32, device="cpu")
        trace.args = [x]
        items = prims.pack_list(x, 3)
        pair = prims.dataclass_new(Pair, x, second=prims.construct_tuple((x, items)))
        prims.python_return(pair)
        with pytest.raises(InvalidArgument, match="dataclass_new constructs dataclasses"):
            prims.dataclass_new(int, 3)
    x = torch.ones(2)
    result = trace.python_callable()(x)
    assert type(result) is Pair
    assert result.first is x
    assert type(result.second) is tuple
    assert result.second[1] == [x, 3]
    assert trace.python_callable()(x).second[1] is not result.second[1]


def test_the_shape_of_a_tensor_is_known_while_tracing():
    compiled = thunder.jit(lambda x: x.sum() + prims.shape(x)[1])
    assert compiled(torch.zeros(2, 3)) == 3
