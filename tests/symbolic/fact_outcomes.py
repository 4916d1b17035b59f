"""Calls of programs with other sizes and numbers, compared with eager, and entries that check less.

A fact is *needed* if a call that breaks it alone differs from eager where the entry does not check it. Else
it is *implied* if no call that was tried breaks it alone, *refused* if eager raises for all that do, and
*unneeded* in other cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from comparison.derivatives import Run, compare, ran
from thunder.base.pytree import tree_flatten
from thunder.compiler.stats import CacheEntry

#: the values of sizes and numbers, by their sources
Values = Mapping[str, Any]
#: for each argument the shape of a tensor, or a number
Template = Sequence[Any]


class Part(list[int]):
    """The shape of a part of a tensor with longer rows: their length is the last stride but one."""

    def __init__(self, shape: Sequence[int], row: int) -> None:
        super().__init__(shape)
        self.row = row


def row_source(number: int, shape: Sequence[int]) -> str:
    """Return the source of the stride of an argument that is the length of its rows."""
    return f"args[{number}].stride()[{len(shape) - 2}]"


_ERRORS = (RuntimeError, IndexError, ValueError, TypeError, ArithmeticError)


@dataclass
class Verdict:
    """What the calls that break a fact have shown; ``faults`` are differences from eager."""

    fact: str
    origin: str = ""
    calls: int = 0
    is_needed: bool = False
    is_refused: bool = True
    faults: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Needed, implied, refused or unneeded."""
        if self.is_needed or not self.calls:
            return "needed" if self.is_needed else "implied"
        return "refused" if self.is_refused else "unneeded"


# -- calls ---------------------------------------------------------------------------------------------------


def sources_of(template: Template) -> dict[str, Any]:
    """Return the values of the sizes, strides and numbers of a call, by their sources."""
    found: dict[str, Any] = {}
    for i, argument in enumerate(template):
        if isinstance(argument, list):
            found |= {f"args[{i}].shape[{d}]": n for d, n in enumerate(argument)}
            if isinstance(argument, Part):
                found[row_source(i, argument)] = argument.row
        else:
            found[f"args[{i}]"] = argument
    return found


def arguments(template: Template, values: Values) -> list[Any]:
    """Return the arguments of a call with these sizes and numbers; equal calls have equal data."""
    made: list[Any] = []
    for i, argument in enumerate(template):
        if not isinstance(argument, list):
            made.append(values[f"args[{i}]"])
            continue
        shape = [values[f"args[{i}].shape[{d}]"] for d in range(len(argument))]
        draws = torch.Generator().manual_seed(i)
        row = values.get(row_source(i, shape), shape[-1] if shape else 1)
        longer = torch.randn((*shape[:-1], row), generator=draws, dtype=torch.float64)
        made.append((longer[..., : shape[-1]] if shape else longer[0]).requires_grad_())
    return made


# -- what a call shows ---------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The results of a call, or the class of the error that it raises."""

    run: Run | None
    others: list[Any]
    error: Exception | None = None


def outcome(fn: Callable[..., Any], make: Callable[[], Sequence[Any]]) -> Outcome:
    """Return what a program does with equal inputs."""
    results: list[Any] = []

    def kept(*args: Any) -> Any:
        results.append(fn(*args))
        return results[-1]

    try:
        run = ran(kept, make, order=1)
    except _ERRORS as error:
        return Outcome(None, [], error)
    return Outcome(run, [x for x in tree_flatten(results)[0] if not isinstance(x, torch.Tensor)])


def difference(expected: Outcome, found: Outcome) -> str | None:
    """Return in what an outcome differs from eager's, or None."""
    if expected.run is None or found.run is None:
        if expected.run is None and found.run is None:
            return None
        return f"raised {found.error!r}, eager {expected.error!r}"
    if list(map(type, found.others)) != list(map(type, expected.others)) or not all(
        a == b or (a != a and b != b) for a, b in zip(found.others, expected.others, strict=True)
    ):
        return f"returned {found.others}, eager {expected.others}"
    layouts = [[_strides(t) for t in o.run.results] for o in (found, expected) if o.run is not None]
    if layouts[0] != layouts[1]:
        return f"has the strides {layouts[0]}, eager {layouts[1]}"
    try:
        compare(expected.run, found.run, "a call")
    except (AssertionError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return None


def _strides(t: torch.Tensor) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1] if t.numel() else []


def without(entry: CacheEntry, *dropped: str, **names: Any) -> Callable[..., Any]:
    """Return a function that runs an entry whose prologue has a line fewer, or other names."""
    trace = entry.prologue_traces[-1]
    context = trace.python_ctx() | names
    lines = str(trace).split("\n")
    exec("\n".join(line for line in lines if line not in dropped), context)

    def run(*args: Any) -> Any:
        inputs = context[trace.name](*args)
        if inputs is None:
            raise LookupError(f"another fact than {dropped} does not hold: {args}")
        result = entry.computation_fn(*inputs[0])
        return result if entry.epilogue_fn is None else entry.epilogue_fn(*result, *inputs[1])

    return run
