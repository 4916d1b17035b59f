"""Dual numbers of ``torch.autograd.forward_ad`` in the traced program.

    with dual_level():                              x' = detach(x), which requires grad at this level
        d = make_dual(x, v)                         y = sin(x')
        p, t = unpack_dual(d.sin())         →       t = v * cos(x')     (Note [Tangents by transposition])

After its level a value that was computed from dual numbers is a number without a tangent, as in eager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.autograd import forward_ad

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.inner_gradients.function_levels import Level, outside_of
from thunder.frontend.inner_transforms.forward_derivatives import (
    begin_level,
    check_region,
    dual,
    end_level,
    tangents_or_none,
)
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import OPENS_DUAL_LEVEL
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(OPENS_DUAL_LEVEL)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class DualNumbers(SessionState):
    """The open level of dual numbers, of which torch has at most one.

    ``level`` is None outside of it. ``pairs`` are the dual numbers with their tangents, ``primals`` the
    primals that were unpacked, and ``start`` is the position in the trace where the level begins.
    """

    def __init__(self, session: TracingSession) -> None:
        self.level: Level | None = None
        self.pairs: list[tuple[TensorProxy, TensorProxy]] = []
        self.primals: set[str] = set()
        self.start = 0


@TABLE.lookaside(forward_ad.enter_dual_level)
def _enter(session: TracingSession, args: Args, kwargs: Kwargs) -> int:
    state = session.state(DualNumbers)
    if state.level is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    session.place.check(OPENS_DUAL_LEVEL, "the program opens a level of dual numbers")
    state.start, state.level = len(session.trace.peek_scope()), begin_level(session, require_grad=None)
    return 0


@TABLE.lookaside(forward_ad.exit_dual_level)
def _exit(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    state = session.state(DualNumbers)
    if state.level is None:
        raise RuntimeError("Trying to exit a forward AD level but no level exists")
    end_level(session, state.level)
    _forget_derivatives(session.trace.peek_scope()[state.start :], state.level)
    state.level, state.pairs, state.primals = None, [], set()


def _forget_derivatives(calls: Iterable[BoundSymbol], level: Level) -> None:
    """Let values that require grad only because of dual numbers not require grad after their level.

    Raises UnsupportedProgram where one was written to a tensor from outside.
    """
    own = set(level.leaves)
    for bsym in calls:
        results = list(filter(requires_grad, bsym.flat_proxy_outs))
        operands = [p for p in bsym.flat_proxy_args if requires_grad(p)]
        depends_on_others = level.grad_mode and any(p.name not in own for p in operands)
        if bsym.sym is prims.copy_ and operands and not depends_on_others:
            results.append(bsym.args[1])
            if bsym.args[1].name not in own:
                raise UnsupportedProgram(
                    "a dual number is written to a tensor that was made before its level",
                    where=bsym.locations,
                    hint="Write to a clone that is made within the level.",
                )
        for p in results if not depends_on_others else ():
            own.add(p.name)
            p.requires_grad = False


def check_level_left(session: TracingSession) -> None:
    """Raise UnsupportedProgram for a program that ends within a level of dual numbers."""
    if session.state(DualNumbers).level is not None:
        raise UnsupportedProgram(
            "the program leaves a level of dual numbers open", hint="Call exit_dual_level() in it."
        )


@TABLE.lookaside(forward_ad.make_dual)
def _make_dual(session: TracingSession, args: Args, kwargs: Kwargs) -> TensorProxy:
    state = session.state(DualNumbers)

    def rule(tensor: TensorProxy, tangent: TensorProxy, *, level: int | None = None) -> TensorProxy:
        if state.level is None:
            raise RuntimeError(
                "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
                "enter_dual_level() first."
            )
        _check(state, tensor, tangent)
        number = dual(session, state.level, tensor)
        state.pairs.append((number, tangent))
        return number

    return rule(*args, **kwargs)


def _check(state: DualNumbers, tensor: TensorProxy, tangent: TensorProxy) -> None:
    """Raise torch's errors for a tensor and its tangent, and refuse tangents that torch converts."""
    for kind, x in (("primal", tensor), ("tangent", tangent)):
        if not x.dtype.is_inexact:
            raise ValueError(
                f"Expected {kind} to be floating point or complex, but got: {x.dtype.torch_dtype}"
            )
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, "
            f"this is not supported. Tensor is of size {list(tensor.shape)} while the given forward gradient "
            f"is of size {list(tangent.shape)}."
        )
    if any(tensor is number for number, _ in state.pairs):
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 "
            "is not supported."
        )
    if tensor.dtype is not tangent.dtype:
        raise UnsupportedProgram(
            "make_dual with a tangent of another dtype than its tensor", hint="Cast the tangent."
        )


@TABLE.lookaside(forward_ad.unpack_dual)
def _unpack_dual(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    state = session.state(DualNumbers)

    def rule(tensor: TensorProxy, *, level: int | None = None) -> Any:
        if state.level is None:
            return forward_ad.UnpackedDualTensor(tensor, None)
        calls = session.trace.peek_scope()[state.start :]
        check_region(session, calls)
        if any(p.name in state.primals for bsym in calls for p in bsym.flat_proxy_args):
            raise UnsupportedProgram(
                "a primal that was unpacked is used where dual numbers are computed with",
                hint="Leave the level before it is used, or use torch.func.jvp.",
            )
        tangent = None
        if tensor.requires_grad and state.pairs:
            (tangent,) = tangents_or_none(session, state.level, [tensor], state.pairs)
        if tangent is None:
            return forward_ad.UnpackedDualTensor(tensor, None)
        primal = outside_of(session, tensor, [state.level])
        if primal is tensor:
            primal = ltorch.view_as(tensor, tensor)
            state.primals.add(primal.name)
        return forward_ad.UnpackedDualTensor(primal, outside_of(session, tangent, [state.level]))

    return rule(*args, **kwargs)
