"""``torch.func.grad`` and ``torch.func.vjp`` in the traced program.

Their Python code is interpreted; the rules here carry out the native functions that it calls. Torch wraps the
tensors of a transformed function at a level of its own, at which they require grad. In the trace such a
tensor is a view of the argument if that requires grad, and else a new leaf. A result that requires grad
because of such leaves alone does not require grad outside of its level, and is detached there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._functorch import eager_transforms, predispatch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.inner_gradients.recorded_gradients import gradients
from thunder.frontend.lookasides.grad_requests import request_grad
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES, Place
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES)
_functorch = torch._C._functorch
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@dataclass
class Level:
    """A call of a function that is being differentiated, or was.

    ``grad_mode`` is that of the call, and ``leaves`` are the names of the tensors that require grad only
    inside of it. In torch all its ``arguments`` require grad, or none does; with ``require_grad`` None those
    do that require grad outside.
    """

    grad_mode: bool
    require_grad: bool | None
    is_open: bool = True
    leaves: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)


class Levels(SessionState):
    """The levels of the program, outermost first; those that have ended stay for functions of ``vjp``."""

    def __init__(self, session: TracingSession) -> None:
        self.all: list[Level] = []
        self.open: list[Level] = []
        session.place.add_state(Place.DIFFERENTIATED, lambda: self.open)


@TABLE.lookaside(_functorch._grad_increment_nesting)
def _begin(session: TracingSession, args: Args, kwargs: Kwargs) -> int:
    new_level(session, require_grad=True)
    return len(session.state(Levels).open)


def new_level(session: TracingSession, require_grad: bool | None) -> Level:
    """Open a level of derivatives; raise UnsupportedProgram in inference mode.

    No tensor of a trace requires grad there, so that all derivatives were zero.
    """
    if torch.is_inference_mode_enabled():
        raise UnsupportedProgram(
            "derivatives by torch.func, or by dual numbers, in inference mode",
            hint="Use torch.no_grad() in place of torch.inference_mode().",
        )
    levels, level = session.state(Levels), Level(torch.is_grad_enabled(), require_grad)
    levels.all.append(level)
    levels.open.append(level)
    return level


@TABLE.lookaside(_functorch._grad_decrement_nesting)
def _end(session: TracingSession, args: Args, kwargs: Kwargs) -> int:
    open_levels = session.state(Levels).open
    open_levels.pop().is_open = False
    return len(open_levels) + 1


@TABLE.lookaside(_functorch._wrap_for_grad)
def _wrap(session: TracingSession, args: Args, kwargs: Kwargs) -> TensorProxy:
    return wrapped(session.state(Levels).open[-1], args[0])


def wrapped(level: Level, x: TensorProxy) -> TensorProxy:
    """Return an argument of the function of a level: a view, or a leaf that requires grad only inside."""
    if x.requires_grad and level.grad_mode:
        inside = ltorch.view_as(x, x)
    else:
        inside = ltorch.detach(x)
        level.leaves.add(inside.name)
    level.arguments.add(inside.name)
    return inside  # type: ignore[no-any-return]


@TABLE.with_parameters(eager_transforms._set_tensor_requires_grad)
def _set_requires_grad(session: TracingSession, x: Any) -> TensorProxy:
    if not x.dtype.is_inexact:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    request_grad(session, x, True)
    return x  # type: ignore[no-any-return]


_UNWRAP = _functorch._unwrap_for_grad
#: torch 2.11 has no other function for it
_BEFORE_THE_DISPATCHER = getattr(predispatch, "_unwrap_for_grad", _UNWRAP)


@TABLE.lookaside(*{_UNWRAP, _BEFORE_THE_DISPATCHER})
def _unwrap(session: TracingSession, args: Args, kwargs: Kwargs) -> TensorProxy:
    return outside_of(session, args[0], session.state(Levels).open[-1:])


@TABLE.with_parameters(eager_transforms._autograd_grad)
def _autograd_grad(
    session: TracingSession,
    outputs: Sequence[TensorProxy],
    inputs: Sequence[TensorProxy],
    grad_outputs: Sequence[TensorProxy] | None = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[TensorProxy, ...]:
    cotangents = grad_outputs or [ltorch.ones_like(o) for o in outputs]
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
    results: list[TensorProxy | None] = [None] * len(inputs)
    if pairs:
        ends, received = zip(*pairs, strict=True)
        results = gradients(session, ends, inputs, received, create_graph)
    ended = [level for level in session.state(Levels).all if not level.is_open]
    values = [ltorch.zeros_like(i) if g is None else g for i, g in zip(inputs, results, strict=True)]
    return tuple(outside_of(session, v, ended) for v in values)


def outside_of(session: TracingSession, x: TensorProxy, levels: Iterable[Level]) -> TensorProxy:
    """Return a tensor as it is outside of levels: detached if it requires grad only because of them."""
    levels = list(levels)
    if not levels or not x.requires_grad:
        return x
    leaves = set[str]().union(*(level.leaves for level in levels))
    if levels[-1].grad_mode and depends_on_others(session, x, leaves):
        return x
    return ltorch.detach(x)  # type: ignore[no-any-return]


def depends_on_others(session: TracingSession, x: TensorProxy, leaves: set[str]) -> bool:
    """Return whether a gradient of ``x`` reaches a leaf that is not among ``leaves``."""
    return bool(_reached(session, x, leaves) - leaves)


def depends_on(session: TracingSession, x: TensorProxy, names: set[str]) -> bool:
    """Return whether a gradient of ``x`` reaches one of the tensors with these names."""
    return not names.isdisjoint(_reached(session, x, names))


def _reached(session: TracingSession, x: TensorProxy, ends: set[str]) -> set[str]:
    """Return the names of the tensors at which gradients of ``x`` end: leaves, and those in ``ends``."""
    waiting = {x.name}
    for scope in reversed(session.trace.scopes):
        for bsym in reversed(scope):
            written = [bsym.args[1]] if bsym.sym.id == "prims.copy_" else []
            computed = {p.name for p in (*bsym.flat_proxy_outs, *written)} - ends
            if computed.isdisjoint(waiting):
                continue
            operands = {p.name for p in bsym.flat_proxy_args if requires_grad(p)}
            if not written and operands:
                waiting -= computed
            waiting |= operands
    return waiting


# -- state of functorch that the trace does not have ---------------------------------------------------------


@TABLE.lookaside(_functorch.get_inplace_requires_grad_allowed)
def _is_allowed(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    return True


@TABLE.lookaside(_functorch.set_inplace_requires_grad_allowed)
def _without_effect(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Do nothing: in a trace it is always allowed."""
