"""`thunder.diff`: what two programs differ in, statement by statement."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from thunder.core.entries import TraceCtx, compile_stats
from thunder_store.edited.matching import Matching, match, moved
from thunder_store.edited.refusals import EditedProgramError
from thunder_store.edited.statements import Program, Statement, Value, program_of
from thunder_store.edited.texts import BACKWARD, definitions_of, read_text

__all__ = ["Change", "Difference", "FunctionDifference", "diff"]

Kind = Literal["removed", "added", "changed", "moved"]
#: how much of a line, and how many details of a change, are shown
_SHOWN: Final = 100
_DETAILS: Final = 4


@dataclass(frozen=True)
class Change:
    """A statement that is in one program only, or in both in another form or at another place.

    ``details`` says what of it changed: the operator, an argument, the type of a result.
    """

    kind: Kind
    before: Statement | None
    after: Statement | None
    details: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        label: str = self.kind
        for side, statement in (("before", self.before), ("after", self.after)):
            if statement is not None:
                yield f"  {label:8} {side:6} {statement.line:4}   {_shortened(statement.text)}"
                label = ""
        shown, others = self.details[:_DETAILS], len(self.details) - _DETAILS
        if shown:
            yield f"  {'':8} {'; '.join(shown)}{f'; and {others} more' if others > 0 else ''}"


@dataclass(frozen=True)
class FunctionDifference:
    """What a function differs in: a computation, or a backward."""

    name: str
    changes: tuple[Change, ...]
    #: the number of statements that are the same, at the same place
    unchanged: int
    #: inputs of another type, or that one of the two has not
    inputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.inputs)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        kinds = Counter(change.kind for change in self.changes)
        counts = [f"{n} {kind}" for kind in ("removed", "added", "changed", "moved") if (n := kinds[kind])]
        yield f"{self.name}: {', '.join([*counts, f'{self.unchanged} as before'])}"
        yield from (f"  input    {line}" for line in self.inputs)
        for change in self.changes:
            yield from change.lines()


@dataclass(frozen=True)
class Difference:
    """What two programs differ in; false if they compute the same by the same statements in one order.

    ``str`` shows each statement that was removed, added, changed or moved, with both texts.
    """

    functions: tuple[FunctionDifference, ...]

    def __bool__(self) -> bool:
        return any(self.functions)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, of the computation and of the backward."""
        return tuple(change for function in self.functions for change in function.changes)

    def __str__(self) -> str:
        """Return the lines of the functions that differ, or that there is no difference."""
        changed = [line for function in self.functions if function for line in function.lines()]
        return "\n".join(changed) or "no difference"


def diff(before: Any, after: Any) -> Difference:
    """Return what two programs differ in, by statement; names of values do not matter.

        print(thunder.diff(thunder.last_traces(compiled)[0], "edited.py"))

    Args:
        before, after: traces; compiled objects, whose last call is taken (what runs); paths; or texts, as
            thunder prints them.

    Statements are matched by operator and flow of data (:mod:`~thunder_store.edited.matching`). Releases of
    memory and decompositions are not compared. Raises EditedProgramError for what is not a program.
    """
    first, second = _functions(before), _functions(after)
    names = dict.fromkeys([*first, *second])
    return Difference(tuple(_difference(name, first.get(name), second.get(name)) for name in names))


def _functions(x: Any) -> dict[str, Program]:
    """Return the functions of a program, the backward under its name and the other as the computation."""
    where, text = _text(x)
    found = [program_of(definition) for definition in definitions_of(text, where)]
    return {("backward" if p.name == BACKWARD else "computation"): p for p in found}


def _text(x: Any) -> tuple[str, str]:
    if isinstance(x, TraceCtx):
        return "the trace", str(x)
    if isinstance(x, str) and "\n" in x:
        return "the text", x
    if isinstance(x, str | os.PathLike):
        return os.fspath(x), read_text(x)
    stats = compile_stats(x)
    if stats is None or stats.last_entry is None:
        raise EditedProgramError(
            f"{x!r} is not a program",
            hint="thunder.diff compares traces, compiled objects after a call, paths and texts.",
        )
    entry = stats.last_entry
    traces = [entry.computation_traces[-1], *entry.backward_traces[-1:]]
    return "the compiled object", "\n".join(map(str, traces))


def _difference(name: str, before: Program | None, after: Program | None) -> FunctionDifference:
    if before is None or after is None:
        own, kind = (after, "added") if before is None else (before, "removed")
        assert own is not None, "one of the two has the function"
        changes = [
            Change("added", None, s) if kind == "added" else Change("removed", s, None)
            for s in own.statements
        ]
        return FunctionDifference(name, tuple(changes), 0)
    matching = match(before, after)
    changes = [*_changes(matching)]
    changed = sum(change.before is not None for change in changes)
    return FunctionDifference(name, tuple(changes), len(before.statements) - changed, _inputs(before, after))


def _inputs(before: Program, after: Program) -> tuple[str, ...]:
    lines = []
    for i in range(max(len(before.inputs), len(after.inputs))):
        own, other = (p.inputs[i] if i < len(p.inputs) else None for p in (before, after))
        if own is None or other is None or (own[1] and other[1] and own[1] != other[1]):
            lines.append(f"{_typed(own)} → {_typed(other)}")
    return tuple(lines)


def _typed(pair: tuple[str, str] | None) -> str:
    return "none" if pair is None else f'{pair[0]}: "{pair[1]}"'


def _changes(matching: Matching) -> list[Change]:
    """Return the changes, in the order of the second program; what was removed comes where it was."""
    first, second = matching.before.statements, matching.after.statements
    same = [(i, j) for i, j in matching.to_after.items() if not _details(matching, i, j)]
    elsewhere = moved(list(matching.to_after.items()))
    keyed: list[tuple[tuple[float, int], Change]] = []
    for i in matching.free_before():
        place = max((matching.to_after[k] for k in range(i) if k in matching.to_after), default=-1)
        keyed.append(((place + 0.5, i), Change("removed", first[i], None)))
    keyed += [((float(j), 0), Change("added", None, second[j])) for j in matching.free_after()]
    unchanged = dict(same)
    for i, j in matching.to_after.items():
        details = [] if i in unchanged else _details(matching, i, j)
        if details:
            details = [*details, "moved"] if i in elsewhere else details
            keyed.append(((float(j), 0), Change("changed", first[i], second[j], tuple(details))))
        elif i in elsewhere:
            keyed.append(((float(j), 0), Change("moved", first[i], second[j])))
    return [change for _, change in sorted(keyed, key=lambda pair: pair[0])]


def _details(matching: Matching, i: int, j: int) -> list[str]:
    """Return in what two statements differ, in words."""
    a, b = matching.before.statements[i], matching.after.statements[j]
    details = [f"operator {a.operator} → {b.operator}"] if a.operator != b.operator else []
    for where, own, other in matching.other_arguments(a, b):
        details.append(
            f"{_place(where)}{_shown(matching.before, own, other)} → {_shown(matching.after, other, own)}"
        )
    pairs = zip(a.results, b.results, strict=False)
    details += [f"type {x} → {y}" for (_, x), (_, y) in pairs if x and y and x != y]
    if len(a.results) != len(b.results):
        details.append(f"{len(a.results)} results → {len(b.results)}")
    return details


def _place(where: str) -> str:
    if not where or where.startswith("["):
        return f"{where or 'value'}: "
    return f"argument {where}: "


def _shown(program: Program, x: str | Value | None, other: str | Value | None) -> str:
    """Return an argument as text; a value with its place where the other one has the same name."""
    name = other.name if isinstance(other, Value) else other
    if not isinstance(x, Value):
        return "none" if x is None else f"{x} (not defined)" if x == name else x
    if x.name != name:
        return x.name
    if x.producer < 0:
        return f"{x.name} (input)"
    return f"{x.name} (line {program.statements[x.producer].line})"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
