"""What is found, checked by itself: what a reproducer runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thunder.core.proxies import is_proxy
from thunder.core.pytree import tree_iter
from thunder.core.trace import TraceCtx, load
from thunder.executors.passes import transform_for_execution
from thunder.extend import Executor, get_always_executors
from thunder_bisect.calls import copies_of, evaluate, is_random
from thunder_bisect.gradient_checks import gradients_differ
from thunder_bisect.judgement import expected_of, fault_of
from thunder_bisect.shadows import Shadows
from thunder_bisect.stage_checks import evaluated, first_difference
from thunder_bisect.statement_checks import scale_of
from thunder_testing.tolerances import same_bits

__all__ = ["check_gradient", "check_stage", "check_statement", "statement_fault"]

#: how often a statement is run: a kernel may be right once
RUNS = 6


def statement_fault(
    trace: TraceCtx, inputs: Sequence[Any], executor: Executor, factor: float = 1.0
) -> str | None:
    """Return how an executor computes the calls of a trace wrong, or None."""
    always = get_always_executors()
    run = transform_for_execution(
        trace, [executor, *(ex for ex in always if ex is not executor)]
    ).python_callable()
    names = [p.name for p in trace.args]
    given = dict(zip(names, inputs, strict=True))
    values = copies_of(given)
    with torch.no_grad(), torch.random.fork_rng(devices=()), Shadows() as shadows:
        torch.manual_seed(0)
        for bsym in trace.bound_symbols[:-1]:
            evaluate(bsym, values)
        outputs = [p for p in tree_iter(trace.output) if is_proxy(p)]
        expected = {p.name: expected_of(values[p.name], shadows, scale_of(given)) for p in outputs}
    for _ in range(RUNS):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            copies = copies_of(given)
            results = [x for x in tree_iter(run(*copies.values())) if isinstance(x, torch.Tensor)]
        for name, x in given.items():
            if isinstance(x, torch.Tensor) and not same_bits(x, copies[name]):
                return f"it writes to its input {name}"
        for p, x in zip(outputs, results, strict=True):
            fault = fault_of(x, expected[p.name], factor)
            if fault is not None and not any(map(is_random, trace.bound_symbols)):
                return f"{p.name}: {fault}"
    return None


def check_statement(text: str, inputs: Sequence[Any], executor: Executor) -> int:
    """Print whether an executor computes the calls of a trace as torch does.

    Return 1 if it does not, else 0.
    """
    return _say(statement_fault(load(text), inputs, executor))


def check_stage(before: str, after: str, inputs: Sequence[Any]) -> int:
    """Print the first value in which two traces of one program differ.

    Return 1 if there is one, else 0.
    """
    traces = load(before), load(after)
    given = dict(zip([p.name for p in traces[0].args], inputs, strict=True))
    with torch.random.fork_rng(devices=()), Shadows() as shadows:
        first, second = (evaluated(trace, given, shadows) for trace in traces)
        found = first_difference(first, second, shadows, 1.0, strict=True)
    return _say(None if found is None else f"{found.after}: {found.what}")


def check_gradient(
    program: Callable[[Any], Callable[..., Any]],
    called: Callable[..., Any],
    eager: Callable[..., Any],
    inputs: Mapping[str, Any],
    executors: Sequence[Any],
) -> int:
    """Print whether the gradients of a call are those of torch's autograd.

    Return 1 if they are not, else 0.

    `program(op)` is a function of tensors that calls `op`: `called` where it is compiled, `eager` for torch.
    """
    found = gradients_differ(program(called), program(eager), inputs, executors)
    return _say(None if found is None else f"the gradient of {found[0]}: {found[1]}")


def _say(fault: str | None) -> int:
    print("no difference beyond rounding" if fault is None else fault)
    return int(fault is not None)
