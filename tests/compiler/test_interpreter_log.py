"""The printed log of the interpreter."""

from __future__ import annotations

import sys

import pytest
import torch

import thunder


def doubled(x):
    return x * 2


@pytest.fixture(scope="module")
def compiled():
    options = thunder.DebugOptions(record_interpreter_history=True)
    compiled = thunder.jit(lambda x: doubled(x), debug_options=options)
    compiled(torch.ones(2))
    return compiled


def printed(compiled, **settings):
    lines = []
    thunder.print_last_interpreter_log(compiled, print_fn=lines.append, **settings)
    return lines


def test_source_lines_are_before_their_instructions_on_request(compiled):
    lines = printed(compiled)
    (at,) = [i for i, line in enumerate(lines) if line.endswith("return x * 2")]
    assert "BINARY_OP" in "\n".join(lines[at + 1 :])
    assert not [line for line in printed(compiled, print_source_code=False) if "return x * 2" in line]


def test_depth_is_shown_and_limited(compiled):
    lines = printed(compiled)
    (line,) = [line for line in lines if line.endswith("return x * 2")]
    assert line.startswith("  ")
    assert all(not line.startswith(" ") for line in printed(compiled, indent=False))
    assert not [line for line in printed(compiled, max_depth=0) if line.endswith("return x * 2")]


def test_source_lines_are_coloured_on_a_terminal(compiled, capsys, monkeypatch):
    thunder.print_last_interpreter_log(compiled)
    assert "\x1b[" not in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    thunder.print_last_interpreter_log(compiled)
    assert "\x1b[36m" in capsys.readouterr().out
    thunder.print_last_interpreter_log(compiled, use_colors=False)
    assert "\x1b[" not in capsys.readouterr().out
