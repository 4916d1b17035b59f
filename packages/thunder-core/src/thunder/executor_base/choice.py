"""The choice of one executor among those that accept a call: by preferences, order, ranks and costs.

Preferences that are in force come first (:mod:`thunder.executor_base.preferences`): the executor that they
name is consulted alone, and runs the call if it accepts it. Else executors are consulted in the order of the
list; an implementation with a rank, where an executor of that rank would be. The first that accepts a call
runs it. If its implementation has a cost, the later executors that have one are consulted too, and the least
cost decides; of equal costs, the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.base.current_options import changed_options
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.executor_base.preferences import preferences
from thunder.executor_base.refusal import Refusal
from thunder.ir.proxies import TensorProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_sizes import SymbolicFloat, SymbolicInt

__all__ = ["Choice", "answer_as_executor", "choose", "in_rank_order"]

Answer = Callable[[Executor, BoundSymbol], bool | Refusal]


@dataclass(slots=True)  # not frozen: one for each call
class Choice:
    """The executor that runs a call, None if all refuse it, and why the others that were consulted do not.

    It is never changed.

    `cost` is that of the executor's implementation, if costs decided. `order` has the names of the executors
    as they were consulted, if ranks changed their order. `options` are those of the preference.
    """

    executor: Executor | None
    refusals: tuple[tuple[str, Refusal], ...]
    order: tuple[str, ...] = ()
    cost: float | None = None
    options: Mapping[str, Any] | None = None


def answer_as_executor(executor: Executor, bsym: BoundSymbol) -> bool | Refusal:
    """Return True if an executor runs a call, as an operator or in a fusion; else its refusal."""
    if isinstance(executor, FusionExecutor):
        if any(isinstance(p, SymbolicFloat) for p in bsym.flat_proxy_args):
            return Refusal("argument", f"{executor.name} takes no floats that differ from call to call")
        facts = None if executor.symbolic_sizes else _facts_of_sizes(bsym)
        if facts is not None:
            with facts.supposed():  # what it asks about sizes matters to no program
                answer = executor.can_fuse(bsym)
            if answer is True:
                return Refusal("static_shape", f"{executor.name} compiles regions for sizes that are numbers")
        elif not all(map(_fits_in_64_bits, bsym.flat_proxy_args)):
            return Refusal("argument", f"{executor.name} computes integers in 64 bits")
        else:
            answer = executor.can_fuse(bsym)
    else:
        answer = executor.can_execute(bsym)
    if answer is True or isinstance(answer, Refusal):
        return answer
    return Refusal("refused", f"{executor.name} does not run {bsym.sym.id}")  # a subclass may return False


def _fits_in_64_bits(p: object) -> bool:
    return not isinstance(p, SymbolicInt) or p.facts.fits_in_64_bits(p.polynomial)


def _facts_of_sizes(bsym: BoundSymbol) -> SizeFacts | None:
    """Return what is known of the sizes of a call that differ from call to call, or None without any."""
    for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs):
        for size in p.shape if isinstance(p, TensorProxy) else (p,):
            if isinstance(size, SymbolicInt):
                return size.facts
    return None


def choose(executors: Iterable[Executor], bsym: BoundSymbol, answer: Answer = answer_as_executor) -> Choice:
    """Return the choice among executors for a call.

    Raises PluginError for a checker or a cost that fails.
    """
    candidates = tuple(executors)
    preferred = _preferred(candidates, bsym, answer)
    if preferred is not None and preferred.executor is not None:
        return preferred
    refusals = [] if preferred is None else list(preferred.refusals)
    candidates = tuple(e for e in candidates if all(e.name != name for name, _ in refusals))
    priced: list[tuple[float, Executor]] = []
    ordered = in_rank_order(candidates, bsym)
    names = () if ordered == candidates else tuple(executor.name for executor in ordered)
    for executor in ordered:
        call = executor.as_registered(bsym)
        if priced and not executor.has_cost(call):
            continue
        accepted = answer(executor, call)
        if isinstance(accepted, Refusal):
            refusals.append((executor.name, accepted))
        elif accepted:
            cost = executor.cost_of(call)
            if cost is None:
                return Choice(executor, tuple(refusals), names)
            priced.append((cost, executor))
    if not priced:
        return Choice(None, tuple(refusals), names)
    least, winner = min(priced, key=lambda pair: pair[0])
    for cost, executor in priced:
        if executor is not winner:
            text = "costs less" if cost > least else "costs the same, and is first"
            refusals.append((executor.name, Refusal("cost", f"{winner.name} {text}", cost=cost, least=least)))
    return Choice(winner, tuple(refusals), names, least)


def _preferred(candidates: tuple[Executor, ...], bsym: BoundSymbol, answer: Answer) -> Choice | None:
    """Return the choice of the preferences in force, or None without any.

    Its executor is None, and its refusals are the reasons, where the preferred one is absent or refuses.
    """
    in_force = preferences()
    preference = None if in_force is None else in_force.of_call(bsym)
    if preference is None:
        return None
    if preference.executor is None:
        return Choice(None, preference.refusals)
    for executor in candidates:
        if executor.name == preference.executor:
            with changed_options(preference.options):
                accepted = answer(executor, executor.as_registered(bsym))
            if isinstance(accepted, Refusal):
                return Choice(None, ((executor.name, accepted),))
            given = preference.refusals, (), preference.cost, preference.options
            return Choice(executor, *given) if accepted else None
    return None  # not among those that are consulted about this call


def in_rank_order(executors: tuple[Executor, ...], bsym: BoundSymbol) -> tuple[Executor, ...]:
    """Return the executors in the order in which they are consulted about a call.

    Those that have a rank for its operator move to the place of an executor with that rank.
    """
    for executor in executors:
        if executor.uses("rank"):
            break
    else:
        return executors
    ranks = {executor: executor.rank_for(bsym) for executor in executors}
    order = [executor for executor in executors if ranks[executor] is None]
    places = {executor: place for place, executor in enumerate(executors)}
    key = {e: (e.rank if ranks[e] is None else ranks[e], places[e]) for e in executors}
    for executor in executors:
        if ranks[executor] is not None:
            later = (i for i, other in enumerate(order) if key[other] > key[executor])
            order.insert(next(later, len(order)), executor)
    return tuple(order)
