"""Who gets a symbol: the order of questions, what an execution transform may do, the record of all of it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from ir.building import EAGER, body, building, compiled, text, traced, with_sources
from ir.example_symbols import like, pair, toy
from thunder.base.errors import (
    InvalidArgument,
    Location,
    NoExecutor,
    PluginError,
    RequirementNotMet,
    TraceError,
)
from thunder.base.tags import OpTags
from thunder.compiler.ledger import check_requirements, explain_placements
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.executor_base.refusal import Refusal
from thunder.ir.trace import from_trace
from thunder.ops import prims
from thunder.passes.claim import claim


@pytest.fixture
def ex():
    """An executor with a sine of its own."""
    executor = OperatorExecutor("claim_tests")
    symbol = executor.register_operator(
        "my_sin", meta=lambda x: like(x), fn=lambda x: torch.sin(x) + 0, replace=True
    )
    executor.my_sin = symbol
    return executor


def sine():
    return traced(lambda x: torch.sin(x), "x")


def test_the_first_executor_that_takes_a_call_has_it(ex):
    ex.register_implementation("torch.sin", ex.my_sin)
    result = compiled(sine(), (ex, *EAGER))
    assert body(result.traces[-1], -1) == [
        't0 = my_sin(x)  # t0: "cpu f32[4]"',
        '  # t0 = ltorch.sin(x)  # t0: "cpu f32[4]"',
        '    # t0 = prims.sin(x)  # t0: "cpu f32[4]"',
        "del x",
        "return t0",
    ]
    assert torch.equal(result.fn(torch.ones(4)), torch.ones(4).sin())
    assert body(compiled(sine(), (*EAGER, ex)).traces[-1])[0].startswith("t0 = torch.sin(x)")


def test_a_composite_that_nobody_takes_is_decomposed(ex):
    ex.register_implementation("prims.sin", ex.my_sin)
    result = compiled(sine(), (ex,))
    assert body(result.traces[-1])[0] == 't0 = my_sin(x)  # t0: "cpu f32[4]"'
    assert [(p.symbol, p.claimed_by, p.via) for p in result.ledger] == [
        ("torch.sin", None, "decomposed"),
        ("prims.sin", "claim_tests", "operator"),
    ]


def test_decomposed_calls_keep_the_users_line_and_the_header(ex):
    ex.register_implementation("prims.sin", ex.my_sin)
    trace = with_sources(sine(), "user.py", "torch.sin(x)\n", 1)
    trace.bound_symbols[0].header = "kept"
    assert body(compiled(trace, (ex,)).traces[-1])[:3] == ["", "# user.py:1: \ttorch.sin(x)", "# kept"]


def test_a_checker_is_asked_once_with_the_arguments_of_the_call_and_its_refusal_is_kept(ex):
    asked = []

    def checker(x):
        asked.append(x.name)
        return Refusal("small", "it is too small", size=x.numel)

    ex.register_implementation("torch.sin", ex.my_sin, checker=checker)
    result = compiled(sine(), (ex, *EAGER))
    assert asked == ["x"]
    assert [(p.claimed_by, p.refusals) for p in result.ledger] == [
        ("torch", (("claim_tests", Refusal("small", "it is too small", size=4)),))
    ]


def test_a_primitive_that_nobody_takes_is_told_with_each_refusal(ex):
    ex.register_implementation("prims.sin", ex.my_sin, checker=lambda x: Refusal("code", "not on a Friday"))
    trace = with_sources(sine(), "user.py", "y = torch.sin(x)\n", 1)
    with pytest.raises(NoExecutor) as caught:
        claim(trace, (ex,))
    message = str(caught.value)
    assert message.splitlines()[0] == "no executor claims prims.sin"
    assert "user.py:1   y = torch.sin(x)" in message
    assert "claim_tests:  not on a Friday" in message


def test_core_without_executors_traces_and_says_that_nobody_runs_it():
    with pytest.raises(NoExecutor, match=r"no executor claims prims\.sin"):
        claim(sine(), ())


def test_what_runs_as_it_stands_is_not_asked_about(ex):
    class Nosy(Executor):
        def can_execute(self, bsym):
            raise AssertionError(f"asked about {bsym.sym.name}")

    with building("x") as (trace, x):
        y = ex.my_sin(x)
        prims.python_print(y)
        prims.python_return(y)
    assert [p.claimed_by for p in compiled(trace, (Nosy("nosy"),)).ledger] == ["claim_tests", "python"]


def test_an_execution_transform_computes_under_the_names_of_the_call(ex):
    ex.register_implementation("torch.sin", execution_transform=lambda x: torch.neg(torch.neg(ex.my_sin(x))))
    result = compiled(sine(), (ex, *EAGER))
    names = [p.name for b in result.traces[-1].bound_symbols for p in b.flat_proxy_outs]
    assert len(names) == 3
    assert names[-1] == "t0"
    assert torch.equal(result.fn(torch.ones(4)), torch.ones(4).sin())
    assert (result.ledger[0].symbol, result.ledger[0].claimed_by) == ("torch.sin", "claim_tests")


def test_what_an_execution_transform_records_is_asked_of_the_always_executors_alone(ex):
    ex.register_implementation("torch.sin", execution_transform=lambda x: torch.sin(x))
    result = compiled(sine(), (ex, *EAGER))
    assert body(result.traces[-1])[0] == 't0 = torch.sin(x)  # t0: "cpu f32[4]"'
    assert torch.equal(result.fn(torch.ones(4)), torch.ones(4).sin())


def test_an_execution_transform_may_return_an_input(ex):
    ex.register_implementation("torch.sin", execution_transform=lambda x: x)
    trace = traced(lambda x: torch.cos(torch.sin(x)), "x")
    result = compiled(trace, (ex, *EAGER))
    assert body(result.traces[-1])[0].startswith("t1 = torch.cos(x)")
    assert torch.equal(result.fn(torch.ones(4)), torch.ones(4).cos())


def test_an_execution_transform_may_return_one_value_twice(ex):
    ex.register_implementation(pair, execution_transform=lambda x: (y := torch.sin(x), y))
    trace = traced(lambda x: pair(x), "x")
    unclaimed = dataclasses.replace(pair, python_impl=None)
    trace.bound_symbols[0] = trace.bound_symbols[0].from_bsym(sym=unclaimed)
    returned = compiled(trace, (ex, *EAGER))
    assert body(returned.traces[-1])[-1] == "return (t0, t1)"
    first, second = returned.fn(torch.ones(4))
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize(
    "wrong",
    [lambda x: (torch.sin(x), x), lambda x: torch.reshape(x, (2, 2)), lambda x: 3],
    ids=["structure", "shape", "number"],
)
def test_an_execution_transform_that_returns_something_else_is_its_executors_fault(ex, wrong):
    ex.register_implementation("torch.sin", execution_transform=wrong)
    with pytest.raises(PluginError, match=r"execution transform of executor 'claim_tests' for torch\.sin"):
        compiled(sine(), (ex, *EAGER))


def test_an_operator_that_cannot_take_the_arguments_is_its_executors_fault(ex):
    ex.register_implementation("torch.add", ex.my_sin)
    with pytest.raises(
        PluginError, match=r"my_sin' of 'claim_tests' does not take the arguments of torch\.add"
    ):
        compiled(traced(lambda x, y: x + y, "x", "y"), (ex, *EAGER))


def test_the_defaults_of_the_claiming_operator_are_filled_in(ex):
    scaled = ex.register_operator(
        "scaled", meta=lambda x, y, alpha=1, beta=7: like(x), fn=lambda x, y, alpha, beta: x, replace=True
    )
    ex.register_implementation("torch.add", scaled)
    trace = compiled(traced(lambda x, y: torch.add(x, y, alpha=2), "x", "y"), (ex, *EAGER)).traces[-1]
    assert " = scaled(x, y, 2, 7)" in body(trace)[0]


# -- fusion -----------------------------------------------------------------------------------------------


class Pairs(FusionExecutor):
    """Fuses each run of two or more of its calls."""

    def fusion_pass(self, trace):
        new, region, count = from_trace(trace), [], 0
        for bsym in [*trace.bound_symbols, None]:
            if bsym is not None and bsym.sym.executor is self:
                region.append(bsym)
                continue
            if len(region) > 1:
                new.bound_symbols.append(self.fuse(region, count))
                count += 1
            else:
                new.bound_symbols += region
            region = []
            if bsym is not None:
                new.bound_symbols.append(bsym)
        return new

    def fuse(self, region, fusion_counter):
        inputs, outputs = region[0].flat_proxy_args, region[-1].flat_proxy_outs

        def run(x):
            for bsym in region:
                x = getattr(torch, bsym.sym.name)(x)
            return [x]

        return self.register_temporary_operation(
            f"pairs{fusion_counter}", run, inputs=inputs, outputs=outputs, bsyms=region
        )


@pytest.fixture
def fuser():
    executor = Pairs("pairs")
    for name in ("torch.sin", "torch.cos"):
        executor.register_supported(name)
    return executor


def test_a_fusion_executor_takes_regions_and_leaves_the_rest(fuser):
    trace = traced(lambda x: torch.sin(torch.exp(torch.cos(torch.sin(x)))), "x")
    result = compiled(trace, (fuser, *EAGER))
    assert body(result.traces[-1], -1) == [
        "[t1] = pairs0(x)",
        '  # t0 = ltorch.sin(x)  # t0: "cpu f32[4]"',
        '    # t0 = prims.sin(x)  # t0: "cpu f32[4]"',
        '  # t1 = ltorch.cos(t0)  # t1: "cpu f32[4]"',
        '    # t1 = prims.cos(t0)  # t1: "cpu f32[4]"',
        "del x",
        't2 = torch.exp(t1)  # t2: "cpu f32[4]"',
        '  # t2 = ltorch.exp(t1)  # t2: "cpu f32[4]"',
        '    # t2 = prims.exp(t1)  # t2: "cpu f32[4]"',
        "del t1",
        't3 = torch.sin(t2)  # t3: "cpu f32[4]"',
        '  # t3 = ltorch.sin(t2)  # t3: "cpu f32[4]"',
        '    # t3 = prims.sin(t2)  # t3: "cpu f32[4]"',
        "del t2",
        "return t3",
    ]
    assert torch.equal(result.fn(torch.ones(4)), torch.ones(4).sin().cos().exp().sin())
    assert [(p.symbol, p.claimed_by, p.via) for p in result.ledger] == [
        ("torch.sin", "pairs", "fusion"),
        ("torch.cos", "pairs", "fusion"),
        ("torch.exp", "torch", "operator"),
        ("torch.sin", "torch", "always"),
    ]
    assert [(name, r.code) for name, r in result.ledger[3].refusals] == [("pairs", "not-fused")]


def test_traces_of_the_stages_that_did_something_are_kept(fuser):
    trace = traced(lambda x: torch.sin(torch.exp(x)), "x")
    made_by = [t.get_provenance().pss for t in compiled(trace, (fuser, *EAGER)).traces[1:]]
    assert made_by == [
        "Dead Code Elimination",
        "Common Subexpression Elimination",
        "Transform for execution",
        "Transform for execution",
        "Transform for execution",
        "Delete Last Used",
    ]


def test_an_error_names_the_method_that_a_fusion_executor_lacks():
    idle = FusionExecutor("idle")
    assert compiled(sine(), (idle, *EAGER))
    idle.register_supported("torch.sin")
    with pytest.raises(PluginError, match=r"'idle' has neither compile_region\(self, region\) nor fuse"):
        compiled(sine(), (idle, *EAGER))


def test_a_fusion_pass_that_returns_no_trace_is_its_executors_fault(fuser):
    fuser.fusion_pass = lambda trace: None
    with pytest.raises(PluginError, match="the fusion pass of executor 'pairs' returned None"):
        compiled(sine(), (fuser, *EAGER))


def test_a_fusion_pass_that_takes_a_call_of_another_executor_is_refused(fuser):
    def greedy(trace):
        new = from_trace(trace)
        new.bound_symbols = [fuser.fuse(trace.bound_symbols[:2], 0), *trace.bound_symbols[2:]]
        return new

    fuser.fusion_pass = greedy
    with pytest.raises(TraceError, match=r"the fusion pairs0 of 'pairs' contains a call of 'torch'"):
        compiled(traced(lambda x: torch.exp(torch.sin(x)), "x"), (fuser, *EAGER))


def test_a_fusion_pass_that_loses_an_effect_is_refused(fuser):
    draw = toy("draw", like, lambda x: torch.rand_like(x), tags=frozenset({OpTags.RANDOM_OP}))

    def lossy(trace):
        new = from_trace(trace)
        new.bound_symbols = [b for b in trace.bound_symbols if b.sym.id != draw.id]
        return new

    fuser.fusion_pass = lossy
    with pytest.raises(
        TraceError, match=r"the fusion pass of 'pairs' lost a call with an effect: toys\.draw"
    ):
        compiled(traced(lambda x: (draw(x), x)[1], "x"), (fuser, *EAGER))


# -- the ledger -------------------------------------------------------------------------------------------


@pytest.fixture
def explanation(ex):
    ex.register_implementation(
        "torch.sin", ex.my_sin, checker=lambda x: Refusal("small", "too small", size=x.numel)
    )
    trace = with_sources(
        traced(lambda x: torch.exp(torch.sin(x)), "x"), "user.py", "a\nb = sin(x)\nc\n", 2, 3
    )
    return explain_placements(compiled(trace, (ex, *EAGER)).ledger)


def test_a_row_tells_who_runs_a_call_and_why_not_the_executor_before(explanation):
    first, second = explanation.rows
    assert (first.index, first.trace, first.symbol, first.outputs) == (0, "forward", "torch.sin", ("t0",))
    assert (first.claimed_by, first.via) == ("torch", "operator")
    assert [(r.executor, r.code, r.message, r.facts) for r in first.refusals] == [
        ("claim_tests", "small", "too small", {"size": 4})
    ]
    assert (first.source.file, first.source.line, first.source.text) == ("user.py", 2, "b = sin(x)")
    assert [r.code for r in second.refusals] == ["no-implementation"]


def test_why_not_filters_by_executor_line_and_symbol(explanation):
    assert [row.index for row in explanation.why_not("claim_tests").rows] == [0, 1]
    assert [row.index for row in explanation.why_not("claim_tests", line=2).rows] == [0]
    assert [row.index for row in explanation.why_not("claim_tests", symbol="torch.exp").rows] == [1]
    assert explanation.why_not("torch").rows == ()
    with pytest.raises(InvalidArgument, match="Did you mean 'claim_tests'"):
        explanation.why_not("claim_test")


def test_the_table_and_the_json_say_the_same(explanation):
    facts = json.loads(explanation.to_json())
    assert sorted(facts) == [
        "absent",
        "baked",
        "below_autograd",
        "idle",
        "notes",
        "replaced",
        "rows",
        "tried",
        "unchanged",
        "writes",
    ]
    assert [(r["symbol"], r["claimed_by"], r["refusals"][0]["message"]) for r in facts["rows"]] == [
        ("torch.sin", "torch", "too small"),
        ("torch.exp", "torch", "claim_tests has no implementation of torch.exp"),
    ]
    assert facts["rows"][0]["source"] == {"file": "user.py", "line": 2, "text": "b = sin(x)"}
    assert str(explanation).splitlines() == [
        "#  trace    symbol     outputs  claimed by  via       source",
        "-  -------  ---------  -------  ----------  --------  ----------------------",
        "0  forward  torch.sin  t0       torch       operator  user.py:2   b = sin(x)",
        "   - claim_tests: too small (size=4)",
        "1  forward  torch.exp  t1       torch       operator  user.py:3   c",
        "   - claim_tests: claim_tests has no implementation of torch.exp",
    ]


def test_a_requirement_that_is_not_met_shows_the_rows(explanation):
    check_requirements(explanation, {"torch.sin": "torch"})
    with pytest.raises(RequirementNotMet) as caught:
        check_requirements(explanation, {"torch.sin": "claim_tests"})
    assert "claim_tests: too small" in str(caught.value)
    assert "user.py:2" in str(caught.value)


def test_every_stage_is_timed():
    times = compiled(sine()).stage_times
    assert list(times)[-1] == "codegen"
    assert all(ns > 0 for ns in times.values())


def test_the_text_of_what_the_torch_executor_runs_is_a_public_path_or_a_name():
    trace = compiled(traced(lambda x: prims.convert_element_type(torch.sin(x), torch.float64), "x")).traces[
        -1
    ]
    assert "torch_convert_element_type_prim_impl(t0, torch.float64)" in text(trace)
    assert trace.python_callable()(torch.ones(4)).dtype is torch.float64


def test_a_file_that_no_directory_of_imports_has_is_named_whole(explanation):
    (first, *_) = explanation.rows
    elsewhere = dataclasses.replace(first, source=Location("/nowhere/cell_12.py", 2, "b = sin(x)"))
    table = str(dataclasses.replace(explanation, rows=(elsewhere,)))
    assert "/nowhere/cell_12.py:2   b = sin(x)" in table
