"""Texts of traces that were edited: read as programs, or refused with line, column and what was expected."""

from __future__ import annotations

import functools
import os
import random
import re

import pytest
import torch

import thunder
from ir.building import compiled, final, traced
from ir.example_symbols import like, toy
from thunder.base.errors import TraceTextError
from thunder.core.trace import Printed, TraceCtx, dump, load
from thunder.ir.verify import check_trace


def program(x, y):
    h = torch.nn.functional.gelu(torch.sin(x))
    low, high = torch.split(h, 2)
    return torch.max(low, 0)[0] + high * y[:2] + 1.5


TRACE = compiled(traced(program, "x", "y")).traces[-1]
SIN = "  t0 = torch.sin(x)"


def edited(old: str, new: str) -> str:
    """The text with an edit, which has to be one."""
    printed = dump(TRACE)
    assert old in printed.text, old
    return printed.text.replace(old, new, 1)


def load_edited(old: str, new: str) -> TraceCtx:
    return load(edited(old, new), dump(TRACE).constants)


def test_an_edited_statement_runs_as_it_was_edited() -> None:
    x, y = torch.randn(4), torch.randn(4)
    found = load_edited(SIN, "  t0 = torch.cos(x)").python_callable()(x, y)
    h = torch.nn.functional.gelu(torch.cos(x))
    torch.testing.assert_close(found, h[:2].max(0)[0] + h[2:] * y[:2] + 1.5)


def test_a_statement_that_is_written_by_hand_needs_no_types() -> None:
    trace = traced(lambda x: torch.sin(x), "x")
    text = dump(trace).text.replace(
        "  return t0", "  a = ltorch.mul(t0, 2)\n  (b, c) = ltorch.split(a, 2)\n  return (b, c)"
    )
    loaded = load(text)
    assert [b.sym.name for b in loaded.bound_symbols] == ["sin", "mul", "split", "python_return"]
    assert [p.type_string() for p in loaded.output] == ["cpu f32[2]", "cpu f32[2]"]
    run = compiled(loaded).traces[-1].python_callable()
    x = torch.randn(4)
    torch.testing.assert_close(run(x), (x.sin() * 2).split(2))


#: an edit → what the error says is wrong, and what was expected
FAULTS = {
    "an unknown operator": (SIN, "  t0 = torch.sinn(x)", "'torch.sinn' is not an operator", "registered"),
    "an unknown value": (SIN, "  t0 = torch.sin(z)", "'z' is not defined here", "a value of the program"),
    "an unknown type": ('# t0: "cpu f32[4]"', '# t0: "cpu f33[4]"', "dtype 'f33'", "a type"),
    "no type": (SIN, f"  z = torch.sin(x)\n{SIN}", "z has no type, and sin has no", "a type at the end"),
    "another type": ('# x: "cpu f32[4]"', '# x: "cpu f32[5]"', "the meta function of", "check_trace accepts"),
    "an unknown fact": ('# t0: "cpu f32[4]"', '# t0: "cpu f32[4]"(shape=3)', "'shape'", "metadata"),
    "a number as text": ("1.5", "1.5.5", "not Python", "a statement"),
    "an open bracket": (SIN, "  t0 = torch.sin((x)", "not Python", "a statement"),
    "an assignment": (SIN, "  t0 = x", "not a statement of a trace", "y = operator(x)"),
    "an indentation": (SIN, "   t0 = torch.sin(x)", "indented by 3", "multiple of 2"),
    "a deeper statement": (SIN, "    t0 = torch.sin(x)", "indented by 4", "by 2"),
    "a loop": (SIN, "  for t0 in x: pass", "not a statement of a trace", "y = operator(x)"),
    "two statements": (SIN, "  t0 = torch.sin(x); t0 = x", "not have one statement", "a statement"),
    "a use after del": ("  return ", "  del x\n  return ", "x is used after its del", "check_trace"),
    "no return": ("  return ", "  # return ", "does not end with a return", "check_trace"),
    "no function": ("def computation", "class computation", "stands before the function", "def"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_error_says_line_column_and_what_was_expected(name: str) -> None:
    old, new, wrong, expected = FAULTS[name]
    text = edited(old, new)
    with pytest.raises(TraceTextError) as caught:
        load(text, dump(TRACE).constants)
    error = caught.value
    assert wrong in error.asked
    assert expected in error.expected
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= max(len(lines[error.line - 1]), 1)
    assert f"line {error.line}, column {error.column}" in str(error)


def test_the_line_and_the_column_are_those_of_the_edit() -> None:
    text = edited(SIN, "  t0 = torch.sin(z)")
    with pytest.raises(TraceTextError) as caught:
        load(text, dump(TRACE).constants)
    error = caught.value
    line = text.split("\n")[error.line - 1]
    assert line[error.column - 1 :].startswith("z")
    assert line.startswith("  t0 = torch.sin(z)")


def test_a_misspelt_name_is_corrected() -> None:
    with pytest.raises(TraceTextError, match=r"Did you mean 'ltorch\.sin'"):
        load(dump(traced(torch.sin, "x")).text.replace("= ltorch.sin(", "= ltorch.sinn(", 1))


#: expressions of Python that would run something
CODE = (
    "__import__('os').system('touch {file}')",
    "open({file!r}, 'w')",
    "(lambda: open({file!r}, 'w'))()",
    "[open({file!r}, 'w') for _ in (1,)]",
    "x.__class__.__base__.__subclasses__()",
    "torch.hub.os.mkdir({file!r})",
    "torch.nn.functional.torch.os.mkdir({file!r})",
    "f'{{open({file!r}, 1)}}'",
    "torch.load({file!r})",
    "prims.python_call(open, {file!r}, 'w')",
    "(t9 := open({file!r}, 'w'))",
    "torch.Size.__new__(open({file!r}, 'w'))",
    "dtypes.float32.__class__",
    "torch.return_types.__builtins__",
    "(yield open({file!r}, 'w'))",
    "x if open({file!r}, 'w') else x",
)


@pytest.mark.parametrize("place", [SIN, "1.5", '"cpu f32[4]"', "fact"])
@pytest.mark.parametrize("code", CODE)
def test_no_code_of_a_text_runs(code: str, place: str, tmp_path) -> None:
    file = tmp_path / "ran"
    written = code.format(file=str(file))
    edits = {
        SIN: f"  t0 = {written}",
        "1.5": written,
        '"cpu f32[4]"': written,
        "fact": written,
    }
    old = '"cpu f32[4]"' if place == "fact" else place
    new = f'"cpu f32[4]"(history={written})' if place == "fact" else edits[place]
    with pytest.raises(TraceTextError) as caught:
        load_edited(old, new)
    assert caught.value.expected
    assert not file.exists()


# -- random edits ------------------------------------------------------------------------------------------

TOKEN = re.compile(r"\w+|[^\w\s]|\s+")


@functools.cache
def texts() -> list[Printed]:
    """Texts of all kinds of traces: forward, backward, prologue, epilogue, a region, sizes as symbols."""
    written = {}

    def writing(x, w):
        written["half"] = (x @ w)[: x.shape[0] // 2]
        return written["half"].relu().sum()

    fn = thunder.jit(writing, cache="symbolic values")
    fn(torch.randn(4, 3), torch.randn(3, 3, requires_grad=True)).backward()
    listed = (thunder.last_prologue_traces, thunder.last_traces, thunder.last_backward_traces)
    traces = [traces(fn)[-1] for traces in (*listed, thunder.last_epilogue_traces)]
    region = toy("region", like, lambda x: x)
    dumped = [dump(t) for t in (TRACE, *traces, final(lambda x: region(x.exp()) * float("inf"), "x"))]
    constants = [
        {**p.constants, **t.python_ctx()} for p, t in zip(dumped, (TRACE, *traces[:3]), strict=False)
    ]
    return dumped + [Printed(str(t), c) for t, c in zip((TRACE, *traces[:3]), constants, strict=True)]


KINDS = (
    *("claimed", "prologue", "computation", "backward", "epilogue", "of a region"),
    *("printed", "printed prologue", "printed computation", "printed backward"),
)


@functools.cache
def words() -> list[str]:
    return sorted({word for printed in texts() for word in TOKEN.findall(printed.text)})


def edit(text: str, rng: random.Random) -> str:
    """Delete, repeat, exchange or replace tokens or lines, or move a line."""
    if rng.random() < 0.6:
        tokens = TOKEN.findall(text)
        at = rng.randrange(len(tokens))
        kind = rng.randrange(4)
        if kind == 0:
            tokens[at] = ""
        elif kind == 1:
            tokens[at] = rng.choice(words())
        elif kind == 2:
            tokens.insert(at, rng.choice([*words(), "\x00", "(" * 300, "é", "9" * 5000, "'", "\\", "\t"]))
        else:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        return "".join(tokens)
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines)), lines[at])
    elif kind == 2:
        lines[at] = " " * rng.randrange(4) + lines[at]
    else:
        lines[at] = lines[at][rng.randrange(len(lines[at]) + 1) :]
    return "\n".join(lines)


def loaded_or_error(text: str, printed: Printed) -> TraceCtx | TraceTextError:
    try:
        return load(text, printed.constants)
    except TraceTextError as error:
        return error


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")  # of Python's parser
@pytest.mark.parametrize("kind", KINDS)
def test_random_edits_are_accepted_or_refused_with_their_places(kind: str, whole_run: bool) -> None:
    printed = texts()[KINDS.index(kind)]
    rng = random.Random(kind)
    accepted = refused = 0
    before = set(os.listdir())
    for _ in range(5000 if whole_run else 60):
        text = printed.text
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            text = edit(text, rng)
        found = loaded_or_error(text, printed)
        if isinstance(found, TraceTextError):
            lines = text.split("\n")
            assert 1 <= found.line <= len(lines), text
            assert 1 <= found.column <= max(len(lines[found.line - 1]), 1), text
            refused += 1
        else:
            check_trace(found, check_meta=not found.star_args)
            str(found)
            accepted += 1
    assert refused, "no edit was refused"
    assert accepted, "no edit was accepted"
    assert set(os.listdir()) == before
