"""The text of traces, line by line. The judge is the text that stands here."""

from __future__ import annotations

import enum

import torch

from ir.building import body, building, compiled, final, renamed, text, traced, with_sources
from ir.example_symbols import like, pair, split, take, toy
from thunder.base import dtypes
from thunder.base.tags import OpTags
from thunder.ir.proxies import CollectionProxy, TensorProxy
from thunder.ir.symbol import Symbol, bsym_header
from thunder.ir.trace import TraceCtx, TraceProvenance
from thunder.ops import prims
from thunder.passes.del_last_used import del_last_used


class Opaque:
    pass


Color = enum.Enum("Color", ["RED", "BLUE"])

MODEL = "def f(x, w):\n    y = torch.sin(x)\n    return y + w\n"


def test_a_compiled_function_prints_decorators_inputs_sources_decompositions_and_dels():
    trace = with_sources(traced(lambda x, w: torch.sin(x) + w, "x", "w"), "model.py", MODEL, 2, 3, 3)
    assert text(compiled(renamed(renamed(trace, t0="y"), t1="t0")).traces[-1]) == (
        "# Constructed by Delete Last Used\n"
        "import torch\n"
        "from thunder.executors.torchex import no_autocast\n"
        "\n"
        "@torch.no_grad()\n"
        "@no_autocast\n"
        "def computation(x, w):\n"
        '  # x: "cpu f32[4]"\n'
        '  # w: "cpu f32[4]"\n'
        "\n"
        "  # model.py:2: \t    y = torch.sin(x)\n"
        '  y = torch.sin(x)  # y: "cpu f32[4]"\n'
        '    # y = ltorch.sin(x)  # y: "cpu f32[4]"\n'
        '      # y = prims.sin(x)  # y: "cpu f32[4]"\n'
        "  del x\n"
        "\n"
        "  # model.py:3: \t    return y + w\n"
        '  t0 = torch.add(y, w, alpha=1)  # t0: "cpu f32[4]"\n'
        '    # t0 = ltorch.add(y, w, alpha=1)  # t0: "cpu f32[4]"\n'
        '      # t0 = prims.add(y, w)  # t0: "cpu f32[4]"\n'
        "  del y, w\n"
        "  return t0"
    )


def test_the_first_line_tells_the_pass_and_its_whole_milliseconds():
    trace = traced(lambda x: x, "x")
    trace.set_provenance(TraceProvenance("Some Pass", 2_999_999))
    assert trace.python().splitlines()[0] == "# Constructed by Some Pass (took 2 milliseconds)"
    assert trace.python(include_timing=False).splitlines()[0] == "# Constructed by Some Pass"
    trace.set_provenance(TraceProvenance("Some Pass"))
    assert trace.python().splitlines()[0] == "# Constructed by Some Pass"


def test_imports_are_sorted_by_module_and_name_only_what_statements_use():
    def program(x):
        return prims.clone(torch.nn.functional.gelu(take(x, dtypes.float32)))

    lines = text(traced(program, "x")).splitlines()
    assert lines[: lines.index("")] == [
        "import thunder.core.dtypes as dtypes",
        "import thunder.core.prims as prims",
        "import thunder.torch as ltorch",
        "import torch",
        "from thunder.executors.torchex import no_autocast",
    ]


def test_a_method_imports_tensor_and_a_submodule_of_torch_is_imported():
    method = Symbol(name="tanh", id="torch.Tensor.tanh", call_path="torch.Tensor.tanh")
    function = Symbol(name="relu", id="torch.nn.functional.relu", call_path="torch.nn.functional.relu")
    with building("x") as (trace, x):
        y, z = like(x), like(x)
        trace.bound_symbols = [method.bind(x, output=y), function.bind(y, output=z)]
        prims.python_return(z)
    assert text(trace).splitlines() == [
        "import torch",
        "from torch import Tensor",
        "import torch.nn.functional",
        "from thunder.executors.torchex import no_autocast",
        "",
        "@torch.no_grad()",
        "@no_autocast",
        "def computation(x):",
        '  # x: "cpu f32[4]"',
        '  t0 = Tensor.tanh(x)  # t0: "cpu f32[4]"',
        '  t1 = torch.nn.functional.relu(t0)  # t1: "cpu f32[4]"',
        "  return t1",
    ]


def test_decorators_can_be_left_out_and_depend_on_the_mode_of_the_trace():
    trace = traced(lambda x: x, "x")
    assert "@" not in trace.python(include_decorators=False)
    trace.grad_enabled = True
    assert "\n\n@no_autocast\ndef computation(x):" in trace.python()


def test_an_input_that_nobody_reads_is_called_unused():
    lines = text(traced(lambda x, y: y, "x", "y")).splitlines()
    assert lines[-4:] == ["def computation(x, y):", "  # _ (unused)", '  # y: "cpu f32[4]"', "  return y"]


def test_nested_results_that_nobody_reads_print_an_underscore_which_is_deleted():
    def program(x):
        a, _ = split(x)
        return a

    assert body(final(program, "x")) == ["(t0, (_, _, _)) = split(x)", "del x, _", "return t0"]


def test_an_underscore_that_holds_no_tensor_is_not_deleted():
    value_last = toy("value_last", lambda x: (like(x), like(x), None), lambda x: (x, x, None))

    def program(x):
        return value_last(x)[0]

    assert body(final(program, "x")) == ["(t0, _, _) = value_last(x)", "del x", "return t0"]


def test_an_underscore_alone_is_deleted_on_its_own_line():
    draw = toy("draw", lambda x: like(x), lambda x: torch.rand_like(x), tags=frozenset({OpTags.RANDOM_OP}))
    assert body(final(lambda x: (draw(x), x)[1], "x")) == [
        '_ = draw(x)  # t0: "cpu f32[4]"',
        "del _",
        "return x",
    ]


def test_a_statement_whose_result_is_deleted_elsewhere_keeps_its_name():
    with building("x") as (trace, x):
        a, _ = pair(x)
        b, _ = pair(x)
        prims.python_del(a)
        prims.python_return(b)
    assert body(trace) == ["(t0, _) = pair(x)", "(t2, _) = pair(x)", "del t0", "return t2"]


def test_a_statement_without_result_has_no_left_side():
    nothing = toy("nothing", lambda x: None, lambda x: None)
    empty = toy("empty", lambda x: (), lambda x: ())

    def program(x):
        nothing(x)
        empty(x)
        return x

    assert body(traced(program, "x")) == ["nothing(x)", "empty(x)", "return x"]


def test_a_tuple_of_one_keeps_its_comma():
    single = toy("single", lambda x: (like(x),), lambda x: (x,))
    assert body(traced(lambda x: single(x), "x")) == ["(t0,) = single(x)", "return (t0,)"]


def test_a_fusion_prints_its_results_as_a_list_and_its_region_below():
    inner = traced(lambda x: pair(x), "x").bound_symbols[0]
    fusion = Symbol(name="myFusion0", id="my.myFusion0", is_fusion=True, python_impl=lambda x: [x, x])
    with building("x") as (trace, x):
        trace.names.update({"t0", "t1"})
        trace.bound_symbols.append(fusion.bind(x, output=list(inner.output), subsymbols=(inner,)))
        prims.python_return(tuple(inner.output))
    assert body(trace, -1) == ["[t0, t1] = myFusion0(x)", "  # (t0, t1) = pair(x)", "return (t0, t1)"]


def test_objects_without_a_literal_are_numbered_in_the_order_of_the_text_at_every_depth():
    first, second, third = Opaque(), Color.RED, Opaque()
    inner = toy("inner", lambda x, o: like(x), lambda x, o: x)
    outer = toy("outer", lambda x: inner(x, third), lambda x: x, is_prim=False)

    def program(x):
        return take(take(outer(take(x, first)), second), first)

    whole = body(traced(program, "x"), -1)
    assert [line.split("#")[0].strip() for line in whole if not line.startswith("  ")] == [
        "t0 = take(x, _Opaque_0)",
        "t1 = outer(t0)",
        "t2 = take(t1, _Color_RED_1)",
        "t3 = take(t2, _Opaque_0)",
        "return t3",
    ]
    assert whole[2] == '  # t1 = inner(t0, _Opaque_2)  # t1: "cpu f32[4]"'


def test_an_object_whose_name_a_value_has_gets_another_one():
    def program(take_0):
        return take(take_0, int)

    trace = traced(program, "take")
    assert body(trace)[0] == 't0 = take_0(take, int)  # t0: "cpu f32[4]"'
    assert trace.python_callable()(torch.ones(4)).tolist() == [1.0] * 4


def test_a_header_prints_above_its_statement():
    with building("x") as (trace, x):
        with bsym_header("Created by a transform\nin two lines"):
            y = prims.clone(x)
        prims.python_return(y)
    assert body(trace) == [
        "# Created by a transform",
        "# in two lines",
        't0 = prims.clone(x)  # t0: "cpu f32[4]"',
        "return t0",
    ]
    trace.bound_symbols[0].header = ["assigned"]
    assert body(trace)[0] == "# assigned"


def test_a_source_line_is_printed_when_it_differs_from_the_last():
    trace = traced(lambda x: x.sin().cos().exp(), "x")
    with_sources(trace, "other.py", "a\nb\n", 1, 1, 2)
    assert [line for line in body(trace) if "ltorch" not in line] == [
        "",
        "# other.py:1: \ta",
        "",
        "# other.py:2: \tb",
        "return t2",
    ]


def test_print_and_comment_are_statements_of_python():
    def program(x):
        prims.comment("two\nlines")
        prims.python_print(x)
        return x

    assert body(traced(program, "x")) == ["# two", "# lines", "print(x)", "return x"]


def test_a_return_of_several_arguments_prints_them_without_parentheses():
    with building("x", "y") as (trace, x, y):
        prims.python_return({"output": x, "flat_args": [x, y]}, ((x,), ()))
    assert body(trace) == ["return {'output': x, 'flat_args': [x, y]}, ((x,), ())"]


def test_unpacking_a_collection_prints_targets_and_their_types():
    with building("x") as (trace, x):
        saved, inner = CollectionProxy("saved_for_backward"), CollectionProxy()
        trace.args = [saved]
        a, b = like(x), like(x)
        bsyms = [
            prims.unpack_sequence.bind(saved, 2, output=(inner, None)),
            prims.unpack_sequence.bind(inner, 2, output=(a, b)),
        ]
        trace.bound_symbols = bsyms
        prims.clear_mutable_collection(inner)
        prims.python_return(a)
    assert body(trace) == [
        "C0, _, = saved_for_backward",
        '# C0: "Collection"',
        "# None",
        "t1, _, = C0",
        '# t1: "cpu f32[4]"',
        "# None",
        "clear_mutable_collection(C0)",
        "return t1",
    ]


def test_targets_that_would_pass_column_80_go_to_the_next_line():
    with building("x") as (trace, x):
        saved = CollectionProxy("saved")
        trace.args = [saved]
        elements = tuple(TensorProxy(f"a_rather_long_name_{i}", like=x) for i in range(5))
        trace.bound_symbols = [prims.unpack_sequence.bind(saved, 5, output=elements)]
        prims.python_return(elements)
    lines = text(trace).splitlines()
    start = next(i for i, line in enumerate(lines) if "a_rather" in line)
    assert lines[start : start + 2] == [
        "  a_rather_long_name_0, a_rather_long_name_1, a_rather_long_name_2, \\",
        "  a_rather_long_name_3, a_rather_long_name_4, = saved",
    ]
    assert max(map(len, lines[start : start + 2])) <= 80


def test_an_empty_collection_is_told_in_a_comment():
    with building() as (trace,):
        saved = CollectionProxy("C1")
        trace.args = [saved]
        trace.bound_symbols = [prims.unpack_sequence.bind(saved, 0, output=())]
        prims.python_return(None)
    assert body(trace) == ["# C1 (empty sequence)", "return None"]


def test_collections_are_cleared_on_the_line_before_their_del():
    with building("x") as (trace, x):
        saved = CollectionProxy("saved")
        trace.args = [saved]
        a = like(x)
        trace.bound_symbols = [prims.unpack_sequence.bind(saved, 1, output=(a,))]
        prims.python_return(a)
    assert body(del_last_used(trace, clear_mutable_collections=True)) == [
        "t0, = saved",
        '# t0: "cpu f32[4]"',
        "clear_mutable_collection(saved)",
        "del saved",
        "return t0",
    ]


def test_an_empty_program_passes():
    assert text(TraceCtx()).splitlines()[-2:] == ["def computation():", "  pass"]


def test_no_line_ends_in_blanks():
    trace = with_sources(traced(lambda x: split(x.sin()), "x"), "blank.py", "\n\n", 1, 2)
    assert [line for line in text(trace).splitlines() if line != line.rstrip()] == []
