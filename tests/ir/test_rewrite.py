"""Editing traces: visitors, insertion, replacement, evaluation, prologues."""

from __future__ import annotations

import pytest
import torch

import thunder.core.rewrite
import thunder.core.transforms
from ir.building import body, building, compiled, traced
from ir.example_symbols import like, pair, toy
from thunder.base.errors import InvalidArgument, TraceError
from thunder.ir import evaluation, rewrite
from thunder.ir.evaluation import eval_trace
from thunder.ir.module_inputs import get_checks
from thunder.ir.proxies import TensorProxy
from thunder.ir.rewrite import (
    VISIT_TYPE,
    add_trace_output,
    insert_inplace,
    replace_inplace,
    trace_with_replaced_proxy_metadata,
    visitor_transform,
)
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Source, TraceCtx, tracectx
from thunder.ir.verify import check_trace
from thunder.ops import prims
from thunder.torch.namespace import ltorch


def chain() -> TraceCtx:
    return traced(lambda x: prims.cos(prims.sin(x)), "x")


def names(trace) -> list[str]:
    return [b.sym.name for b in trace.bound_symbols]


def test_the_documented_path_leads_to_the_functions():
    for name in ("VISIT_TYPE", "visitor_transform", "insert_inplace", "replace_inplace", "eval_trace"):
        assert getattr(thunder.core.transforms, name) is getattr(thunder.core.rewrite, name)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (VISIT_TYPE.INSERT_BEFORE, ["comment", "sin", "cos", "python_return"]),
        (VISIT_TYPE.INSERT_AFTER, ["sin", "comment", "cos", "python_return"]),
        (VISIT_TYPE.REPLACE, ["comment", "cos", "python_return"]),
        (VISIT_TYPE.NO_OP, ["sin", "cos", "python_return"]),
    ],
)
def test_what_a_visitor_records_stands_where_its_answer_says(answer, expected):
    def visit(bsym):
        if bsym.sym.name != "sin":
            return VISIT_TYPE.NO_OP
        prims.comment("seen")
        return answer

    trace = chain()
    new = visitor_transform(trace, visit, provenance="Visit")
    assert names(new) == expected
    assert names(trace) == ["sin", "cos", "python_return"]
    assert new.get_provenance().pss == "Visit"


def test_a_visitor_answers_with_a_member():
    with pytest.raises(InvalidArgument, match="a visitor returned None"):
        visitor_transform(chain(), lambda bsym: None)


def test_insertion_and_replacement_change_the_trace_itself():
    trace = chain()
    insert_inplace(trace, 1, lambda: prims.comment("between"))
    assert names(trace) == ["sin", "comment", "cos", "python_return"]

    def by_tan(bsym):
        new = prims.tan(*bsym.args)
        trace.bound_symbols[-1] = trace.bound_symbols[-1].from_bsym_swap_proxies(
            {bsym.flat_variableified_proxy_outs[0]: new}
        )

    replace_inplace(trace, 2, by_tan)
    assert names(trace) == ["sin", "comment", "tan", "python_return"]
    check_trace(trace)
    assert torch.equal(compiled(trace).fn(torch.ones(4)), torch.ones(4).sin().tan())


def test_evaluating_a_trace_records_it_on_other_arguments():
    inner = compiled(traced(lambda x, y: pair(torch.sin(x) + y), "x", "y")).traces[-1]
    with building("a") as (trace, a):
        first, _ = eval_trace(inner, prims.cos(a), 3.0)
        prims.python_return(first)
    check_trace(trace)
    assert names(trace) == ["cos", "sin", "add", "pair", "python_return"]
    assert torch.equal(compiled(trace).fn(torch.ones(4)), torch.ones(4).cos().sin() + 3.0 + 1)


def test_what_a_rule_computes_takes_the_name_of_the_output():
    trace = traced(lambda x, y: prims.cos(prims.add(x, y)), "x", "y")
    source = trace.bound_symbols[0].source = Source("model.py", 7)

    def by_difference(bsym):
        return prims.sub(bsym.args[0], prims.neg(bsym.args[1])) if bsym.sym is prims.add else None

    new = evaluation.rewrite(trace, by_difference, "Difference")
    neg, sub, cos, end = new.bound_symbols
    assert [b.sym.name for b in new.bound_symbols] == ["neg", "sub", "cos", "python_return"]
    assert sub.output.name == trace.bound_symbols[0].output.name == cos.args[0].name
    assert (neg.source, sub.source, cos.source) == (source, source, trace.bound_symbols[1].source)
    assert (cos.output, end.args) == (trace.bound_symbols[1].output, trace.bound_symbols[2].args)
    assert new.get_provenance().pss == "Difference"
    check_trace(new)
    x, y = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(compiled(new).fn(x, y), (x + y).cos())


def test_a_value_that_was_there_takes_the_place_of_the_output():
    trace = traced(lambda x: prims.cos(prims.neg(prims.neg(prims.sin(x)))), "x")
    negated = {}

    def without_double_negation(bsym):
        if bsym.sym is not prims.neg:
            return None
        negated[bsym.output.name] = bsym.args[0]
        return negated.get(bsym.args[0].name)

    new = evaluation.rewrite(trace, without_double_negation, "Negations")
    assert names(new) == ["sin", "neg", "cos", "python_return"]
    assert new.bound_symbols[2].args == (new.bound_symbols[0].output,)
    check_trace(new)


def test_parts_of_a_composite_take_its_place_where_one_is_replaced():
    trace = traced(lambda x: ltorch.softplus(ltorch.softplus(x)), "x")
    parts = [part.sym.name for bsym in trace.bound_symbols for part in bsym.subsymbols]
    chosen = trace.bound_symbols[0].subsymbols[-1].sym

    def again(bsym):
        return bsym.sym(*bsym.args, **bsym.kwargs) if bsym.sym is chosen else None

    assert names(evaluation.rewrite(trace, again, "Again")) == names(trace)
    new = evaluation.rewrite(trace, again, "Again", nested=True)
    assert names(new) == [*parts, "python_return"]
    check_trace(new)


def test_a_result_of_another_structure_is_an_error():
    with pytest.raises(TraceError, match="another structure"):
        evaluation.rewrite(chain(), lambda bsym: () if bsym.sym is prims.sin else None, "Wrong")


def test_evaluated_calls_keep_their_source_lines():
    inner = chain()
    inner.bound_symbols[0].source = source = Source("model.py", 7)
    with building("a") as (trace, a):
        prims.python_return(eval_trace(inner, a))
    assert trace.bound_symbols[0].source is source


def test_evaluating_needs_a_current_trace_and_all_arguments():
    with pytest.raises(TraceError, match="no trace is current"):
        eval_trace(chain(), 1)
    with tracectx(TraceCtx()), pytest.raises(InvalidArgument, match="the arguments do not match"):
        eval_trace(chain())


@pytest.fixture
def prologue() -> TraceCtx:
    check = toy("check", lambda t, *facts: None)
    object.__setattr__(check, "id", rewrite.CHECK_TENSOR)
    unpack = toy("unpack", lambda i: None)
    trace = TraceCtx(name="prologue")
    trace.star_args = True
    with tracectx(trace):
        for i, name in enumerate(("x", "t_weight")):
            p = TensorProxy(name, shape=(4,), device="cpu", dtype=torch.float32)
            trace.bound_symbols.append(unpack.bind(i, output=p))
            check(p, (4,), "cpu", torch.float32, False)
        x, w = (b.output for b in trace.bound_symbols if b.output is not None)
        prims.python_return(((x, w), ()))
    return trace


def test_checks_are_found_with_their_unpacking(prologue):
    checks = get_checks(prologue)
    assert list(checks) == ["x", "t_weight"]
    check, unpack = checks["t_weight"]
    assert check.args[1:] == ((4,), "cpu", torch.float32, False)
    assert unpack.args == (1,)
    assert isinstance(unpack, BoundSymbol)


def test_an_output_is_added_to_the_tuple_that_is_named(prologue):
    with tracectx(prologue):
        extra = TensorProxy("extra", shape=(), device="cpu", dtype=torch.float32)
    add_trace_output(prologue, extra, subindex=0)
    assert body(prologue)[-1] == "return ((x, t_weight, extra), ())"
    add_trace_output(prologue, extra, subindex=1)
    assert body(prologue)[-1] == "return ((x, t_weight, extra), (extra,))"


def test_an_output_is_added_to_a_plain_tuple_and_to_nothing_else():
    trace = traced(lambda x: (prims.sin(x),), "x")
    add_trace_output(trace, trace.args[0])
    assert body(trace)[-1] == "return (t0, x)"
    with pytest.raises(TraceError, match="does not return a tuple"):
        add_trace_output(chain(), trace.args[0])


def test_metadata_is_replaced_wherever_the_name_stands(prologue):
    new = trace_with_replaced_proxy_metadata(prologue, {"t_weight": {"shape": (2,), "dtype": torch.uint8}})
    check, unpack = get_checks(new)["t_weight"]
    assert check.args[1:] == ((2,), "cpu", torch.uint8, False)
    assert unpack.output.type_string() == "cpu ui8[2]"
    assert get_checks(prologue)["t_weight"][0].args[1] == (4,)
    computation = trace_with_replaced_proxy_metadata(chain(), {"x": {"shape": (2, 2)}})
    assert computation.args[0].shape == computation.bound_symbols[0].args[0].shape == (2, 2)
    with pytest.raises(InvalidArgument, match="the trace has no tensor 'y'"):
        trace_with_replaced_proxy_metadata(chain(), {"y": {"shape": ()}})


def test_swapping_follows_chains_and_refuses_cycles():
    trace = traced(lambda x, y: prims.add(x, {"k": [y]}["k"][0]), "x", "y")
    add, returned = trace.bound_symbols
    a, b = (like_named(trace, n) for n in ("a", "b"))
    x, y = add.flat_variableified_proxy_args
    swapped = add.from_bsym_swap_proxies({x: a, type(x)(a): b})
    assert [p.name for p in swapped.flat_proxy_args] == ["b", "y"]
    with pytest.raises(TraceError, match="leads back to itself"):
        add.from_bsym_swap_proxies({x: a, type(x)(a): x.proxy})
    only_outputs = add.from_bsym_swap_proxies({x: a, type(x)(add.output): b}, skip_inputs=True)
    assert [p.name for p in only_outputs.flat_proxy_args] == ["x", "y"]
    assert only_outputs.output.name == "b"
    nested = returned.from_bsym(args=({"out": add.output, "flat": [y.proxy]},)).from_bsym_swap_proxies({y: a})
    assert nested.args[0]["flat"][0].name == "a"


def like_named(trace: TraceCtx, name: str) -> TensorProxy:
    with tracectx(trace):
        return like(trace.args[0]).replace_name(name)


def test_fields_of_a_bound_symbol_are_read_only_and_a_copy_replaces_them():
    bsym = chain().bound_symbols[0]
    with pytest.raises(AttributeError, match="args of a bound symbol cannot be assigned"):
        bsym.args = ()
    assert BoundSymbol.from_bsym(bsym, output=None).output is None
    assert not hasattr(bsym, "inputs")
    assert not hasattr(bsym, "outputs")
    assert {bsym: 1}[bsym] == 1
    assert bsym != bsym.from_bsym()
    assert bsym.rhs == bsym.from_bsym().rhs
