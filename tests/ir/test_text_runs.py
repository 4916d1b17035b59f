"""The text of a trace is the program: running it equals eager, in this process and in any other."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch

from ir.building import building, final, text, traced
from ir.example_symbols import like, split, take, toy
from new_processes import another_seed, run_python
from thunder.base.errors import TraceError
from thunder.ops import prims

PROGRAMS = {
    "chain": lambda x, y: torch.sin(x) + y * 2,
    "several results": lambda x, y: (x + y, [x - y, {"k": x * y}]),
    "an input returned": lambda x, y: (x, y + 1),
    "a constant": lambda x, y: (None, 3.5, x * float("inf")),
    "unread results": lambda x, y: split(x)[0] + y,
    "objects": lambda x, y: take(x, torch.float64) + take(y, PROGRAMS_OBJECT),
    "activation": lambda x, y: torch.nn.functional.gelu(x) + torch.nn.functional.silu(y),
}
PROGRAMS_OBJECT = object()


def run_text(trace, *inputs):
    """What `exec(str(trace))` defines, called."""
    namespace = trace.python_ctx()
    exec(str(trace), namespace)
    return namespace[trace.name](*inputs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_running_the_text_equals_eager(name):
    x, y = torch.randn(4), torch.randn(4)
    trace = final(PROGRAMS[name], "x", "y")
    torch.testing.assert_close(run_text(trace, x, y), trace.python_callable()(x, y), rtol=0, atol=0)
    if not name.startswith(("unread", "objects")):  # toys know no tensors
        torch.testing.assert_close(run_text(trace, x, y), PROGRAMS[name](x, y), rtol=0, atol=0)


def test_the_context_holds_what_the_text_does_not_import_and_nothing_else():
    trace = final(lambda x: take(torch.sin(x), PROGRAMS_OBJECT), "x")
    assert set(trace.python_ctx()) == {"take", "_object_0"}


def test_the_program_runs_without_grad_and_with_autocast_off():
    seen = []
    look = toy(
        "look", like, lambda x: seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
    )
    fn = final(lambda x: (look(x), x)[1], "x").python_callable()
    look_twice = traced(lambda x: look(x), "x").python_callable()
    with torch.autocast("cpu"):
        look_twice(torch.ones(4))
        assert torch.is_autocast_enabled("cpu")
    fn(torch.ones(4))  # nobody reads its result, but it might raise
    assert seen == [(False, False)] * 2
    assert torch.is_grad_enabled()


def test_a_traceback_shows_the_line_of_the_trace():
    fail = toy("fail", like, lambda x: x.reshape(7))
    fn = traced(lambda x: fail(x), "x").python_callable()
    with pytest.raises(RuntimeError) as caught:
        fn(torch.ones(4))
    assert any(
        't0 = fail(x)  # t0: "cpu f32[4]"' in (frame.line or "") for frame in traceback.extract_tb(caught.tb)
    )


def test_the_text_leaves_linecache_with_the_function():
    def listed():
        return {name for name in linecache.cache if name.startswith("<thunder.computation")}

    before = listed()
    fn = traced(lambda x: x.sin(), "x").python_callable()
    assert len(listed() - before) == 1
    del fn
    assert listed() - before == set()


def test_saving_a_trace_writes_its_whole_text(tmp_path):
    trace = final(lambda x: x.sin(), "x")
    trace.save_trace(tmp_path / "trace.py")
    assert (tmp_path / "trace.py").read_text() == str(trace)


def test_printing_does_not_change_what_is_printed_later():
    trace = traced(lambda x: take(take(x, object()), object()), "x")
    shallow_first = (text(trace, 1), text(trace, -1))
    assert (text(trace, 1), text(trace, -1)) == shallow_first


def test_nothing_is_recorded_into_a_complete_trace():
    with building("x") as (trace, x):
        trace.mark_complete()
        with pytest.raises(TraceError, match="python_return was recorded into a trace that is complete"):
            prims.python_return(x)


SCRIPT = """
import sys; sys.path.insert(0, {tests!r})
import torch
from ir.building import compiled, text, traced
from ir.example_symbols import take, split

class Thing: pass

def program(x, y):
    a = take(x, {{"b", "a", "c", "d"}})
    b = take(a, Thing())
    c, _ = split(b)
    return c + y, frozenset({{1, 2, 3}})

for trace in compiled(traced(program, "x", "y")).traces:
    print(text(trace))
"""


def test_the_text_is_the_same_in_every_process():
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]))
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    another = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "PYTHONHASHSEED": another_seed()},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = run_python("-c", script, env=environment, check=True).stdout
    assert "take(x, {'a', 'b', 'c', 'd'})" in printed
    assert printed == another.stdout
