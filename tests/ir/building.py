"""How tests of the IR make traces: by calling symbols on proxies, without the frontend."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import thunder.torch  # noqa: F401 — gives proxies their methods
from thunder.compiler.pipeline import Compiled, Pipeline
from thunder.executors import pythonex, torchex
from thunder.ir.proxies import TensorProxy, Variable
from thunder.ir.trace import Source, TraceCtx, from_trace, tracectx
from thunder.ops import prims

#: the executors that run everything
EAGER = (torchex.ex, pythonex.ex)

INPUT_TYPE = {"shape": (4,), "device": "cpu", "dtype": torch.float32}


@contextmanager
def building(*names: str, **metadata: Any) -> Iterator[tuple[Any, ...]]:
    """Within the context, calls record into a new trace; yields the trace and its inputs, by these names."""
    trace = TraceCtx()
    with tracectx(trace), torch.no_grad():
        trace.args = [TensorProxy(name, **{**INPUT_TYPE, **metadata}) for name in names]
        yield (trace, *trace.args)


def traced(fn: Callable[..., Any], *names: str, **metadata: Any) -> TraceCtx:
    """The trace of `fn` on inputs of these names; `fn`'s result is what the trace returns."""
    with building(*names, **metadata) as (trace, *inputs):
        prims.python_return(fn(*inputs))
    return trace


def compiled(trace: TraceCtx, executors: Any = EAGER, **more: Any) -> Compiled:
    """The trace after all stages, each of them verified."""
    return Pipeline().run(trace, executors, check=True, **more)


def final(fn: Callable[..., Any], *names: str, **metadata: Any) -> TraceCtx:
    """The trace of `fn` that runs."""
    return compiled(traced(fn, *names, **metadata)).traces[-1]


def renamed(trace: TraceCtx, **names: str) -> TraceCtx:
    """The trace with values under other names."""
    made = {p.name: p for b in trace.bound_symbols for p in b.flat_proxy_outs}
    new = from_trace(trace)
    new.names -= set(names)
    new.names |= set(names.values())
    swap = {Variable(made[old]): made[old].replace(name=name) for old, name in names.items()}
    new.bound_symbols = [b.from_bsym_swap_proxies(swap) for b in trace.bound_symbols]
    return new


def with_sources(trace: TraceCtx, file: str, text: str, *lines: int) -> TraceCtx:
    """The trace with the n-th statement coming from the n-th of these lines of a file that holds `text`."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    for bsym, line in zip(trace.bound_symbols, lines, strict=False):
        bsym.source = Source(file, line)
    return trace


def text(trace: TraceCtx, depth: int = -1) -> str:
    """The program without the milliseconds."""
    return trace.python(print_depth=depth, include_timing=False)


def body(trace: TraceCtx, depth: int = 1) -> list[str]:
    """The statements alone: what stands below the comments on inputs."""
    lines = text(trace, depth).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def ")) + 1
    return [line.removeprefix("  ") for line in lines[start + len(trace.args) :]]
