"""What runs round a forward is in the printed program, which alone has the effects of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder


def _leaf(*shape: int) -> torch.Tensor:
    return torch.linspace(0.5, 2.0, shape[0]).reshape(shape).requires_grad_()


def _plain(n: int) -> torch.Tensor:
    return torch.arange(float(n))


def _written(x, memory):
    memory.add_(x * 2)
    return memory.view(-1), x * 3


def _written_twice(x, memory):
    y = x.exp()
    memory[1:] = y[1:]
    memory.mul_(2)
    return y


def _requested(x, memory):
    memory.requires_grad_()
    return torch.autograd.grad((memory * memory).sum(), memory)


def _requested_alone(x, memory):
    memory.requires_grad_()
    return 3


def _region(x, memory):
    with torch.enable_grad():
        return (x * 2).sum()


def _region_that_writes(x, memory):
    memory += 1
    with torch.enable_grad():
        y = (x * memory).sum()
    return y, memory[1:]


def _mode_left_on(x, memory):
    torch.set_grad_enabled(True)
    return x * memory


#: program of a leaf and a plain tensor → the statements of its connected trace that stand round the forward
PROGRAMS: dict[Callable[..., Any], list[str]] = {
    _written: ["(t1, t4) = differentiable(x, memory)", "(t1, memory, grad_enabled=True)"],
    _written_twice: ["differentiable(x, memory)", ", memory, grad_enabled=True)"],
    _requested: ["memory.requires_grad_()\n", "(t6,) = computation(x, memory)\n"],
    _requested_alone: ["memory.requires_grad_()\n", "  computation(x, memory)\n"],
    _region: ["with enable_grad():\n    ", "t1 = differentiable(x, memory)\n"],
    _region_that_writes: ["with enable_grad():\n    ", ", memory, grad_enabled=False)"],
    _mode_left_on: ["differentiable(x, memory)", "set_grad_enabled(True)"],
}
MODES = {_region: torch.no_grad, _region_that_writes: torch.no_grad, _mode_left_on: torch.no_grad}


def _outcome(fn: Callable[..., Any], program: Callable[..., Any]) -> list[Any]:
    """Return what a call returns, what it leaves in its arguments, and the gradients."""
    x, memory = _leaf(3), _plain(3)
    with MODES.get(program, torch.enable_grad)():
        result = fn(x, memory)
        mode = torch.is_grad_enabled()
    results = list(result) if isinstance(result, tuple) else [result]
    tensors = [r for r in (*results, memory) if isinstance(r, torch.Tensor)]
    found = [r.detach().clone() if isinstance(r, torch.Tensor) else r for r in (*results, x, memory)]
    tracked = [t for t in tensors if t.requires_grad and t.grad_fn is not None]
    if tracked:
        sum(t.sum() for t in tracked).backward()
    state = [memory._version > 0, *((t.requires_grad, t.is_leaf) for t in (*tensors, x))]
    return [found, state, mode, x.grad, memory.grad if memory.is_leaf else None]


def _run(trace: Any, *args: Any) -> Any:
    """Run the printed text of a trace, by nothing but the text and the names that it uses."""
    namespace = dict(trace.python_ctx())
    exec(str(trace), namespace)
    return namespace[trace.name](*args)


def _by_text(compiled: Any) -> Callable[..., Any]:
    prologue = thunder.last_prologue_traces(compiled)[-1]
    (connected,) = [t for t in thunder.last_epilogue_traces(compiled) if t.name == "connected"]
    epilogues = [t for t in thunder.last_epilogue_traces(compiled) if t.name == "epilogue"]

    def call(*args: Any) -> Any:
        inputs, rest = _run(prologue, *args)
        results = _run(connected, *inputs)
        return _run(epilogues[-1], *results, *rest) if epilogues else results

    return call


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_the_printed_program_alone_has_the_effects_of_the_call(program):
    compiled = thunder.jit(program, executors=["torch"])
    expected = _outcome(program, program)
    torch.testing.assert_close(_outcome(compiled, program), expected)
    trace = thunder.last_epilogue_traces(compiled)
    text = next(str(t) for t in trace if t.name == "connected")
    for part in PROGRAMS[program]:
        assert part in text
    torch.testing.assert_close(_outcome(_by_text(compiled), program), expected)
    assert thunder.cache_misses(compiled) == 1


def test_the_function_that_runs_is_the_one_that_is_printed():
    """No wrapper stands round it: the function has the code of the text."""
    for program in PROGRAMS:
        compiled = thunder.jit(program, executors=["torch"])
        _outcome(compiled, program)
        entry = thunder.compile_stats(compiled).interpreter_cache[-1]
        assert entry.computation_fn.__code__.co_name == "connected"


def test_a_forward_that_runs_alone_has_no_further_trace():
    for program in (nn.Linear(2, 2), lambda x: x * 2):
        compiled = thunder.jit(program, executors=["torch"])
        compiled(torch.ones(2, 2))
        assert thunder.last_epilogue_traces(compiled) == []
