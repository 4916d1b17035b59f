"""Recording the gradients of values into the program (Note [Gradients inside a program])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients
from thunder.frontend.custom_gradients.tensor_hooks import ON_TENSOR, TensorHooks
from thunder.frontend.inner_gradients.arrivals import Accumulate, Arrivals
from thunder.frontend.inner_gradients.evaluated_backward import evaluated, grad_mode
from thunder.frontend.inner_gradients.freed_graphs import FreedGraphs
from thunder.frontend.inner_gradients.functional_program import FunctionalProgram, functional_program
from thunder.frontend.inner_gradients.gradient_program import (
    gradient_program,
    statements_between,
)
from thunder.frontend.inner_gradients.opened_calls import open_writing_calls, save_residuals
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.torch.autocast import is_cast_now

__all__ = ["arriving_gradients", "grad_mode", "gradients"]


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
    computed = _Computed(session, outputs, inputs, cotangents, create_graph)
    for _ in computed.steps:
        pass
    return [computed.gradient(i) for i in range(len(inputs))]


def arriving_gradients(
    session: TracingSession,
    outputs: Sequence[TensorProxy],
    inputs: Sequence[TensorProxy],
    cotangents: Sequence[TensorProxy],
    create_graph: bool,
    retain_graph: bool | None,
    accumulate: Accumulate | None = None,
) -> list[TensorProxy | None]:
    """Return :func:`gradients` as torch's engine does: those of leaves pass their hooks.

    Then each is accumulated, if there is a function for that. The graph is freed unless it is retained.
    """
    computed = _Computed(session, outputs, inputs, cotangents, create_graph)
    if not (create_graph if retain_graph is None else retain_graph):
        session.state(FreedGraphs).note(computed.between)
    with grad_mode(create_graph):
        arrivals = Arrivals(session, inputs, computed.nodes, computed.reached, computed.between, accumulate)
    for _ in computed.steps:
        with grad_mode(create_graph):
            arrivals.deliver(computed.gradient)
    return arrivals.results


class _Computed:
    """Gradients that are being recorded.

    ``nodes`` are the values of the inputs, ``between`` the calls from these to the outputs; ``reached`` says
    which inputs have a gradient. ``steps`` record them, see :func:`evaluated`.
    """

    def __init__(
        self,
        session: TracingSession,
        outputs: Sequence[TensorProxy],
        inputs: Sequence[TensorProxy],
        cotangents: Sequence[TensorProxy],
        create_graph: bool,
    ) -> None:
        hooked, inputs = inputs, [below_hooks(session, i) for i in inputs]
        open_writing_calls(session)
        tensors = (*outputs, *inputs)
        program = functional_program(session.trace, tensors)
        _refuse_hooks_between(program, hooked, inputs)
        ends, starts = [program.value(o) for o in outputs], [program.node(i) for i in inputs]
        _refuse_written(program, inputs)
        between = statements_between(program.body, starts, ends)
        _refuse_retained(session, between, tensors)
        _refuse_casts(between)
        if save_residuals(session, between):
            program = functional_program(session.trace, tensors)  # with new names of written values
            ends, starts = [program.value(o) for o in outputs], [program.node(i) for i in inputs]
            between = statements_between(program.body, starts, ends)
        backward = gradient_program(program, ends, starts, between)
        formal = backward.trace.args
        arguments = [_held(program, p) for p in formal[: len(formal) - len(ends)]]
        values = {p.name: value for p, value in zip(formal, (*arguments, *cotangents), strict=True)}
        self._values, self._gradients = values, backward.gradients
        self.nodes, self.between = starts, between
        self.reached = [g is not None for g in backward.gradients]
        self.steps = evaluated(session, backward, values, create_graph)

    def gradient(self, index: int) -> Any:
        """Return the gradient of an input; None if it has none, or if it has not been recorded yet."""
        gradient = self._gradients[index]
        return None if gradient is None else self._values.get(gradient.name)


def _held(program: FunctionalProgram, value: Any) -> Any:
    """Return the tensor of the program that holds a value.

    Raises UnsupportedProgram where an input was overwritten: eager has a copy of it, or raises.
    """
    if isinstance(value, SymbolicNumber):  # nothing can be written to it
        return value
    if value.name not in program.holders:
        raise UnsupportedProgram(
            "a gradient is computed inside the program that reads a tensor written in place",
            found={value.name: f'"{value.type_string()}"'},
            hint="Use the out-of-place form of the write.",
        )
    return program.holders[value.name]


def _refuse_casts(between: Sequence[BoundSymbol]) -> None:
    """Refuse, under autocast, calls whose backward eager casts, and a gradient program does not.

    The backward of a call that was recorded under the same autocast has operands that need no cast.
    """
    for bsym in between if torch._C._is_any_autocast_enabled() else ():
        if bsym.sym.id.startswith(_OF_PROGRAMS) or is_cast_now(bsym.sym, bsym.args, bsym.kwargs):
            raise UnsupportedProgram(
                f"a gradient of {bsym.sym.name} is computed under autocast, which casts within its backward",
                found={"call": bsym.line},
                where=bsym.locations,
                hint="Leave autocast before: with torch.autocast(device, enabled=False).",
            )


#: how the ids of composites begin whose backward the program defines
_OF_PROGRAMS = ("autograd_function.", "custom_operator.")


def _refuse_hooks_between(
    program: FunctionalProgram, hooked: Sequence[TensorProxy], inputs: Sequence[TensorProxy]
) -> None:
    """Refuse an input with hooks that depends on another: eager returns its gradient before the hooks."""
    for x, first in zip(hooked, inputs, strict=True):
        others = [program.node(i) for i in inputs if i is not first]
        if x is not first and statements_between(program.body, others, [program.node(first)]):
            raise UnsupportedProgram(
                "a gradient is computed inside the program by a tensor that has hooks, and by one that it "
                "depends on",
                found={x.name: f'"{x.type_string()}"'},
                hint="Call torch.autograd.grad for each of the two, with retain_graph=True.",
            )


def below_hooks(session: TracingSession, x: TensorProxy) -> TensorProxy:
    """Return the tensor whose gradient has passed all hooks of ``x``, and none of its node."""
    value = session.state(TensorHooks).values.get(x.name)
    if value is None or value.hooked is not x or not value.calls:
        return x
    if value.last_write is not None:
        raise UnsupportedProgram(
            "a gradient is computed inside the program by a tensor that was written and has hooks",
            found={x.name: f'"{x.type_string()}"'},
            hint="Use the out-of-place form of the write.",
        )
    return value.below[ON_TENSOR]


def _refuse_written(program: FunctionalProgram, inputs: Sequence[TensorProxy]) -> None:
    """Refuse a written input of which torch's graph has another node than the functional program a value."""
    for x in inputs:
        if x.name in program.written_views or program.node(x).requires_grad != x.requires_grad:
            raise UnsupportedProgram(
                "a gradient is computed inside the program by a tensor that was written through a view",
                found={x.name: f'"{x.type_string()}"'},
                hint="Use the out-of-place form of the write.",
            )


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
