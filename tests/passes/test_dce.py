"""Dead code elimination drops what nobody reads, and nothing that has an effect."""

from __future__ import annotations

import pytest
import torch

from ir.building import body, building, traced
from ir.example_symbols import like, toy
from thunder.base.tags import OpTags
from thunder.ops import prims
from thunder.ops.prims.utility import python_del
from thunder.passes.dce import dce
from thunder.passes.keep_errors import keep_errors
from thunder.passes.liveness import Liveness, liveness_of


def names(trace) -> list[str]:
    return [b.sym.name for b in trace.bound_symbols]


def test_calls_that_nobody_reads_are_dropped_transitively():
    def program(x):
        prims.cos(prims.sin(x))
        return prims.exp(x)

    trace = dce(traced(program, "x"))
    assert body(trace) == ['t2 = prims.exp(x)  # t2: "cpu f32[4]"', "return t2"]
    assert trace.get_provenance().pss == "Dead Code Elimination"
    assert trace.get_provenance().took_ns > 0


@pytest.mark.parametrize("tag", ["DONT_DCE", "RANDOM_OP", "IN_PLACE", "CTX_MANAGER_ENTER_EXIT_OP"])
@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in its decomposition"])
def test_a_call_with_an_effect_stays_and_so_does_what_it_reads(tag, inside):
    effect = toy("effect", like, tags=frozenset({getattr(OpTags, tag)}))
    outer = toy("outer", lambda x: effect(x), is_prim=False)

    def program(x):
        (outer if inside else effect)(prims.sin(x))
        return x

    assert names(dce(traced(program, "x"))) == ["sin", "outer" if inside else "effect", "python_return"]


def test_prints_and_comments_stay():
    def program(x):
        prims.comment("text")
        prims.python_print(prims.sin(x))
        return x

    assert names(dce(traced(program, "x"))) == ["comment", "sin", "python_print", "python_return"]


def test_needed_proxies_count_as_read():
    kept = []

    def program(x):
        kept.append(prims.sin(x))
        prims.cos(x)
        return x

    trace = traced(program, "x")
    assert names(dce(trace, needed_proxies=kept)) == ["sin", "python_return"]


def test_a_del_is_no_reader_and_loses_what_is_not_computed_any_more():
    with building("x") as (trace, x):
        a, b = prims.sin(x), prims.cos(x)
        c = prims.exp(b)
        prims.python_del(a)
        prims.python_del(a.replace(name="t0"), b)
        prims.python_return(c)
    assert names(dce(trace)) == ["cos", "exp", "python_del", "python_return"]
    assert [p.name for p in dce(trace).bound_symbols[2].args] == ["t1"]


def test_the_trace_that_is_given_does_not_change():
    trace = traced(lambda x: (prims.sin(x), x)[1], "x")
    dce(trace)
    assert names(trace) == ["sin", "python_return"]


def test_random_numbers_come_as_in_eager():
    draw = toy("draw", like, lambda x: torch.rand_like(x), tags=frozenset({OpTags.RANDOM_OP}))

    def program(x):
        draw(x)
        return draw(x)

    fn = dce(traced(program, "x")).python_callable()
    torch.manual_seed(0)
    expected = [torch.rand(4), torch.rand(4)][1]
    torch.manual_seed(0)
    assert torch.equal(fn(torch.ones(4)), expected)


# -- liveness


def released(x):
    """Compute two values of which one is read and one is only deleted."""
    python_del(prims.sin(x))
    return prims.cos(x)


def test_a_release_does_not_make_its_operand_live():
    trace = traced(released, "x")
    dead, release, live, end = liveness_of(trace.bound_symbols)
    assert (dead, release, live, end) == (Liveness.DEAD, Liveness.RELEASE, Liveness.LIVE, Liveness.LIVE)


def test_a_root_is_a_statement_that_would_be_dead():
    bsyms = traced(released, "x").bound_symbols
    assert liveness_of(bsyms, is_root=lambda b: b.sym.name in ("sin", "cos"))[0] is Liveness.ROOT
    assert liveness_of(bsyms, is_root=lambda b: b.sym.name in ("sin", "cos"))[2] is Liveness.LIVE
    assert liveness_of(bsyms, needed=[bsyms[0].output.name])[0] is Liveness.LIVE


def test_the_error_of_a_call_whose_result_is_only_deleted_is_kept():
    def program(x):
        python_del(torch.linalg.cholesky(x))
        return prims.cos(x)

    trace = keep_errors(traced(program, "x", shape=(2, 2)))
    assert names(trace) == ["cholesky", "sink", "python_del", "cos", "python_return"]
    assert names(dce(trace))[0] == "cholesky"
