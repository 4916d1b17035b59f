"""Smaller programs and inputs with which a fault stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from thunder.core import prims
from thunder.core.errors import ThunderError
from thunder.core.langctxs import TORCH, using_language
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_map
from thunder.core.rewrite import eval_trace
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, tracectx
from thunder_bisect.calls import evaluate, program_of, results_of
from thunder_bisect.smallest_sets import smallest
from thunder_testing.sample_lowering import proxy_of

__all__ = ["AloneProgram", "smaller"]

#: seconds after which nothing smaller is looked for, and how many programs are tried at most
BUDGET, TRIALS = 20.0, 50


@dataclass(frozen=True, eq=False)
class AloneProgram:
    """Calls of a program as a trace by itself, with the values of its inputs, in order."""

    trace: TraceCtx
    inputs: Sequence[Any]


def alone(calls: Sequence[BoundSymbol], values: dict[str, Any]) -> AloneProgram:
    """Return calls as a program; `values` has what they read."""
    computed = {p.name for c in calls for p in results_of(c)}
    inputs = {p.name: p for c in calls for p in c.flat_proxy_args if p.name not in computed}
    read = {p.name for c in calls for p in c.flat_proxy_args}
    outputs = {p.name: p for c in calls for p in results_of(c)}
    ends = [p for name, p in outputs.items() if name not in read] or list(outputs.values())
    trace = program_of(calls, inputs.values(), ends)
    return AloneProgram(trace, [values[name] for name in inputs])


def smaller(
    calls: Sequence[BoundSymbol], values: dict[str, Any], is_faulty: Callable[[AloneProgram], bool]
) -> AloneProgram | None:
    """Return the smallest faulty program of some calls and of smaller tensors, or None.

    `values` has what the first calls read; the others read what torch computes.
    """
    end, trials = time.monotonic() + BUDGET, count()
    for call in calls:
        evaluate(call, values)

    def still(program: AloneProgram) -> bool:
        if time.monotonic() > end or next(trials) > TRIALS:
            return False
        try:
            return is_faulty(program)
        except (
            ThunderError,
            RuntimeError,
            ValueError,
            TypeError,
            IndexError,
        ):  # sizes that do not fit together
            return False

    best = alone(calls, values)
    if not still(best):
        return None
    if len(calls) > 1:
        kept = smallest(calls, lambda part: len(part) == len(calls) or still(alone(part, values)))
        best = alone(kept if kept is not None else calls, values)
    while (found := next(filter(still, _shrunk(best)), None)) is not None:
        best = found
    return best


def _shrunk(program: AloneProgram) -> Iterator[AloneProgram]:
    """Yield the program with one size made smaller wherever it is, the smallest first."""
    sizes = sorted(
        {n for x in program.inputs if isinstance(x, torch.Tensor) for n in x.shape if n > 1}, reverse=True
    )
    for size in sizes:
        for new in sorted({1, size // 4, size // 2, size - size // 4, size - 1} - {0}):
            if new >= size:
                continue
            for start in (0, size - new):
                try:
                    yield _resized(program, size, new, start)
                except (ThunderError, RuntimeError, ValueError, TypeError, IndexError):
                    continue  # a call refuses the sizes


def _resized(program: AloneProgram, size: int, new: int, start: int) -> AloneProgram:
    inputs = [_narrowed(x, size, new, start) if isinstance(x, torch.Tensor) else x for x in program.inputs]

    def number(x: Any) -> Any:
        return new if type(x) is int and x == size else x

    def called(bsym: BoundSymbol) -> Callable[..., Any]:
        return lambda *args, **kwargs: bsym.sym(*tree_map(number, args), **tree_map(number, kwargs))

    trace = TraceCtx()
    with tracectx(trace), using_language(TORCH):
        trace.args = [
            proxy_of(x) if isinstance(x, torch.Tensor) else p
            for x, p in zip(inputs, program.trace.args, strict=True)
        ]
        out = eval_trace(program.trace, *trace.args, symbol_mapper=called)
        prims.python_return(tuple(out) if isinstance(out, (tuple, list)) else (out,))
    return AloneProgram(trace, inputs)


def _narrowed(x: torch.Tensor, size: int, new: int, start: int) -> torch.Tensor:
    """Return a part of a tensor in memory of its own, of the same order of dimensions."""
    part = x
    for d, n in enumerate(x.shape):
        part = part.narrow(d, start, new) if n == size else part
    strides = x.stride()
    order = sorted(range(x.ndim), key=lambda d: (-strides[d], d))
    spread = 2 if not _is_dense(x) else 1  # a layout with holes keeps holes
    memory = torch.empty([*(part.shape[d] for d in order), spread], dtype=x.dtype, device=x.device)[..., 0]
    back = [order.index(d) for d in range(x.ndim)]
    result = memory.permute(back) if x.ndim else memory
    result.copy_(part)
    return result


def _is_dense(x: torch.Tensor) -> bool:
    """Return whether a tensor has as many elements as its memory from the first to the last."""
    return x.numel() == 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))


def shapes_of(program: AloneProgram) -> str:
    """Return the types of the inputs of a program."""
    return ", ".join(p.type_string() for p in program.trace.args if isinstance(p, TensorProxy))
