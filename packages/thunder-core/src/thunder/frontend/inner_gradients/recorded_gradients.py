"""Recording the gradients of values into the program (Note [Gradients inside a program])."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from thunder.autograd.joint_trace import tape_of_call
from thunder.base.autocast_state import AUTOCAST_DEVICES
from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients
from thunder.frontend.custom_gradients.tensor_hooks import TensorHooks
from thunder.frontend.epilogue.subtrace import make_subtrace, uses_and_definitions
from thunder.frontend.inner_gradients.functional_program import FunctionalProgram, functional_program
from thunder.frontend.inner_gradients.gradient_program import (
    GradientProgram,
    gradient_program,
    statements_between,
)
from thunder.frontend.session import TracingSession
from thunder.ir.effects import has_effect
from thunder.ir.evaluation import eval_trace
from thunder.ir.proxies import TensorProxy
from thunder.ir.recorder import FixedLocation
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags
from thunder.ir.trace import TraceCtx
from thunder.ir.trace_context import tracectx
from thunder.ops import prims
from thunder.passes.mutations import writes

__all__ = ["grad_mode", "gradients"]


def gradients(
    session: TracingSession,
    outputs: Sequence[TensorProxy],
    inputs: Sequence[TensorProxy],
    cotangents: Sequence[TensorProxy],
    create_graph: bool,
) -> list[TensorProxy | None]:
    """Record the gradients of ``outputs`` with these cotangents by ``inputs``, and return them.

    An input on which no output depends has the gradient None. With ``create_graph`` the gradients can be
    differentiated again.
    """
    _refuse_autocast()
    _refuse_hooks(session, inputs)
    inputs = [below_hooks(session, i) for i in inputs]
    tensors = (*outputs, *inputs)
    program = functional_program(session.trace, tensors)
    ends, starts = [program.value(o) for o in outputs], [program.value(i) for i in inputs]
    between = statements_between(program.body, starts, ends)
    _refuse_retained(session, between, tensors)
    if _draw_once(session, between):
        program = functional_program(session.trace, tensors)
        between = statements_between(program.body, starts, ends)
    backward = gradient_program(program, ends, starts, between)
    _refuse_effects(backward)
    arguments = [_held(program, p) for p in backward.trace.args[: len(backward.trace.args) - len(ends)]]
    recorder = FixedLocation(session.locate())
    with grad_mode(create_graph), tracectx(session.trace, recorder=recorder):
        results = iter(eval_trace(backward.trace, *arguments, *cotangents))
    return [None if g is None else next(results) for g in backward.gradients]


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


def _held(program: FunctionalProgram, value: Any) -> Any:
    """Return the tensor of the program that holds a value.

    Raises UnsupportedProgram where an input was overwritten: eager has a copy of it, or raises.
    """
    if value.name not in program.holders:
        raise UnsupportedProgram(
            "a gradient is computed inside the program that reads a tensor written in place",
            found={value.name: f'"{value.type_string()}"'},
            hint="Use the out-of-place form of the write.",
        )
    return program.holders[value.name]


def _refuse_autocast() -> None:
    if any(torch.is_autocast_enabled(device) for device in AUTOCAST_DEVICES):
        raise UnsupportedProgram(
            "a gradient is computed under autocast",
            hint="Leave autocast before: with torch.autocast(device, enabled=False).",
        )


def _refuse_hooks(session: TracingSession, inputs: Sequence[TensorProxy]) -> None:
    """Guard that inputs of the program have no hooks on their gradients; refuse them."""
    for entry in filter(None, map(session.entry_of, inputs)):
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(entry.obj, name) is not None:
                raise UnsupportedProgram(
                    "a gradient is computed inside the program by a tensor that has hooks",
                    found={"tensor": entry.path.source},
                    hint="Remove the hooks, or call backward() outside of the compiled function.",
                )
            session.note("is", entry.path.step("attribute", name), None)


def below_hooks(session: TracingSession, x: TensorProxy) -> TensorProxy:
    """Return the tensor whose gradient has passed all hooks of ``x``: the one that is computed for it."""
    value = session.state(TensorHooks).values.get(x.name)
    if value is None or value.hooked is not x or not value.calls:
        return x
    if value.last_write is not None:
        raise UnsupportedProgram(
            "a gradient is computed inside the program by a tensor that was written and has hooks",
            found={x.name: f'"{x.type_string()}"'},
            hint="Use the out-of-place form of the write.",
        )
    return value.first


def _refuse_retained(
    session: TracingSession, between: Sequence[BoundSymbol], tensors: Sequence[TensorProxy]
) -> None:
    """Refuse an intermediate that retains its gradient, which eager sets on the way."""
    retained = session.state(RetainedGradients).intermediates
    computed = {p.name for b in between for p in b.flat_proxy_outs} if retained else set()
    for x in retained.values():
        if x.name in computed and not any(x is t for t in tensors):
            raise UnsupportedProgram(
                "a gradient is computed inside the program through a tensor that retains its gradient",
                found={x.name: f'"{x.type_string()}"'},
                hint="Leave retain_grad() out, and pass the tensor to torch.autograd.grad.",
            )


def _refuse_effects(backward: GradientProgram) -> None:
    for bsym in backward.again:
        if has_effect(bsym):
            raise UnsupportedProgram(
                f"the gradient of {bsym.sym.name} is needed inside the program, and would run it again",
                found={"call": bsym.line},
                where=bsym.locations,
                hint="Compute the gradient outside of the compiled function.",
            )


# -- calls that draw random numbers --------------------------------------------------------------------------


def _draw_once(session: TracingSession, between: Sequence[BoundSymbol]) -> bool:
    """Replace random calls by the calls by which their gradient rules compute them.

    The gradient then reads the numbers that the forward has drawn. Returns whether there are such calls.
    """
    replaced = False
    for bsym in between:
        if not has_tags(bsym, {OpTags.RANDOM_OP}):
            continue
        place = _place_of(session.trace, bsym)
        call = bsym if place is None else place[0][place[1]]
        calls = tape_of_call(session.trace, call)[0]
        if len(calls) == 1 and calls[0].sym.id == call.sym.id:
            continue
        ran_early = session.speculation is not None and session.speculation.has_run
        if place is None or ran_early or writes(call):
            raise UnsupportedProgram(
                f"the gradient of {bsym.sym.name} is needed inside the program"
                + (", after a decision on data" if ran_early else ", and it writes in place"),
                found={"call": bsym.line},
                where=bsym.locations,
                hint="Use the out-of-place form, before the decision." if ran_early else "Use inplace=False.",
            )
        scope, position = place
        scope[position] = calls[0] if len(calls) == 1 else _as_one_call(call, calls)
        replaced = True
    return replaced


def _place_of(trace: TraceCtx, bsym: BoundSymbol) -> tuple[list[BoundSymbol], int] | None:
    """Return the scope and the position of the recorded call that computes the results of ``bsym``."""
    names = {p.name for p in bsym.flat_proxy_outs}
    for scope in trace.scopes:
        for position, candidate in enumerate(scope):
            if not names.isdisjoint(p.name for p in candidate.flat_proxy_outs):
                return scope, position
    return None


def _as_one_call(bsym: BoundSymbol, calls: Sequence[BoundSymbol]) -> BoundSymbol:
    """Return calls as one composite, whose results are all values that they compute.

    Positions in the trace stay as they are.
    """
    inputs, computed = uses_and_definitions(calls)
    program = make_subtrace(bsym.sym.name, tuple(inputs.values()), calls, tuple(computed.values()))
    symbol = Symbol(
        f"{bsym.sym.name}_with_noise",
        f"{bsym.sym.id}.with_noise",
        lambda *tensors: eval_trace(program, *tensors),
        is_prim=False,
    )
    new = symbol.bind(*inputs.values(), output=tuple(computed.values()), subsymbols=calls)
    new.source = bsym.source
    return new
