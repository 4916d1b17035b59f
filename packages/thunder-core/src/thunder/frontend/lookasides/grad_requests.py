"""Tensors that a program makes require gradients on its way.

    h = x[None]; h.requires_grad = True; return self.conv(h)     # an extractor of features, while training

What is computed from ``h`` then requires gradients, as in eager. The gradient of ``h`` is nobody's: the
tensor is gone when the program is done. So a program may do it, unless a tensor that it returns or keeps
requires gradients for no other reason: that one's backward would end at ``h``, and be empty.

    return h.detach().requires_grad_()          # the state that the next step begins with

A detached tensor that the program returns or keeps is a leaf, as in eager: the epilogue says so of it.
Nothing else that leaves the program may depend on it, for its gradient would have to arrive there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from thunder.base.errors import Location, UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.symbol import BoundSymbol

TABLE = LookasideTable()


class GradRequests(SessionState):
    """The tensors that the program made require gradients, with the lines."""

    def __init__(self, session: TracingSession) -> None:
        self.requests: list[tuple[TensorProxy, list[Location]]] = []


def request_grad(session: TracingSession, x: TensorProxy, value: bool) -> None:
    """``x.requires_grad = value``. Raises UnsupportedProgram for an input, where a tensor ceases to require
    gradients, and for one that was computed without gradients from one that requires them: no gradient may
    flow back from it, and of the calls of a trace only ``detach`` stops one.
    """
    if x.requires_grad == value:
        return
    if not value or session.entry_of(x) is not None or not x.dtype.is_inexact:
        raise UnsupportedProgram(
            f"the program sets requires_grad of a tensor to {value}",
            found={x.name: f'"{x.type_string()}"'},
            hint="Set it before the call, or use detach().",
        )
    if any(_would_pass_on(bsym, x) for scope in session.trace.scopes for bsym in scope):
        raise UnsupportedProgram(
            "the program sets requires_grad of what it computed without gradients from a tensor with them",
            found={x.name: f'"{x.type_string()}"'},
            hint="Use what detach() of it returns.",
        )
    x.requires_grad = x.declared_leaf = True
    session.state(GradRequests).requests.append((x, session.locations()))


def _would_pass_on(bsym: BoundSymbol, x: TensorProxy) -> bool:
    """Whether a call made ``x``, and would pass its gradient on."""
    return (
        any(out is x for out in bsym.flat_proxy_outs)
        and bsym.sym.id != "torch.detach"
        and any_requires_grad(bsym.flat_proxy_args)
    )


@TABLE.lookaside(torch.Tensor.requires_grad_)
def _requires_grad_(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def requires_grad_(self: TensorProxy, requires_grad: bool = True) -> TensorProxy:
        request_grad(session, self, requires_grad)
        return self

    return requires_grad_(*args, **kwargs)


def returned_leaves(
    session: TracingSession, inputs: Iterable[Any], returned: Iterable[Any]
) -> list[TensorProxy]:
    """The detached tensors among those that the program returns or keeps of which it says that they require
    gradients. To the trace they are tensors that do not.

    Raises UnsupportedProgram if another tensor that it returns or keeps requires gradients for no other
    reason than that the program said so on its way, or depends on such a leaf.
    """
    if not session.state(GradRequests).requests:
        return []
    tracked = [p for p in returned if requires_grad(p)]
    asked = {id(x) for x, _ in session.state(GradRequests).requests}
    detached = {id(b.output) for b in session.trace.bound_symbols if b.sym.id == "torch.detach"}
    leaves = [p for p in tracked if id(p) in asked & detached]
    through = _reached(session, filter(requires_grad, inputs), asked)
    dependent = _reached(session, leaves, asked)
    for p in tracked:
        if not any(p is leaf for leaf in leaves) and (id(p) not in through or id(p) in dependent):
            x, where = session.state(GradRequests).requests[0]
            raise UnsupportedProgram(
                "a result requires gradients because the program says so of a tensor on its way",
                found={x.name: f'"{x.type_string()}"'},
                where=where,
                hint="Set requires_grad of an input before the call.",
            )
    for leaf in leaves:
        leaf.requires_grad = False
        leaf.declared_leaf = None
    return leaves


def _reached(session: TracingSession, start: Iterable[Any], leaves: set[int]) -> set[int]:
    """The ids of these tensors and of those to which gradients lead from them, but not past ``leaves``."""
    found = {id(p) for p in start}
    for bsym in session.trace.bound_symbols:
        if any(id(p) in found for p in bsym.flat_proxy_args):
            outs = filter(requires_grad, bsym.flat_proxy_outs)
            found.update(id(p) for p in outs if id(p) not in leaves)
    return found
