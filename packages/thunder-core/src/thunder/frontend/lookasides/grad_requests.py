"""Intermediate tensors of which a program sets ``requires_grad``.

    h = x[None]; h.requires_grad = True; return self.conv(h)     # a feature extractor, while training

What is computed from ``h`` then requires gradients, as in eager. No caller can read the gradient of ``h``,
because the tensor is gone when the program ends. So a program may do this, unless a tensor that it returns or
keeps requires gradients for no other reason: the backward of that tensor would end at ``h``, without effect.

    return h.detach().requires_grad_()          # the state with which the next step begins

Such a tensor that the program itself returns or keeps is a leaf, as in eager: the epilogue sets its
``requires_grad``. One on which something else that leaves the program depends, so that a gradient has to
reach it, is an input of the computation (:mod:`~thunder.frontend.lookasides.new_leaves`).

    x.requires_grad_(); return torch.autograd.grad(self.energy(x), x)      # an argument of the call

An input requires gradients from then on, in the caller's hands too. The cache entry sets it before the
computation runs, so that results are connected with it; so the program may not have used the input before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.errors import Location, NotInitialized, UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.lookasides.rebound_tensors import ReboundTensors
from thunder.frontend.objects.writes import Write, moment
from thunder.frontend.places import WRITES
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.aliasing import shared_memory
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

TABLE = LookasideTable(WRITES)


class GradRequests(SessionState):
    """The tensors of which the program set ``requires_grad``, with the lines.

    ``without_use`` are those whose gradient must not be used, because the trace would pass it on. ``inputs``
    are inputs of the program, with moments. They require grad before the computation runs, except those that
    the program has rebound before.
    """

    def __init__(self, session: TracingSession) -> None:
        self.requests: list[tuple[TensorProxy, list[Location]]] = []
        self.without_use: list[tuple[TensorProxy, list[Location]]] = []
        self.inputs: list[tuple[TensorProxy, int, bool]] = []
        #: by id of a tensor, the last call of the program before the request
        self.positions: dict[int, BoundSymbol] = {}

    def writes(self) -> Iterator[Write]:
        for x, at, is_late in self.inputs:
            entry = self._session.entry_of(x)
            assert entry is not None, "an input has an entry"
            name = f"{entry.path.source}.requires_grad"
            yield Write(
                name=name,
                emit=partial(_require_grad_late, self._session, x) if is_late else lambda builder: None,
                owner=entry.obj,
                path=entry.path,
                keys=(),
                state=True,
                moment=at,
            )

    def early_inputs(self) -> frozenset[str]:
        """Return the names of inputs that require grad before the computation runs."""
        early = [
            entry.path for x, _, late in self.inputs if not late and (entry := self._session.entry_of(x))
        ]
        return frozenset(p.name for p, path in self._session.objects.inputs if path in early)

    @property
    def needs_epilogue(self) -> bool:
        return self.has_any()

    def emit_after(self, builder: EpilogueBuilder, ending: Ending) -> None:
        """Let the results be leaves of which the program has set ``requires_grad``."""
        inputs = self._session.trace.args
        for leaf in returned_leaves(self._session, inputs, builder.tensors.values(), ending.kept):
            if leaf.name not in builder.parameters:
                builder.emit(f"{leaf.name}.requires_grad_()")

    def has_any(self) -> bool:
        """Return whether the program set ``requires_grad`` of an intermediate."""
        return bool(self.requests or self.without_use)


def request_grad(session: TracingSession, x: TensorProxy, value: bool) -> None:
    """Do ``x.requires_grad = value``.

    No gradient may flow back from a tensor that was computed without gradients from one that requires them,
    and ``detach`` is the one call of a trace that stops gradients: at the end of the program,
    :func:`refuse_used` looks whether one would. Raises UnsupportedProgram if a tensor ceases to require
    gradients, and for an input that the program has computed with before.
    """
    if x.requires_grad == value:
        return
    if value and not x.dtype.is_inexact:
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    if value and session.entry_of(x) is not None:
        _request_grad_of_input(session, x)
        return
    if not value and _withdraw(session, x):
        return
    if not value:
        raise UnsupportedProgram(
            f"the program sets requires_grad of a tensor to {value}",
            found={x.name: f'"{x.type_string()}"'},
            hint="Set it before the call, or use detach().",
        )
    passes_on = any(_would_pass_on(bsym, x) for scope in session.trace.scopes for bsym in scope)
    x.requires_grad = x.declared_leaf = True
    state = session.state(GradRequests)
    (state.without_use if passes_on else state.requests).append((x, session.locations()))
    if len(session.trace.scopes) == 1:
        state.positions[id(x)] = session.trace.bound_symbols[-1]


def _withdraw(session: TracingSession, x: TensorProxy) -> bool:
    """Let a tensor of the program no longer require grad; return False if that was used, or not requested."""
    requests = session.state(GradRequests).requests
    requested = [i for i, (tensor, _) in enumerate(requests) if tensor is x]
    calls = [b for scope in session.trace.scopes for b in scope if _reads(b, x)]
    if not requested or any(requires_grad(p) for b in calls for p in _results(b) if p is not x):
        return False
    del requests[requested[0]]
    x.requires_grad, x.declared_leaf = False, None
    return True


def _request_grad_of_input(session: TracingSession, x: TensorProxy) -> None:
    """Let an input require grad from the beginning, which is the same where it has not been used yet."""
    entry = session.entry_of(x)
    assert entry is not None, "the caller has checked it"
    used = any(
        p is x and b.sym.id != "torch.detach" and any(q.dtype.is_inexact for q in _results(b))
        for scope in session.trace.scopes
        for b in scope
        for p in b.flat_proxy_args
    )
    with torch._C.DisableTorchFunction():
        is_special = entry.obj.is_inference() or session.objects.keeps_original_metadata
    if used or is_special:
        raise UnsupportedProgram(
            "the program sets requires_grad of a tensor that it has computed with before"
            if used
            else "the program sets requires_grad of a tensor of inference mode, or that a transform replaces",
            found={x.name: f'"{x.type_string()}"'},
            hint="Set it before the call, or use detach().",
        )
    session.note_write()
    session.trace.grad_enabled |= session.modes.grad and session.tracks_grad
    x.requires_grad = x.declared_leaf = True
    is_late = id(x) in session.state(ReboundTensors).inputs
    session.state(GradRequests).inputs.append((x, moment(), is_late))


def _require_grad_late(session: TracingSession, x: TensorProxy, builder: EpilogueBuilder) -> None:
    """Let an input require grad that is another tensor before: no result may depend on it with gradients."""
    if any(any_requires_grad(_results(b)) for b in session.trace.bound_symbols if _reads(b, x)):
        raise UnsupportedProgram(
            "the program sets requires_grad of an input that it has detached, or of which it has changed the "
            "shape or the data, and computes with it",
            found={x.name: f'"{x.type_string()}"'},
            hint="Set it before the call, or use detach().",
        )
    builder.emit(f"{builder.expression(x)}.requires_grad_()")


def _results(bsym: BoundSymbol) -> list[TensorProxy]:
    return [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]


def refuse_used(session: TracingSession, returned: Iterable[TensorProxy]) -> None:
    """Raise UnsupportedProgram if a gradient would reach a tensor whose gradient the trace would pass on.

    Where the program computes without gradients, as in an evaluation, none does. Such a tensor may not leave
    the program. Neither may a view of any tensor of which the program set ``requires_grad``, if it was made
    without gradients: in eager it requires them.
    """
    state = session.state(GradRequests)
    calls = session.trace.bound_symbols
    memory = shared_memory(b for b in calls if b.sym.id != "torch.detach")
    computed = {id(p) for b in calls for p in b.flat_proxy_outs}
    for x, where in (*state.without_use, *state.requests):
        if id(x) not in computed:  # a tensor of a function that was mapped over a batch
            continue
        leaving = {id(p) for p in returned if memory.find(p.name) == memory.find(x.name)}
        if any(x is y for y, _ in state.without_use):
            uses = any(any_requires_grad(b.flat_proxy_outs) for b in calls if _reads(b, x))
            x.requires_grad = False
            x.declared_leaf = None
        else:
            uses = False
            leaving -= {id(p) for p in returned if p is x or requires_grad(p)}
        if leaving or uses:
            raise UnsupportedProgram(
                "the program sets requires_grad of what it computed without gradients from a tensor with "
                "them",
                found={x.name: f'"{x.type_string()}"'},
                where=where,
                hint="Use what detach() of it returns.",
            )


def _would_pass_on(bsym: BoundSymbol, x: TensorProxy) -> bool:
    """Return whether a call has ``x`` as a result and would pass its gradient on."""
    if not any(out is x for out in bsym.flat_proxy_outs) or not any_requires_grad(bsym.flat_proxy_args):
        return False
    if bsym.subsymbols:
        return any(_would_pass_on(part, x) for part in bsym.subsymbols)
    return bsym.sym is not prims.detach


def _reads(bsym: BoundSymbol, x: TensorProxy) -> bool:
    return any(p is x for p in bsym.flat_proxy_args)


@TABLE.with_parameters(torch.Tensor.requires_grad_)
def _requires_grad_(session: TracingSession, self: TensorProxy, requires_grad: bool = True) -> TensorProxy:
    request_grad(session, self, requires_grad)
    return self


def returned_leaves(
    session: TracingSession, inputs: Iterable[Any], returned: Iterable[Any], kept: Iterable[Any]
) -> list[TensorProxy]:
    """Return the tensors that leave the program with a ``requires_grad`` that it set.

    In the trace they do not require gradients; the epilogue sets it. ``returned`` are all tensors that the
    program returns or keeps; ``kept`` are those that objects keep, where Python may run the call.

    Raises UnsupportedProgram if another one of these requires gradients only because the program set it of an
    intermediate, or depends on such a leaf; NotInitialized, if the leaf is kept.
    """
    if not session.state(GradRequests).has_any():
        return []
    returned = list(returned)
    refuse_used(session, returned)
    tracked = [p for p in returned if requires_grad(p)]
    requested = {id(x) for x, _ in session.state(GradRequests).requests}
    leaves = [p for p in tracked if id(p) in requested]
    through = reached(session, filter(requires_grad, inputs), requested)
    dependent = reached(session, leaves, requested)
    for p in tracked:
        if not any(p is leaf for leaf in leaves) and (id(p) not in through or id(p) in dependent):
            x, where = session.state(GradRequests).requests[0]
            is_state = any(q is leaf for q in kept for leaf in leaves)
            raise (NotInitialized if is_state else UnsupportedProgram)(
                "a result requires gradients because the program sets it of an intermediate tensor",
                found={x.name: f'"{x.type_string()}"'},
                where=where,
                hint="Set requires_grad of an input before the call.",
            )
    for leaf in leaves:
        leaf.requires_grad = False
        leaf.declared_leaf = None
    return leaves


def reached(session: TracingSession, start: Iterable[Any], leaves: set[int]) -> set[int]:
    """Return the ids of tensors and of what gradients reach from them, not past ``leaves``."""
    reached = {id(p) for p in start}
    for bsym in session.trace.bound_symbols:
        if any(id(p) in reached for p in bsym.flat_proxy_args):
            outs = filter(requires_grad, bsym.flat_proxy_outs)
            reached.update(id(p) for p in outs if id(p) not in leaves)
    return reached
