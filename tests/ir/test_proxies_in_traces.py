"""Names and metadata of proxies, as far as a trace decides them."""

from __future__ import annotations

import inspect

import pytest
import torch

import thunder
from ir.building import building, traced
from thunder.base import devices, dtypes
from thunder.base.errors import InvalidArgument, OutsideTrace, TraceError
from thunder.ir.aliasing import InputAlias
from thunder.ir.proxies import CollectionProxy, FloatProxy, IntegerProxy, ProxyTag, TensorProxy, Variable
from thunder.ir.recorder import Recorder
from thunder.ir.symbol import with_parts
from thunder.ir.trace import (
    Source,
    TraceCtx,
    TraceProvenance,
    TraceTag,
    detached_trace,
    from_trace,
    get_tracectx,
    is_tracing,
    tracectx,
)
from thunder.ops import prims


def test_a_taken_name_is_refused():
    with building("x") as (_, x), pytest.raises(TraceError, match="the name 'x' is taken in this trace"):
        TensorProxy("x", like=x)


def test_what_is_missing_of_the_metadata_is_named():
    with building("x"), pytest.raises(InvalidArgument, match="device, dtype"):
        TensorProxy("y", shape=(2,))


def test_explicit_arguments_win_over_like():
    with building("x") as (_, x):
        y = TensorProxy(like=x, shape=(2, 3), device=devices.Device("cuda:1"), dtype=dtypes.bfloat16)
    assert y.type_string() == "cuda:1 bf16[2, 3]"
    assert x.type_string() == "cpu f32[4]"


def test_fresh_names_share_one_counter_and_skip_what_is_taken():
    with tracectx(TraceCtx()) as trace:
        trace.add_name("t1")
        names = [
            TensorProxy(shape=(), device="cpu", dtype=torch.float32).name,
            IntegerProxy(value=1).name,
            TensorProxy(shape=(), device="cpu", dtype=torch.float32).name,
            IntegerProxy(value=True, python_type=bool).name,
            FloatProxy(value=1.0).name,
            CollectionProxy().name,
        ]
    assert names == ["t0", "i1", "t2", "b3", "f4", "C5"]


def test_a_pass_continues_the_counter_of_its_predecessor():
    trace = traced(lambda x: prims.sin(x), "x")
    with tracectx(from_trace(trace)):
        assert prims.sin(trace.args[0]).name == "t1"


def test_derived_names_avoid_clashes_and_reserved_words():
    with building("x") as (_, x):
        names = [x.replace_name(n, disambiguate=True).name for n in ("x", "x", "torch", "lambda", "y")]
    assert names == ["x_0", "x_1", "torch_0", "lambda_0", "y"]


def test_from_trace_shares_nothing_that_can_change():
    trace = traced(lambda x: prims.sin(x), "x")
    new = from_trace(trace)
    assert new.bound_symbols == []
    assert new.get_provenance() is None
    assert [a.name for a in new.args] == ["x"]
    new.add_name("fresh")
    new.args.clear()
    assert not trace.has_name("fresh")
    assert len(trace.args) == 1


#: a value for each argument of the constructor that is metadata, other than its default
METADATA = {
    "shape": (2, 3),
    "device": devices.Device("cuda:1"),
    "dtype": dtypes.bfloat16,
    "requires_grad": True,
    "tags": {ProxyTag.STATIC_MEMORY_LOCATION},
    "distparallel_type": "replicated",
    "history": "somewhere",
    "strides": (1, 2),
    "input_offset": 4,
    "declared_leaf": True,
    "requires_grad_since_write": True,
    "name_hint": "hidden",
}


def test_a_copy_of_a_tensor_keeps_all_metadata():
    with building("x") as (_, x):
        arguments = inspect.signature(TensorProxy.__new__).parameters.keys()
        assert arguments - METADATA.keys() == {"cls", "name", "like", "prefix", "grad"}
        full = TensorProxy("y", **METADATA, grad=x)
        full.derived_strides = (3, 1)
        copy = full.replace(name="z")
    for name, value in METADATA.items():
        assert getattr(full, name) == getattr(copy, name) == value
    assert copy.tags is not full.tags
    assert (copy.name, copy.grad, copy.derived_strides) == ("z", x, (3, 1))


@pytest.mark.parametrize("field", [*METADATA, "grad"])
def test_each_of_the_metadata_can_be_replaced(field):
    with building("x") as (_, x):
        value = METADATA.get(field, x)
        changed = x.replace(**{field: value})
    assert getattr(changed, field) == value if field != "grad" else changed.grad is x


def test_what_follows_from_replaced_metadata_is_reset():
    with building() as (_,):
        full = TensorProxy("y", **METADATA)
        full.derived_strides = (3, 1)
        reshaped, plain = full.replace(shape=(6,)), full.replace(requires_grad=False)
    assert (reshaped.strides, reshaped.derived_strides, reshaped.input_offset) == (None, None, None)
    assert full.replace(shape=(6,), strides=(2,)).strides == (2,)
    assert not plain.requires_grad_since_write


def test_an_attribute_that_is_not_declared_cannot_be_replaced():
    with building("x") as (_, x), pytest.raises(InvalidArgument, match="no attribute 'colour'"):
        x.replace(colour="red")


def test_a_proxy_has_no_metadata_that_are_not_declared():
    def fn(x, w):
        y = x.t().contiguous() * w
        y.add_(1)
        return y.sum() if y.stride(0) else y

    compiled = thunder.jit(fn)
    compiled(torch.ones(2, 2), torch.ones(2, 2, requires_grad=True))
    trace = thunder.last_traces(compiled)[0]
    proxies = [p for bsym in with_parts(trace.bound_symbols) for p in (*bsym.flat_proxy_outs, *trace.args)]
    assert proxies
    assert all(vars(p) == {} for p in proxies if isinstance(p, TensorProxy))


#: attributes of a trace that a new trace of the same program does not take over
FRESH = {"open_scopes", "looks", "provenance", "recorder", "_complete", "_beginning"}


def test_from_trace_keeps_every_fact():
    trace = traced(lambda x: prims.sin(x), "x")
    trace.fn, trace.kwargs, trace.name = len, {"k": 1}, "joint"
    trace.tags = {TraceTag.BACKWARD}
    trace.grad_enabled = trace.star_args = trace.plain = True
    trace.input_aliases = ((InputAlias(trace.args[0], (1,), 0),),)
    trace.computed_inputs = {"t0": "x"}
    trace.input_forms = {"x": ((1,), dtypes.float32)}
    trace.make_object_name(object())
    trace.recorder = Recorder()
    trace._beginning, trace._next_numbers = "t0", {"t0": 3}
    trace.set_provenance(TraceProvenance("Test"))
    assert trace.bound_symbols  # a look
    trace.mark_complete()
    new, empty = from_trace(trace), TraceCtx()
    assert vars(new).keys() == vars(trace).keys()
    for name, value in vars(trace).items():
        assert value != vars(empty)[name], f"the test gives {name} a value"
        assert vars(new)[name] == (vars(empty)[name] if name in FRESH else value), name


def test_a_recorder_is_installed_within_its_context_alone():
    class Doubled(Recorder):
        def adapt_call(self, symbol, args, kwargs):
            return (prims.add, (*args, *args), kwargs) if symbol is prims.neg else (symbol, args, kwargs)

        def location(self):
            return Source("model.py", 7)

    with building("x") as (trace, x):
        with tracectx(trace, recorder=Doubled()):
            prims.neg(x)
        prims.neg(x)
    assert [(b.sym.name, b.source) for b in trace.bound_symbols] == [
        ("add", Source("model.py", 7)),
        ("neg", None),
    ]


def test_a_variable_compares_by_name():
    with building("x", "y") as (_, x, y):
        assert Variable(x) == Variable(x.replace(name="x"))
        assert Variable(x) != Variable(y)
        assert {Variable(x): 1}[Variable(x.replace(shape=(7,)))] == 1


def test_symbols_outside_a_trace_are_refused():
    with building("x") as (_, x):
        pass
    with pytest.raises(OutsideTrace, match="sin was called where no trace is current"):
        prims.sin(x)


def test_a_detached_trace_keeps_nothing():
    with building("x") as (trace, x):
        with detached_trace() as scratch:
            prims.sin(x)
            assert get_tracectx() is scratch
        assert get_tracectx() is trace
        assert trace.bound_symbols == []
    assert not is_tracing()


def test_assigning_bound_symbols_moves_the_base_scope():
    with building("x") as (trace, x):
        trace.bound_symbols = []
        prims.sin(x)
        assert trace.peek_scope() is trace.bound_symbols
        assert len(trace.bound_symbols) == 1
        trace.push_scope([])
        prims.cos(x)
        assert [b.sym.name for b in trace.pop_scope()] == ["cos"]
        assert len(trace.bound_symbols) == 1
        with pytest.raises(TraceError, match="base scope"):
            trace.pop_scope()


def test_the_output_is_the_bare_argument_of_the_return():
    with building("x", "y") as (trace, x, y):
        assert trace.output is None
        prims.python_return({"output": x}, (y,))
    assert trace.output[0]["output"] is x
    assert trace.output[1][0] is y
    assert traced(lambda x: x, "x").output.name == "x"
