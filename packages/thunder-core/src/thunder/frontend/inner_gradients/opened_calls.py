"""Calls that are replaced by their parts, because a gradient reads values inside of them.

A call is replaced by the calls by which its gradient rule computes it, if the gradient reads what these
return beside its results: random numbers, statistics of a norm. A composite that writes in place is replaced
by one whose results are all values that it computes. Each is one statement again: the positions of others
stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder.autograd.joint_trace import tape_of_call
from thunder.autograd.rule_lookup import Decompose, gradient_of, own_gradient_of
from thunder.autograd.tape import BackwardStep
from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.epilogue.subtrace import make_subtrace, uses_and_definitions
from thunder.frontend.session import TracingSession
from thunder.ir.evaluation import eval_trace
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags, with_parts
from thunder.ir.trace import TraceCtx
from thunder.ops.operator import row_of
from thunder.ops.rule_parts import GETTERS, PUT_GRAD
from thunder.passes.mutations import COPY, flattened, writes

__all__ = ["open_writing_calls", "save_residuals"]

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


def save_residuals(session: TracingSession, between: Iterable[BoundSymbol]) -> bool:
    """Replace calls by the calls by which their gradient rules compute them, if a gradient reads these.

    The gradient then reads what the forward has computed: the numbers that a call has drawn, the statistics
    of a norm. Returns whether there are such calls. One that draws nothing stays as it is, and is computed
    again, where it cannot be replaced.
    """
    replaced = False
    for bsym in between:
        is_random = has_tags(bsym, {OpTags.RANDOM_OP})
        if not is_random and not _may_save(bsym):
            continue
        place = _place_of(session.trace, bsym)
        call = bsym if place is None else _part_of(place[0][place[1]], bsym)
        if not is_random and (place is None or writes(call) or _ran_early(session, place[0][place[1]])):
            continue
        calls, steps = tape_of_call(session.trace, call)
        if not (_replaces(call, calls) if is_random else _reads_residuals(call, calls, steps)):
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


def _may_save(call: BoundSymbol) -> bool:
    """Return whether the rule of a call may compute it by others: a rule of core, not replaced."""
    gradient = own_gradient_of(call)
    may_replace = isinstance(gradient, JointRule | Decompose) and row_of(call.sym) is not None
    return may_replace and gradient_of(call) == gradient


def _replaces(call: BoundSymbol, calls: Sequence[BoundSymbol]) -> bool:
    return len(calls) != 1 or calls[0].sym.id != call.sym.id


def _reads_residuals(call: BoundSymbol, calls: Sequence[BoundSymbol], steps: Iterable[BackwardStep]) -> bool:
    """Return whether the backward of a call reads what the calls in its place compute beside its results."""
    known = {p.name for p in (*call.flat_proxy_args, *call.flat_proxy_outs)}
    inside = {p.name for b in calls for p in b.flat_proxy_outs} - known
    read = (
        p.name
        for step in steps
        for b in step.bsyms
        if b.sym.id not in GETTERS and b.sym.id != PUT_GRAD
        for p in b.flat_proxy_args
    )
    return bool(inside) and not inside.isdisjoint(read)


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
        f"{bsym.sym.name}_with_residuals",
        f"{bsym.sym.id}.with_residuals",
        lambda *tensors: eval_trace(program, *tensors),
        is_prim=False,
    )
    new = symbol.bind(*inputs.values(), output=tuple(computed.values()), subsymbols=calls)
    new.source = bsym.source
    return new
