"""A trace that is written and read is the trace: same text, same metadata, same results.

`loaded_traces` compares each trace of a compile with what is read of its text, and lets that run; the
judge of what it computes is eager torch. A whole run takes all programs of the soundness suite.
"""

from __future__ import annotations

import collections
import dataclasses
import linecache
import pickle

import pytest
import torch

import thunder
from ir.building import building, compiled, final, renamed, text, traced, with_sources
from ir.example_symbols import like, pair, split, take, toy
from loaded_traces import running_what_is_read, written_and_read
from new_processes import run_python
from soundness.example_programs import PROGRAMS as WORLDS
from soundness.harness import call, compare
from sweeping import one_in
from thunder.base import devices, dtypes
from thunder.core.trace import dump, load
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.symbol import BoundSymbolTag, with_parts
from thunder.ir.trace import TraceCtx, TraceProvenance, TraceTag
from thunder.ops import prims

Point = collections.namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Box:
    content: object
    size: int


#: what statements have as arguments; of each, the text is read as the same value
VALUES = {
    "numbers": (
        0,
        -7,
        True,
        2.5,
        -0.0,
        float("inf"),
        -float("inf"),
        1e-300,
        complex(1, -2),
        complex(0, -0.0),
    ),
    "texts": ("a # b", 'it\'s "quoted"', "\n\t\\", b"\x00", "é", ""),
    "nothing": (None, ..., (), [], {}, ((),), [[]]),
    "slices": (slice(None), slice(1, -1, 2), range(3), range(5, 0, -1)),
    "containers": ({"a": [1, (2,)], 3: {4}}, {1, 2}, set(), frozenset({1}), frozenset()),
    "ordered": (
        collections.OrderedDict(a=1),
        collections.defaultdict(list, {"a": [1]}),
        collections.deque([1, 2], 3),
    ),
    "torch": (
        *(torch.float32, torch.strided, torch.channels_last, torch.device("cpu"), torch.device("cuda:1")),
        torch.Size([2, 3]),
    ),
    "thunder": (dtypes.float32, dtypes.bool8, devices.Device("cuda:1"), TraceTag.BACKWARD),
    "of classes": (Point(1, Point(2, 3)), Box([1], 2)),
}


def seen(value: object) -> object:
    """What two equal values have in common: with types, and each bit of a float."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, complex):
        return complex, seen(value.real), seen(value.imag)
    if isinstance(value, dict):
        return type(value), [(seen(k), seen(v)) for k, v in value.items()]
    if isinstance(value, tuple | list | collections.deque):
        return type(value), [seen(v) for v in value]
    return type(value), value


@pytest.mark.parametrize("name", VALUES)
def test_an_argument_is_read_as_the_same_value(name: str) -> None:
    trace = traced(lambda x: take(x, VALUES[name]), "x")
    assert seen(written_and_read(trace).bound_symbols[0].args[1]) == seen(VALUES[name])


def test_nan_is_read_as_nan() -> None:
    trace = traced(lambda x: take(x, float("nan")), "x")
    (value,) = written_and_read(trace).bound_symbols[0].args[1:]
    assert value != value


def test_an_object_without_literal_is_a_constant_of_the_table() -> None:
    thing = object()
    printed = dump(traced(lambda x: take(take(x, thing), thing), "x"))
    assert [value for value in printed.constants.values() if value is thing] == [thing]
    loaded = load(printed.text, printed.constants)
    assert [bsym.args[1] for bsym in loaded.bound_symbols[:2]] == [thing, thing]


def test_an_operator_that_is_not_registered_is_a_constant_and_others_are_not() -> None:
    local = toy("local", like, lambda x: x)
    printed = dump(traced(lambda x: local(torch.sin(x)), "x"))
    assert list(printed.constants) == ["local"]
    assert load(printed.text, printed.constants).bound_symbols[1].sym is local


def test_all_metadata_of_a_tensor_are_in_the_text() -> None:
    with building() as (trace,):
        x = TensorProxy("x", shape=(2, 3), device="cuda:1", dtype=torch.bfloat16, requires_grad=True)
        x.strides, x.input_offset, x.declared_leaf = (1, 2), 4, False
        x.requires_grad_since_write, x.name_hint, x.derived_strides = True, "weight", (3, 1)
        x._grad, x.history, x.distparallel_type = None, ("a", 1), "sharded"
        x.tags.add(ProxyTag.FROZEN)
        trace.args = [x]
        prims.python_return(x)
    printed = dump(trace).text
    for fact in ("requires_grad=True", "strides=(1, 2)", "ProxyTag.FROZEN", "history=('a', 1)"):
        assert fact in printed
    written_and_read(trace)


def test_the_program_keeps_its_names_tags_and_numbers() -> None:
    trace = final(lambda x: (torch.sin(x), x)[1], "x")
    trace.tags.add(TraceTag.BACKWARD)
    trace.provenance = TraceProvenance("Some Pass", 1_234_567)
    loaded = written_and_read(trace)
    assert loaded.provenance == TraceProvenance("Some Pass", 1_000_000)
    assert loaded.make_name() == trace.make_name()


def test_lines_of_a_file_that_is_gone_keep_their_text() -> None:
    trace = traced(lambda x: torch.cos(torch.sin(x)), "x")
    with_sources(trace, "gone.py", "y = x.sin()\nz = y.cos()  # 'a'\n", 1, 2)
    printed, shown = dump(trace), text(trace)
    del linecache.cache["gone.py"]
    loaded = load(printed.text, printed.constants)
    assert text(loaded) == shown
    assert loaded.bound_symbols[1].source.location.text == "z = y.cos()  # 'a'"


def test_tags_and_headers_of_statements_are_read() -> None:
    trace = traced(lambda x: torch.sin(x), "x")
    bsym = trace.bound_symbols[0].from_bsym(tags={BoundSymbolTag.RECOMPUTE_IN_BACKWARD}, header="why # so")
    trace.bound_symbols[0] = bsym
    read = written_and_read(trace).bound_symbols[0]
    assert (read.own_tags, read.header) == (bsym.own_tags, "why # so")


def test_results_of_any_structure_are_read() -> None:
    trace = traced(lambda x: (pair(x), split(x), torch.topk(x, 2), torch.max(x, 0)), "x")
    read = written_and_read(trace)
    kinds = [[type(b.output) for b in t.bound_symbols] for t in (trace, read)]
    assert kinds[0] == kinds[1]
    assert torch.return_types.topk in kinds[0]


def test_a_result_that_nothing_reads_is_the_value_that_computes_it() -> None:
    class Several(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (x * x + 1) * 2, x.exp()  # values of the same type come before both

        @staticmethod
        def backward(ctx: object, g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return g + h

    compiled = thunder.jit(lambda x: Several.apply(x)[0])
    compiled(torch.randn(3, requires_grad=True))
    trace = thunder.last_traces(compiled)[0]
    assert ", _) = Several(x)" in str(trace)
    names = [p.name for p in load(str(trace), dump(trace).constants).bound_symbols[0].output]
    assert names == [p.name for p in trace.bound_symbols[0].output]


# -- programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(8, sorted(WORLDS)))
def test_programs_run_as_what_is_read_of_their_traces(name: str) -> None:
    theirs, ours = WORLDS[name](), WORLDS[name]()
    with running_what_is_read() as read:
        program = thunder.jit(ours.program, debug_options=thunder.DebugOptions(check_traces=True))
        outcome = call(program, ours)
    assert read
    assert compare(call(theirs.program, theirs), theirs, outcome, ours) == []


def trained(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.nn.functional.gelu(x @ w)
    values, positions = torch.topk(h, 2)
    with torch.no_grad():
        scale = values.mean()
    return torch.nn.functional.layer_norm(h, h.shape[-1:]).sum() * scale + positions.sum()


def written(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y, total = (x @ w).sin(), torch.zeros(8)
    y[0] *= 2
    total.add_(x.sum(0))
    return (y * total).sum()


def counted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    return (x @ w)[: n // 2 + 1].sum() * n**-0.5 + (x > 0).nonzero().shape[0]


def cast(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ w).float().sum()


@pytest.mark.parametrize("options", [{}, {"cache": "symbolic values"}], ids=["constant", "symbolic"])
@pytest.mark.parametrize("program", [trained, written, counted, cast])
def test_forward_and_backward_run_as_what_is_read(program, options) -> None:
    def answers(fn) -> list[torch.Tensor]:
        torch.manual_seed(0)
        found = []
        for rows in (4, 6):
            x, w = torch.randn(rows, 8), torch.randn(8, 8, requires_grad=True)
            fn(x, w).backward()
            found += [x, w.grad]
        return found

    with running_what_is_read() as read:
        debug = thunder.DebugOptions(check_traces=True)
        found = answers(thunder.jit(program, debug_options=debug, **options))
    assert set(read.values()) >= {"prologue", "computation", "backward_fn"}
    for ours, theirs in zip(found, answers(program), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_is_read_gives_each_bit_of_what_was_written() -> None:
    x = torch.randn(16)
    trace = final(lambda x: torch.nn.functional.gelu(torch.sin(x)) * 3 + x.mean(), "x", shape=(16,))
    loaded = written_and_read(trace)
    torch.testing.assert_close(loaded.python_callable()(x), trace.python_callable()(x), rtol=0, atol=0)


READING = """
import pickle, sys
from thunder.core.trace import dump, load
import thunder

for text, shown in pickle.load(open(sys.argv[1], "rb")):
    trace = load(text)
    assert str(trace) == shown
    assert dump(trace).text == text
print("read")
"""


def test_a_text_is_read_in_a_process_that_has_called_no_program(tmp_path) -> None:
    """The rows of functions without a row, and kernels that reuse memory, exist once a program calls them."""

    def program(x, w):
        h = torch.special.bessel_j0(x).exp() + torch.special.i1e(torch.nn.functional.dropout(x @ w))
        return (h.relu() * 2).sum() + torch.special.airy_ai(x).sum()

    fn = thunder.jit(program, executors=[])
    fn(torch.randn(300, 300), torch.randn(300, 300, requires_grad=True)).backward()
    traces = [*thunder.last_traces(fn), *thunder.last_backward_traces(fn)]
    printed = [dump(trace) for trace in traces]
    assert [dict(p.constants) for p in printed] == [{}] * len(traces)
    file = tmp_path / "texts"
    file.write_bytes(pickle.dumps([(p.text, str(t)) for p, t in zip(printed, traces, strict=True)]))
    run = run_python("-c", READING, str(file), check=True)
    assert run.stdout == "read\n"


def test_what_is_read_is_compiled_as_what_was_written() -> None:
    trace = traced(lambda x: torch.nn.functional.gelu(torch.sin(x)), "x")
    expected, found = compiled(trace).traces[-1], compiled(written_and_read(trace)).traces[-1]
    assert text(found) == text(expected)


def test_what_a_trace_prints_is_read_with_its_namespace() -> None:
    local = toy("local", like, lambda x: x + 1)
    trace = final(lambda x: local(torch.topk(torch.sin(x), 2)[0]) * 2, "x")
    loaded = load(str(trace), trace.python_ctx())
    assert str(loaded) == str(trace)
    x = torch.randn(4)
    assert torch.equal(loaded.python_callable()(x), trace.python_callable()(x))


def test_a_trace_without_types_and_decompositions_has_those_of_its_operators() -> None:
    trace = traced(lambda x: torch.nn.functional.gelu(torch.sin(x)) + 1, "x")
    bare = "\n".join(
        line.partition("  # ")[0] if line.lstrip().startswith("t") else line
        for line in text(trace, depth=1).splitlines()
    )
    loaded = load(bare)
    assert [b.sym for b in loaded.bound_symbols] == [b.sym for b in trace.bound_symbols]
    assert [b.output.type_string() for b in loaded.bound_symbols[:-1]] == ["cpu f32[4]"] * 3
    assert [b.sym.id for b in with_parts(loaded.bound_symbols)] == [
        b.sym.id for b in with_parts(trace.bound_symbols)
    ]


def test_a_loaded_trace_takes_no_name_of_the_text() -> None:
    trace = renamed(traced(lambda x: torch.sin(x), "x"), t0="value")
    loaded = written_and_read(trace)
    assert not loaded.is_free("value")
    assert isinstance(loaded, TraceCtx)
