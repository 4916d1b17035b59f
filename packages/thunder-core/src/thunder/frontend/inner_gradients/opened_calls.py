"""Calls that are replaced by their parts, because a gradient reads values inside of them.

A call that draws random numbers is replaced by the calls by which its gradient rule computes it, which return
the numbers; a composite that writes in place, by a composite whose results are all values that it computes.
Each is one statement again: the positions of others stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder.autograd.joint_trace import tape_of_call
from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.epilogue.subtrace import make_subtrace, uses_and_definitions
from thunder.frontend.session import TracingSession
from thunder.ir.evaluation import eval_trace
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags, with_parts
from thunder.ir.trace import TraceCtx
from thunder.passes.mutations import COPY, flattened, writes

__all__ = ["draw_once", "open_writing_calls"]

#: the end of the id of a call that is replaced by its parts
_PARTS = ".parts"
#: operators that write statistics to arguments of their own
_NORMS = frozenset(f"torch.nn.functional.{name}_norm" for name in ("batch", "instance"))


def open_writing_calls(session: TracingSession) -> None:
    """Let composites that write in place, and whose operands cannot overlap, return all values they compute.

    Those that an early run has computed, and cannot compute again, stay as they are: what is inside of them
    has no value there.
    """
    for scope in session.trace.scopes:
        for position, call in enumerate(scope):
            is_open = call.sym.id == COPY or call.sym.id.endswith(_PARTS)
            if not is_open and writes(call) and _has_gradient(call) and _is_separate(call):
                if not _can_be_replaced(session, call):
                    continue
                scope[position] = _opened(call, list(flattened([call])))


def _ran_early(session: TracingSession, call: BoundSymbol) -> bool:
    """Return whether an early run has computed a call, or the calls that it consists of."""
    if session.speculation is None:
        return False
    operands = {p.name for p in call.flat_proxy_args}
    computed = [p for b in with_parts((call,)) for p in b.flat_proxy_outs if p.name not in operands]
    return any(map(session.speculation.has_computed, computed))


def _can_be_replaced(session: TracingSession, call: BoundSymbol) -> bool:
    """Return whether a call can be replaced by others: an early run that has computed it begins again."""
    return session.speculation is None or not _ran_early(session, call) or session.speculation.begin_again()


def _has_gradient(call: BoundSymbol) -> bool:
    return any(map(requires_grad, (*call.flat_proxy_args, *call.flat_proxy_outs)))


def _is_separate(call: BoundSymbol) -> bool:
    """Return whether a call reads the memory that it writes by the written tensors alone."""
    tensors = {p.name for p in call.flat_proxy_args if isinstance(p, TensorProxy)}
    return bool(call.subsymbols) and (len(tensors) == 1 or call.sym.id in _NORMS)


def _opened(call: BoundSymbol, parts: Sequence[BoundSymbol]) -> BoundSymbol:
    """Return a call that is computed by its parts and returns everything that they compute."""
    operands = {p.name for p in call.flat_proxy_args}
    computed = {p.name: p for b in parts for p in b.flat_proxy_outs if p.name not in operands}
    computed |= {p.name: p for p in call.flat_proxy_outs}
    identifier = call.sym.id.removesuffix(_PARTS) + _PARTS
    symbol = Symbol(call.sym.name, identifier, None, is_prim=False)
    arguments = {p.name: p for p in call.flat_proxy_args}
    new: BoundSymbol = symbol.bind(*arguments.values(), output=tuple(computed.values()), subsymbols=parts)
    opened: BoundSymbol = new.from_bsym(source=call.source, tags=call.own_tags)
    return opened


def draw_once(session: TracingSession, between: Iterable[BoundSymbol]) -> bool:
    """Replace random calls by the calls by which their gradient rules compute them.

    The gradient then reads the numbers that the forward has drawn. Returns whether there are such calls.
    """
    replaced = False
    for bsym in between:
        if not has_tags(bsym, {OpTags.RANDOM_OP}):
            continue
        place = _place_of(session.trace, bsym)
        call = bsym if place is None else _part_of(place[0][place[1]], bsym)
        calls = tape_of_call(session.trace, call)[0]
        if len(calls) == 1 and calls[0].sym.id == call.sym.id:
            continue
        ran_early = place is not None and not _can_be_replaced(session, place[0][place[1]])
        if place is None or ran_early or writes(call):
            raise UnsupportedProgram(
                f"the gradient of {bsym.sym.name} is needed inside the program"
                + (", after a decision on data" if ran_early else ", and it writes in place"),
                found={"call": bsym.line},
                where=bsym.locations,
                hint="Compute it before the decision." if ran_early else "Use inplace=False.",
            )
        scope, position = place
        whole = scope[position]
        if whole is call:
            scope[position] = calls[0] if len(calls) == 1 else _as_one_call(call, calls)
        else:
            parts = [b for part in whole.subsymbols for b in (calls if part is call else (part,))]
            scope[position] = _opened(whole, parts)
        replaced = True
    return replaced


def _part_of(call: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol:
    """Return the part of an opened call that computes the results of ``bsym``, or the call."""
    names = {p.name for p in bsym.flat_proxy_outs}
    parts: Sequence[BoundSymbol] = call.subsymbols if call.sym.id.endswith(_PARTS) else ()
    for part in parts:
        if part.sym.id != COPY and not names.isdisjoint(p.name for p in part.flat_proxy_outs):
            return part
    return call


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
