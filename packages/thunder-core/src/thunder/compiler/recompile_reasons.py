"""The facts that do not hold: of each entry that a call could not use, and of one just compiled for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thunder.base.equal_values import same_leaf
from thunder.base.errors import InternalError, PluginError, ThunderError
from thunder.base.provenance import ABSENT, own_name
from thunder.compiler.compile_plan import Answers
from thunder.compiler.plugin_contributions import PluginContributions
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.compiler.varying_inputs import Differences
from thunder.frontend.decisions.decision import Decision
from thunder.frontend.facts import Fact, expected_text
from thunder.frontend.guards import first_failure, prologue_error
from thunder.ops import prims

__all__ = [
    "answers_text",
    "decision_reason",
    "failure_of_new_entry",
    "limit_text",
    "recompile_reason",
    "size_reason",
    "with_free_sizes",
]


def recompile_reason(
    entry: CacheEntry,
    contributions: PluginContributions,
    differences: Differences,
    roots: dict[str, Any],
    answers: Answers = (),
) -> RecompileReason:
    """Return why a call cannot use an entry, while plugins contribute this to a compile.

    ``differences`` are those of the call, ``answers`` are its answers to the first questions that the program
    asks about data. Guards may ask more than the facts from which they were generated: those of a class
    attribute ask in which class it is.
    """
    for kind, expected, found in entry.contributions.differences(contributions):
        return RecompileReason(entry, kind, expected, found, "plugins")
    if differences.first is None:
        for decision, found in zip(entry.decisions, answers, strict=False):
            if not same_leaf(decision.answer, found):
                return decision_reason(entry, decision, found)
        if len(answers) > len(entry.decisions) and entry.plan.places:  # for the sizes of its call
            asked = len(entry.decisions)
            return RecompileReason(entry, "the number of questions about data", asked, len(answers), "sizes")
        cause = prologue_error(entry.prologue_traces[-1], roots["args"], roots["kwargs"])
        return RecompileReason(entry, "the guards, though each of their facts holds", None, cause, "guards")
    fact, actual = differences.first
    expected, found = _differing(fact, actual)
    named = (
        f": {', '.join({**expected, **found})}"
        if fact.sym is prims.check_state and type(found) is dict
        else ""
    )
    return RecompileReason(entry, f"{fact}{named}", expected, found, fact.path.source)


def decision_reason(entry: CacheEntry, decision: Decision, found: Any) -> RecompileReason:
    """Return the reason of a call whose answer to a question about data is another one."""
    source = decision.size_place or decision.place
    return RecompileReason(entry, decision.question_text, decision.answer, found, source)


def size_reason(entry: CacheEntry, relation: object) -> RecompileReason:
    """Return the reason of a call in which a size that the program finds is not one that the entry is for."""
    return RecompileReason(entry, f"the size that the program finds: {relation}", True, False, "sizes")


def with_free_sizes(
    reason: RecompileReason, recompiled: CacheEntry, differences: Differences
) -> RecompileReason:
    """Return a reason with the sizes in which the call differed, and which are free in the new entry."""
    sources = dict.fromkeys([*differences.sizes, reason.source])
    return replace(reason, now_free=tuple(s for s in sources if s in recompiled.free_sizes))


def failure_of_new_entry(entry: CacheEntry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ThunderError:
    """Return the error for an entry whose guards do not hold for the call that it was compiled for.

    It is a PluginError if a transform changed the prologue.
    """
    failure = first_failure(entry.guards, args, kwargs)
    if failure is not None and len(entry.prologue_traces) > 1:
        fact, actual = failure
        return PluginError(
            "a check of the prologue that a transform returned does not hold for the call",
            found={"fact": str(fact), "expected": expected_text(fact), "found": actual},
            hint="A transform adds checks of what holds when the program is compiled.",
        )
    error = InternalError("the guards of a new entry do not hold for its own call")
    error.__cause__ = prologue_error(entry.prologue_traces[-1], args, kwargs)
    return error


def _differing(fact: Fact, actual: object) -> tuple[Any, Any]:
    """Return what is expected and what there is, of a state or a tensor the parts that differ."""
    expected = fact.expected
    if fact.sym is prims.check_state and isinstance(expected, Mapping) and isinstance(actual, Mapping):
        names = [n for n in {**expected, **actual} if expected.get(n, ABSENT) != actual.get(n, ABSENT)]
        return tuple({n: state[n] for n in names if n in state} for state in (expected, actual))  # type: ignore[return-value]
    if fact.sym is prims.check_tensor and isinstance(actual, str):
        part = actual.partition(" ")[0]
        return (f"{part} {getattr(expected, part)}" if hasattr(expected, part) else expected), actual
    return expected_text(fact), actual


def answers_text(data: CompileData, question: str) -> str:
    """Return the warning for a program with more answers to questions than its option allows."""
    name = own_name(data.fn, "__qualname__") or type(data.fn).__qualname__
    return (
        f"{name} was compiled for {data.compile_options['recompile_limit']} other answers to questions about "
        f"data; Python runs it where they differ again. Last: {question}. "
        "Ask about fewer values (a bool in place of a number), or raise recompile_limit."
    )


def limit_text(stats: CompileStats, data: CompileData) -> str:
    """Return the warning for an object that was compiled more often than its option allows."""
    name = own_name(data.fn, "__qualname__") or type(data.fn).__qualname__
    reasons = "; ".join(str(r) for r in stats.last_recompile_reasons[:3])
    grown = {r.source for r in stats.last_recompile_reasons if r.source in r.entry.written}
    hint = "Keep the changing fact out of the program: pass a number as a tensor, pad to a few shapes."
    if grown:
        hint = (
            f"The program reads what it changes in each call: {', '.join(sorted(grown))}. Only append to a "
            "list and take its length, or read it outside, or in a function marked by thunder.opaque."
        )
    return f"{name} was compiled {stats.cache_misses} times. Last reasons: {reasons}. {hint}"
