"""Prologues as statements: one for each fact and each value, from which the text that runs is written."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

import thunder
from soundness.example_programs import PROGRAMS, numbered
from soundness.harness import call, ramp
from thunder.base.errors import GuardFailed, PluginError, TraceError
from thunder.compiler import entry_compiler
from thunder.compiler.entry_compiler import EntryCompiler
from thunder.core import prims
from thunder.core.rewrite import get_checks, module_tensors
from thunder.frontend.guards import prologue_trace
from thunder.frontend.prologue_statements import interface_of, structured


class Hooked(thunder.Transform):
    """A transform whose hook on the prologue is a function."""

    def __init__(self, change):
        self.change = change

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        return self.change(prologue_trace), computation_trace, epilogue_trace


def unchanged(prologue):
    return prologue


def compiled(program, *args, change=None):
    function = thunder.jit(program, transforms=[Hooked(change)] if change else [])
    with torch.no_grad():
        function(*args)
    return function


def calls_of(trace, symbol):
    return [bsym for bsym in trace.bound_symbols if bsym.sym.id == symbol.id]


def without(*symbols):
    """A change of a prologue: it loses the calls of these symbols."""

    def change(prologue):
        ids = {symbol.id for symbol in symbols}
        prologue.bound_symbols = [b for b in prologue.bound_symbols if b.sym.id not in ids]
        return prologue

    return change


class Recorded:
    """The calls of a compiled object, each with the roots of its paths."""

    def __init__(self, monkeypatch):
        self.roots = []
        compile = EntryCompiler.compile

        def record(compiler, args, kwargs, device=None, **known):
            self.roots.append({"args": args, "kwargs": kwargs})
            return compile(compiler, args, kwargs, device, **known)

        monkeypatch.setattr(EntryCompiler, "compile", record)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_statements_have_every_fact_and_give_the_same_text(name, monkeypatch):
    calls, w = Recorded(monkeypatch), PROGRAMS[name]()
    function = thunder.jit(w.program)
    checked = []

    def compare(*args):
        (program,) = args[:1]
        roots, prologue = calls.roots[-1], program.prologue
        with torch._C.DisableTorchFunction():
            interface = interface_of(prologue.structure(), roots)
            text = prologue_trace(interface, roots).python(include_timing=False)
        assert text == prologue.python(include_timing=False)
        facts, again = ([str(f) for f in facts] for facts in (program.facts[1:], interface.facts))
        assert sorted(facts) == sorted(again)
        checked.append(name)
        return make(*args)

    make = entry_compiler.new_entry
    monkeypatch.setattr(entry_compiler, "new_entry", compare)
    error = call(function, w).error
    assert checked or error is not None


def test_the_text_of_the_statements_runs_and_raises_where_a_check_fails():
    model = numbered(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    x = ramp(3, 2)
    statements = compiled(model, x, change=unchanged)
    acquired = thunder.last_prologue_traces(statements)[0]
    run = acquired.python_callable()
    inputs, reached = run(x)
    assert inputs[0] is x
    assert any(value is model[0].weight for value in inputs)
    assert reached == ()
    with pytest.raises(GuardFailed, match="check_len"):
        run(x, x)
    with pytest.raises(GuardFailed, match="check_tensor_shape_and_metadata"):
        run(x.double())


def test_each_parameter_is_unpacked_by_its_dotted_name_and_checked():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.BatchNorm1d(2))
    trace = thunder.last_prologue_traces(compiled(model, ramp(3, 2)))[-1]
    assert sorted(module_tensors(trace)) == sorted(dict(model.state_dict()))
    unpacked = {b.args[1]: b.output.name for b in calls_of(trace, prims.unpack_parameter)}
    assert unpacked == {name: "t_" + name.replace(".", "_") for name, _ in model.named_parameters()}
    assert sorted(b.args[1] for b in calls_of(trace, prims.unpack_buffer)) == sorted(
        [f"1.{name}" for name, _ in model[1].named_buffers()]
    )
    checks = get_checks(trace)
    assert set(unpacked.values()) < set(checks)
    check, unpack = checks["t_0_0_weight"]
    assert check.sym.id == prims.PrimIDs.CHECK_TENSOR_SHAPE_AND_METADATA
    assert check.args[1:] == ((2, 2), "cpu", torch.float32, True)
    assert unpack.sym is prims.unpack_parameter


def test_arguments_of_every_kind_are_checked_by_statements():
    def program(x, k, name, d, items):
        return x * k + d["a"] + len(items) + len(name)

    args = ramp(2), 3, "n", {"a": 2.0}, [1, 2]
    trace = thunder.last_prologue_traces(compiled(program, *args))[-1]
    (number,) = [b for b in calls_of(trace, prims.check_number_type_and_value) if b.args[1] == 3]
    assert [b.args[1] for b in calls_of(trace, prims.check_string_value)] == ["n"]
    assert [b.args[1] for b in calls_of(trace, prims.check_literal_like)] == [2.0]
    assert ("a",) in [b.args[1] for b in calls_of(trace, prims.check_keys)]
    unpacked = {b.output.name: b for b in trace.bound_symbols if b.output is not None}
    assert unpacked[number.args[0].name].args[1] == 1
    assert str(number).startswith("check_number_type_and_value(")


def test_the_prologues_before_and_after_a_hook_are_listed_and_the_last_one_runs():
    traces = thunder.last_prologue_traces(compiled(lambda x: x + 1, ramp(2), change=unchanged))
    assert [t.get_provenance().pss for t in traces] == ["Acquisition", "Hooked", "Guard grouping"]
    assert [b.sym.id for b in traces[0].bound_symbols] == [b.sym.id for b in traces[-1].bound_symbols]


def test_a_check_that_a_hook_removes_is_no_longer_made():
    scale = [2.0]

    def program(x):
        return x * scale[0]

    function = compiled(program, ramp(2), change=without(prims.check_literal_like))
    scale[0] = 3.0
    with torch.no_grad():
        assert torch.equal(function(ramp(2)), ramp(2) * 2)  # by the transform's responsibility
    assert thunder.cache_hits(function) == 1


def test_a_check_that_a_hook_adds_is_made_and_is_the_reason_of_a_recompile():
    limits = {"level": 1}

    def guard_level(prologue):
        end = prologue.bound_symbols.pop()
        with thunder.core.trace.tracectx(prologue):
            state = prims.unpack_function_obj(prims.Constant(limits), name="limits")
            prims.check_number_type_and_value(prims.unpack_dict_key(state, "level"), limits["level"])
        prologue.bound_symbols.append(end)
        return prologue

    function = compiled(lambda x: x + 1, ramp(2), change=guard_level)
    with torch.no_grad():
        function(ramp(2))
        limits["level"] = 2
        function(ramp(2))
    assert (thunder.cache_hits(function), thunder.cache_misses(function)) == (1, 2)
    (reason,) = thunder.last_recompile_reasons(function)
    assert (reason.fact, reason.expected, reason.found) == ("value of limits['level']", 1, 2)


def without_one_and_with_another(prologue):
    """A change of a prologue: it loses the checks of floats, and has one of an object of its own."""
    without(prims.check_literal_like)(prologue)
    end = prologue.bound_symbols.pop()
    with thunder.core.trace.tracectx(prologue):
        state = prims.unpack_function_obj(prims.Constant({"level": 1}), name="limits")
        prims.check_compare(prims.unpack_dict_key(state, "level"), "<=", 1)
        prims.check_contains(state, "other", False)
    prologue.bound_symbols.append(end)
    return prologue


@pytest.mark.parametrize("name", [*PROGRAMS][::8])
def test_reading_back_a_changed_prologue_is_the_identity(name, monkeypatch):
    calls, w = Recorded(monkeypatch), PROGRAMS[name]()
    function = thunder.jit(w.program, transforms=[Hooked(without_one_and_with_another)])
    assert call(function, w).error is None
    changed, runs = thunder.last_prologue_traces(function)[-2:]
    with torch._C.DisableTorchFunction():
        first = interface_of(changed, calls.roots[-1])
        statements = structured(first)
        second = interface_of(statements, calls.roots[-1])
        again = prologue_trace(second, calls.roots[-1])
    assert [(f.sym, str(f)) for f in first.facts] == [(f.sym, str(f)) for f in second.facts]
    assert structured(second).python(include_timing=False) == statements.python(include_timing=False)
    assert again.python(include_timing=False) == runs.python(include_timing=False)
    assert {"limits['level'] <= 1", "lacks_key of limits"} <= {str(f) for f in second.facts}


def added(symbol, *args):
    def change(prologue):
        prologue.bound_symbols.insert(0, symbol.bind(*args, output=None))
        return prologue

    return change


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (without(prims.python_return), TraceError, "does not end with a return"),
        (without(prims.unpack_getitem), TraceError, "is used before it is defined"),
        (
            added(prims.python_print, "x"),
            PluginError,
            "a call of prims.python_print, which is neither",
        ),
    ],
)
def test_a_prologue_that_a_hook_has_broken_is_an_error(change, error, text):
    with pytest.raises(error, match=text):
        compiled(lambda x: x + 1, ramp(2), change=change)


def test_a_check_for_metadata_that_the_tensor_does_not_have_is_an_error():
    def change(prologue):
        return thunder.core.rewrite.trace_with_replaced_proxy_metadata(prologue, {"x": {"shape": (5,)}})

    with pytest.raises(PluginError, match="the program reads x with other metadata"):
        compiled(lambda x: x + 1, ramp(2), change=change)


def test_parameters_and_buffers_are_in_static_memory_and_arguments_are_not():
    function = compiled(nn.BatchNorm1d(2), ramp(3, 2))
    static = thunder.core.proxies.ProxyTag.STATIC_MEMORY_LOCATION
    tags = {p.name: static in p.tags for p in thunder.last_traces(function)[-1].args}
    assert tags.pop("input") is False
    assert len(tags) == 5
    assert all(tags.values())


def test_writes_and_the_result_of_an_epilogue_are_statements_with_their_values():
    class Program(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.calls = 0

        def forward(self, x, table):
            self.count = self.count + 1
            self.calls += 1
            table["last"], table["pair"] = x, [x * 2, 1.5]
            return {"y": x + self.count}

    x, table = ramp(2), {}
    trace = thunder.last_epilogue_traces(compiled(Program(), x, table))[-1]
    (buffer,), (attribute,) = (calls_of(trace, symbol) for symbol in (prims.pack_buffer, prims.pack_attr))
    assert buffer.args[:2] == (buffer.args[0], "count")
    assert (attribute.args[1], attribute.args[2]) == ("calls", 1)
    last, pair = calls_of(trace, prims.pack_setitem)
    assert (last.args[1], last.args[2].name) == ("last", "x")
    assert [p.name for p in pair.flat_proxy_args if p.name.startswith("t")] == [pair.args[2].values[0].name]
    assert trace.bound_symbols[-1].sym is prims.python_return
    text = [str(bsym) for bsym in (buffer, attribute, last)]
    name = buffer.args[2].name
    assert text == [
        f"self._buffers['count'] = {name}",
        "object.__setattr__(self, 'calls', 1)",
        "args_1['last'] = x",
    ]


@pytest.mark.parametrize("name", ["9x__native", "²", "…", "class", ""])
def test_an_object_may_have_a_name_that_is_no_identifier(name):
    def program(x, table):
        return x * (table["unit"] is not table["module"])

    unit, module = (lambda: None), types.ModuleType(name)
    unit.__qualname__ = unit.__name__ = name
    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(compiled(ramp(), {"unit": unit, "module": module}), ramp())
    assert thunder.cache_misses(compiled) == 1
