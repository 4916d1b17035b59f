"""What a program asks of data, and which sizes it takes or finds in place of that, as JSON and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thunder.core.entries import CompilePlan, ComputedPlaces, Decision, Location, TraceRequest, same_leaf
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.values import read_value, write_value

__all__ = ["read_decisions", "read_plan", "write_decisions", "write_plan"]


def write_decisions(decisions: Iterable[Decision]) -> list[Any]:
    """Return the questions of a program with their answers; raise NotKept for answers that are no values."""
    return [
        [d.question, d.operands, write_value(d.answer, _refuse), d.where and list(d.where), d.size_place]
        for d in decisions
    ]


def _refuse(x: Any) -> Any:
    raise NotKept("decisions", f"the answer is an object of type {type(x).__qualname__}")


def read_decisions(rows: Sequence[Any], request: TraceRequest) -> tuple[Decision, ...]:
    """Return the decisions of a program that is for the answers of a call.

    Raises NotUsed for one that has other answers to the first questions, or decides on a size that has been
    another one, and which the computation finds from then on.
    """
    decisions = tuple(map(_read_decision, rows))
    if decisions and request.answers is None:
        raise NotUsed("it asks for data, which the options refuse")
    known = request.answers or ()
    if len(known) > len(decisions) or not all(map(same_leaf, known, (d.answer for d in decisions))):
        raise NotUsed("it has other answers to questions about data")
    places = () if request.sizes is None else request.sizes.computed
    if any(d.size_place is not None and d.size_place in places for d in decisions):
        raise NotUsed("it decides on a size that has been another one")
    return decisions


def write_plan(plan: CompilePlan) -> dict[str, Any]:
    """Return which sizes are inputs of a program, and which its computation finds."""
    sizes = None if plan.sizes is None else sorted(plan.sizes)
    return {"sizes": sizes, "everywhere": plan.places.everywhere, "places": sorted(plan.places.named)}


def read_plan(document: Mapping[str, Any], request: TraceRequest) -> CompilePlan:
    """Return the plan of a program that is for the answers of a call."""
    sizes = None if document["sizes"] is None else frozenset(map(str, document["sizes"]))
    places = ComputedPlaces(bool(document["everywhere"]), frozenset(map(str, document["places"])))
    return CompilePlan(answers=request.answers, sizes=sizes, places=places)


def _read_decision(row: Sequence[Any]) -> Decision:
    question, operands, answer, where, size_place = row
    return Decision(
        question=question,
        operands=operands,
        answer=read_value(answer, _refuse),
        where=where and Location(*where),
        size_place=size_place,
    )
