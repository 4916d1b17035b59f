"""The run of a backward inside the program: its statements are recorded, and the user's parts interpreted.

    h = linear(x, w1)              recorded:     the gradients of linear(h, w2); w2.grad
    h.register_hook(log.append)    interpreted:  the hook, on the gradient of h
    y = linear(h, w2)              recorded:     the gradients of linear(x, w1); w1.grad

A backward that reads state or has effects (:mod:`~thunder.frontend.custom_gradients.backward_policy`) runs
where torch's engine runs it, and may do whatever the program may do at this place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from thunder.base.autocast_state import autocast_off
from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.backward_state import BackwardState, RunInProgram
from thunder.frontend.custom_gradients.eager_backward import run_backward
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.inner_gradients.gradient_program import GradientProgram
from thunder.frontend.session import TracingSession
from thunder.ir.effects import has_effect
from thunder.ir.evaluation import bind_results, eval_calls
from thunder.ir.recorder import FixedLocation
from thunder.ir.substitution import substitute_in_tree
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag
from thunder.ir.trace_context import tracectx
from thunder.ops import prims

__all__ = ["evaluated", "grad_mode"]


def evaluated(
    session: TracingSession,
    backward: GradientProgram,
    values: dict[str, Any],
    create_graph: bool,
) -> Iterator[None]:
    """Record a backward; add the values that it computes to ``values``.

    Yields before the backward of a call is interpreted, when the gradients of all later calls have been
    recorded, and at the end. Raises UnsupportedProgram for a backward that cannot run here.
    """
    _refuse_effects(session, backward)
    statements = backward.statements
    recorder, start = FixedLocation(session.locate()), len(backward.again)
    held = dict(values)
    for bsym in backward.again:
        _record(session, (bsym,), values, recorder, create_graph)
        values.update(held)  # gradients are those of the values that the program has
    for i, bsym in enumerate(statements[start:], start):
        run = _in_program(session, bsym)
        if run is None:
            continue
        _record(session, statements[start:i], values, recorder, create_graph)
        seen = len(session.trace.peek_scope())
        yield
        _, _, tensors, cotangents = substitute_in_tree(bsym.args, values)
        with grad_mode(create_graph):
            bind_results(values, bsym.output, run(tensors, cotangents))
        start = i + 1
        _refuse_overwritten(session, seen, statements[start:], values)
    _record(session, statements[start:], values, recorder, create_graph)
    yield


def _record(
    session: TracingSession,
    calls: Sequence[BoundSymbol],
    values: dict[str, Any],
    recorder: FixedLocation,
    create_graph: bool,
) -> None:
    with autocast_off(), grad_mode(create_graph), tracectx(session.trace, recorder=recorder):
        scope = session.trace.peek_scope()
        start = len(scope)
        eval_calls(calls, values)
        if not create_graph:  # else it is differentiated again
            scope[start:] = [b.from_bsym(tags=b.own_tags | {BoundSymbolTag.BACKWARD}) for b in scope[start:]]


@contextmanager
def grad_mode(enabled: bool) -> Iterator[None]:
    """Record with gradients on or off; the trace switches where the mode differs from the program's."""
    outside = torch.is_grad_enabled()
    if outside != enabled:
        torch._C._set_grad_enabled(enabled)
        prims.set_grad_enabled(enabled)
    try:
        yield
    finally:
        if outside != enabled:
            torch._C._set_grad_enabled(outside)
            prims.set_grad_enabled(outside)


def _in_program(session: TracingSession, bsym: BoundSymbol) -> RunInProgram | None:
    """Return the backward that a statement runs, if it is one that the program can run itself."""
    if bsym.sym is not run_backward:
        return None
    return session.state(BackwardState).in_program.get(bsym.args[1])


def _refuse_effects(session: TracingSession, backward: GradientProgram) -> None:
    """Refuse a backward with other effects: the program may read them, and a trace has them when it runs."""
    again = list(filter(has_effect, backward.again))
    others = (b for b in backward.statements if has_effect(b) and _in_program(session, b) is None)
    for bsym in (*again, *others):
        is_forward = any(bsym is b for b in again)
        raise UnsupportedProgram(
            f"the gradient of {bsym.sym.name} is needed inside the program, and would run it again"
            if is_forward
            else f"a gradient is computed inside the program by {bsym.sym.name}, which has effects or reads "
            "state that is not saved",
            found={"call": bsym.line},
            where=bsym.locations,
            hint="Compute the gradient outside of the compiled function.",
        )


def _refuse_overwritten(
    session: TracingSession, start: int, rest: Sequence[BoundSymbol], values: dict[str, Any]
) -> None:
    """Refuse a write, since the statement at ``start``, to what the rest of the backward reads.

    Torch raises for what it has saved.
    """
    scope = session.trace.peek_scope()
    written = {name for b in scope[start:] for name in written_names(b)}
    if not written:
        return
    memory = names_of_memory(scope, written)
    for bsym in rest:
        for p in bsym.flat_proxy_args:
            value = values.get(p.name)
            if value is not None and value.name in memory:
                raise UnsupportedProgram(
                    "a backward inside the program writes in place to a tensor that another one reads later",
                    found={value.name: f'"{value.type_string()}"'},
                    where=bsym.locations,
                    hint="Write to a clone.",
                )
