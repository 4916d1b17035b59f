"""The verifier: it accepts what the passes make, and rejects each kind of malformed trace with the lines
around it.
"""

from __future__ import annotations

import pytest
import torch

from ir.building import building, compiled, traced
from ir.example_symbols import like, pair, split, take, toy
from thunder.base.errors import TraceError
from thunder.ir.proxies import CollectionProxy, TensorProxy
from thunder.ir.trace import Source, TraceCtx, TraceProvenance
from thunder.ir.verify import check_trace
from thunder.ops import prims


def fault_of(trace: TraceCtx, **options) -> str:
    with pytest.raises(TraceError) as caught:
        check_trace(trace, **options)
    return caught.value.facts["fault"]


def chain() -> TraceCtx:
    """t0 = sin(x); t1 = cos(t0); t2 = exp(t1); return t2"""
    return traced(lambda x: prims.exp(prims.cos(prims.sin(x))), "x")


def test_every_trace_of_the_pipeline_is_accepted():
    trace = traced(lambda x, y: (split(x.sin())[0] + y, x), "x", "y")
    for made in compiled(trace).traces:
        check_trace(made)


def test_use_before_definition():
    trace = chain()
    trace.bound_symbols[0], trace.bound_symbols[1] = trace.bound_symbols[1], trace.bound_symbols[0]
    assert fault_of(trace) == "t0 is used before it is defined"


def test_use_of_a_name_that_nobody_defines():
    trace = chain()
    del trace.bound_symbols[1]
    assert fault_of(trace) == "t1 is used before it is defined"


def test_use_after_del():
    trace = chain()
    t0 = trace.bound_symbols[0].output
    trace.bound_symbols.insert(1, prims.python_del.bind(t0, output=None))
    assert fault_of(trace) == "t0 is used after its del"


def test_del_twice():
    trace = chain()
    delete = prims.python_del.bind(trace.bound_symbols[0].output, output=None)
    trace.bound_symbols[2:2] = [delete, delete]
    assert fault_of(trace) == "t0 is used after its del"


def test_two_definitions_of_one_name():
    trace = chain()
    trace.bound_symbols.insert(1, trace.bound_symbols[0])
    assert fault_of(trace) == "t0 is defined twice"


def test_an_input_that_is_defined_again():
    trace = chain()
    trace.bound_symbols.insert(0, prims.sin.bind(trace.bound_symbols[0].output, output=trace.args[0]))
    trace.args.append(trace.bound_symbols[1].output)
    assert fault_of(trace) == "x is defined twice"


def test_a_program_without_return():
    trace = chain()
    del trace.bound_symbols[-1]
    assert fault_of(trace) == "the program does not end with a return"
    assert fault_of(TraceCtx()) == "the program does not end with a return"


def test_statements_behind_the_return():
    trace = chain()
    trace.bound_symbols.append(prims.comment.bind("text", output=None))
    assert fault_of(trace) == "statements follow the return"


def test_a_result_that_is_never_computed():
    trace = chain()
    with building("z") as (_, z):
        trace.bound_symbols[-1] = prims.python_return.bind(z, output=None)
    assert fault_of(trace) == "z is used before it is defined"


def test_an_unpacking_with_the_wrong_number_of_targets():
    with building("x") as (trace, x):
        collection = CollectionProxy("C0")
        trace.args = [collection]
        trace.bound_symbols = [prims.unpack_sequence.bind(collection, 3, output=(like(x), like(x)))]
        prims.python_return(None)
    assert fault_of(trace) == "3 elements are unpacked into 2 targets"


@pytest.mark.parametrize(
    "change", [{"shape": (5,)}, {"dtype": torch.float64}, {"device": "meta"}], ids=lambda c: next(iter(c))
)
def test_metadata_that_the_meta_function_does_not_give(change):
    trace = chain()
    first = trace.bound_symbols[0]
    wrong = TensorProxy("t0", like=first.output, **change)
    trace.bound_symbols[0] = first.from_bsym(output=wrong)
    assert fault_of(trace) == (
        f"the meta function of prims.sin returns cpu f32[4], and the trace has {wrong.type_string()}"
    )


def test_a_number_of_results_that_the_meta_function_does_not_give():
    trace = traced(lambda x: pair(x)[0], "x")
    trace.bound_symbols[0] = trace.bound_symbols[0].from_bsym(output=trace.bound_symbols[0].output[0])
    assert fault_of(trace) == (
        "the meta function of toys.pair returns cpu f32[4], cpu f32[4], and the trace has cpu f32[4]"
    )


def test_arguments_that_the_meta_function_refuses():
    trace = chain()
    trace.bound_symbols[0] = trace.bound_symbols[0].from_bsym(args=(trace.args[0], 2))
    assert fault_of(trace).startswith("the meta function of prims.sin refuses the arguments: ")


def test_a_claimed_call_is_judged_by_what_it_stands_for():
    trace = compiled(chain()).traces[-1]
    claimed = next(b for b in trace.bound_symbols if b.subsymbols)
    wrong = claimed.subsymbols[0].from_bsym(output=TensorProxy("t0", like=claimed.output, shape=(9,)))
    trace.bound_symbols[0] = claimed.from_bsym(subsymbols=(wrong,))
    assert "the meta function of prims.sin returns cpu f32[4]" in fault_of(trace)


def test_a_decomposition_that_reads_what_its_call_does_not_take():
    with building("x", "y") as (trace, x, y):
        secret = toy("secret", lambda x: prims.add(x, y), is_prim=False)
        prims.python_return(secret(x))
    assert fault_of(trace) == "y is used inside secret, which neither takes nor computes it"


def test_a_decomposition_that_does_not_compute_the_output():
    with building("x") as (trace, x):
        outer = toy("outer", lambda x: prims.sin(x), is_prim=False)
        y = outer(x)
        call, z = trace.bound_symbols[0], y.replace(name="z")
        trace.bound_symbols[0] = call.from_bsym(output=z, subsymbols=call.subsymbols)
        prims.python_return(y.replace(name="z"))
    assert fault_of(trace, check_meta=False) == (
        "z is an output of outer, and its decomposition does not compute it"
    )


def test_the_error_names_the_pass_and_shows_the_program_around_the_fault():
    trace = chain()
    trace.set_provenance(TraceProvenance("Careless Pass", 1))
    trace.bound_symbols[1].source = Source("model.py", 7)
    trace.bound_symbols.insert(1, prims.python_del.bind(trace.bound_symbols[0].output, output=None))
    with pytest.raises(TraceError) as caught:
        check_trace(trace)
    message = str(caught.value)
    assert message.splitlines()[0] == (
        "the trace made by Careless Pass is malformed: t0 is used after its del"
    )
    assert "model.py:7" in message
    assert '→ t1 = prims.cos(t0)  # t1: "cpu f32[4]"' in message
    assert "  del t0" in message
    with pytest.raises(TraceError, match="made by MyTransform is malformed"):
        check_trace(trace, stage="MyTransform")


def test_a_prologue_may_read_its_arguments():
    with building("x") as (trace, x):
        trace.star_args = True
        trace.args = []
        trace.bound_symbols = [take.bind(CollectionProxy("args"), 0, output=x)]
        prims.python_return(x)
    check_trace(trace, check_meta=False)


def test_the_meta_functions_of_checked_calls_are_not_asked_again():
    asked = []
    noted = toy("noted", lambda x: (asked.append(x.name), like(x))[1])
    trace = traced(lambda x: noted(noted(x)), "x")
    asked.clear()
    checked = set()
    for _ in range(2):
        check_trace(trace, checked=checked)
    assert asked == ["x", "t0"]
    trace.bound_symbols[1] = noted.bind(
        trace.bound_symbols[0].output, output=TensorProxy("t1", like=trace.args[0], shape=(5,))
    )
    assert "returns" in fault_of(trace, checked=checked)
