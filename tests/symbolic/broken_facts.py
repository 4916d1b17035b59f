"""Calls that break the facts of an entry about sizes and strides one at a time."""

from __future__ import annotations

import itertools
import math
import operator
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

import thunder
from symbolic.fact_outcomes import (
    Part,
    Template,
    Values,
    Verdict,
    arguments,
    difference,
    outcome,
    row_source,
    sources_of,
    without,
)

_SIZE_CHECK = re.compile(r" +if not \(.*\): return None")
_STRIDE_CHECK = re.compile(r" +if (\w+)\.stride\(\) != \(.*\): return None")
#: the most elements of the tensors of a call
_ELEMENTS = 1 << 12


class Subject:
    """A compiled program with the entry whose facts are broken, and the call that this was compiled for."""

    def __init__(
        self, program: Callable[..., Any], template: Template, calls: Sequence[Values] = (), **options
    ):
        self.program, self.template = program, template
        self.compiled = thunder.jit(program, recompile_limit=None, **{"executors": ["torch"], **options})
        for values in (*calls, sources_of(template)):
            outcome(self.compiled, lambda values=values: arguments(template, values))
        self.entry = thunder.compile_stats(self.compiled).interpreter_cache[-1]
        self.facts = [fact for fact in self.entry.guards if fact.sym.name == "check_sizes"]
        self.lines = [x for x in str(self.entry.prologue_traces[-1]).split("\n") if _SIZE_CHECK.fullmatch(x)]
        assert len(self.lines) == len(self.facts), "each fact is a line of the prologue"
        tensors = {
            fact.path.source: fact.expected for fact in self.entry.guards if fact.sym.name == "check_tensor"
        }
        expected = {i: tensors.get(f"args[{i}]") for i in range(len(template))}
        self._free = {i: t.free for i, t in expected.items() if t is not None and t.free is not None}
        self._conditions = [_condition(fact.expected.fact) for fact in self.facts]

    def broken_by(self, values: Values) -> frozenset[int]:
        """Return the numbers of the facts that do not hold for these sizes, -1 for those about strides."""
        strides = frozenset((-1,)) if self._has_other_strides(values) else frozenset[int]()
        return strides | frozenset(
            k
            for k, (fact, condition) in enumerate(zip(self.facts, self._conditions, strict=True))
            if not condition(*(values[p.source] for p in (fact.path, *fact.others)))
        )

    def _has_other_strides(self, values: Values) -> bool:
        """Return whether the tensors of a call have other strides than the entry is for."""
        for i, free in self._free.items():
            shape = [values[f"args[{i}].shape[{d}]"] for d in range(len(free.shape))]
            row = values.get(row_source(i, shape))
            strides = _contiguous(shape if row is None else [*shape[:-1], row])
            if free.strides_for(shape, strides) != strides:
                return True
        return False

    def verdicts(self, rng: random.Random, calls: int = 6, most: int = 4000) -> Iterator[Verdict]:
        """Yield for each fact what the calls show that break it, if possible alone."""
        found: dict[int, list[tuple[int, Values]]] = {k: [] for k in range(len(self.facts))}
        free = {path.source for fact in self.facts for path in (fact.path, *fact.others)}
        for values in _calls_near(sources_of(self.template), free, self.template, rng, most):
            broken = self.broken_by(values)
            for k in broken - {-1}:
                found[k].append((len(broken), values))
        for k, candidates in found.items():
            candidates.sort(key=lambda each: each[0])
            alone = [values for count, values in candidates if count == 1]
            chosen = alone[:2] + rng.sample(alone[2:], min(len(alone[2:]), calls - 2))
            origin = self.facts[k].expected.fact.origin
            verdict = Verdict(str(self.facts[k]), origin, len(chosen))
            for values in chosen or [values for _, values in candidates[:1]]:
                self._try(k, values, verdict, is_alone=bool(chosen))
            yield verdict

    def _try(self, k: int, values: Values, verdict: Verdict, *, is_alone: bool) -> None:
        def make() -> list[Any]:
            return arguments(self.template, values)

        if self.entry.prologue_fn(*make()) is not None:
            verdict.faults.append(f"{values}: the entry is used")
        expected = outcome(self.program, make)
        fault = difference(expected, outcome(self.compiled, make))
        if fault is not None:
            verdict.faults.append(f"{values}: {fault}")
        verdict.is_refused &= expected.error is not None
        if is_alone and not verdict.is_needed:
            run = without(self.entry, self.lines[k])
            verdict.is_needed = difference(expected, outcome(run, make)) is not None


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides (elements) of a contiguous tensor; a size of 0 counts as 1."""
    steps = itertools.accumulate([max(n, 1) for n in reversed(shape[1:])], operator.mul, initial=1)
    return tuple(reversed(list(steps))) if shape else ()


def _condition(fact: Any) -> Callable[..., bool]:
    """Return a function of sizes that says whether a fact holds, from its text."""
    names = [f"v{v}" for v in sorted(fact.variables)]
    text = fact.text(lambda v: f"v{v}")
    condition = eval(f"lambda {', '.join(names)}: {text}", {"math": math})

    def holds(*values: Any) -> bool:
        try:
            return bool(condition(*values))
        except (ArithmeticError, ValueError):
            return False

    return holds


def _calls_near(
    hints: Values, free: set[str], template: Template, rng: random.Random, most: int
) -> Iterator[Values]:
    """Yield the sizes and numbers of other calls, those with few differences first."""
    pools = {
        source: _others(hint, "shape" in source or "stride" in source)
        for source, hint in hints.items()
        if source in free
    }
    names = list(pools)
    seen = 0
    for count in (1, 2):
        for chosen in itertools.combinations(names, count):
            for others in itertools.product(*(pools[name] for name in chosen)):
                values = {**hints, **dict(zip(chosen, others, strict=True))}
                if seen < most and _is_possible(template, values):
                    seen += 1
                    yield values
    for _ in range(most // 2):
        values = {**hints, **{name: rng.choice([hints[name], *pool]) for name, pool in pools.items()}}
        if _is_possible(template, values):
            yield values


def _others(hint: Any, is_size: bool) -> list[Any]:
    if is_size:
        return [n for n in (*range(9), *range(hint - 2, hint + 3), 2 * hint, 12, 30, 101, 16385) if n >= 0]
    if isinstance(hint, float):
        return [
            0.0,
            -0.0,
            0.5,
            1.0,
            1.5,
            2.0,
            3.0,
            -1.0,
            1e3,
            1e-3,
            1e300,
            -2.5,
            hint + 1,
            hint * 2,
            -hint,
            math.nan,
            math.inf,
        ]
    return [*range(-7, 8), hint + 1, hint * 2, 20, 100, 2**41, -(2**41)]


def _is_possible(template: Template, values: Values) -> bool:
    total = 0
    for i, argument in enumerate(template):
        if isinstance(argument, list):
            elements = 1
            for d in range(len(argument)):
                elements *= values[f"args[{i}].shape[{d}]"]
            if isinstance(argument, Part):
                row, length = values[row_source(i, argument)], values[f"args[{i}].shape[{len(argument) - 1}]"]
                if row < max(length, 1):
                    return False
                elements = elements // max(length, 1) * row
            total += elements
    return total <= _ELEMENTS


# -- other tensors -------------------------------------------------------------------------------------------

#: name → the same values in another tensor, for which an entry with the metadata of the first is not right
OTHER_TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "another order": lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    "the first innermost": lambda t: t.movedim(0, -1).contiguous().movedim(-1, 0),
    "gaps between rows": lambda t: torch.cat([t, t], -1)[..., : t.shape[-1]],
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
    "one row for all": lambda t: t[:1].expand(t.shape),
    "one column for all": lambda t: t[..., :1].expand(t.shape),
    "32 bits": lambda t: t.float(),
    "integers": lambda t: (t * 4).round().long(),
    "without gradient": lambda t: t.detach(),
    "a dimension more": lambda t: t.unsqueeze(0),
    "a dimension fewer": lambda t: t[0],
}


def other_tensors(subject: Subject) -> Iterator[Verdict]:
    """Yield what calls show that have another tensor in the place of an argument, for each kind of tensor.

    The tensors of the first call have elements.
    """
    values = sources_of(subject.template)
    reads = {fact.path.source for fact in subject.entry.guards if fact.sym.name == "check_tensor"}
    for i in (i for i in range(len(subject.template)) if f"args[{i}]" in reads):
        for name, change in OTHER_TENSORS.items():

            def make(i: int = i, name: str = name, change: Any = change) -> list[Any]:
                made = arguments(subject.template, values)
                other = change(made[i].detach())
                made[i] = other.requires_grad_(other.is_floating_point() and name != "without gradient")
                return made

            before, after = arguments(subject.template, values)[i], make()[i]
            if _metadata(before) != _metadata(after):
                yield _verdict_of_tensors(subject, f"args[{i}]: {name}", make)


def _metadata(t: torch.Tensor) -> tuple[Any, ...]:
    return t.shape, t.stride(), t.dtype, t.requires_grad


def _verdict_of_tensors(subject: Subject, what: str, make: Callable[[], list[Any]]) -> Verdict:
    verdict = Verdict(what, calls=1)
    if subject.entry.prologue_fn(*make()) is not None:
        verdict.faults.append("the entry is used")
    expected = outcome(subject.program, make)
    fault = difference(expected, outcome(subject.compiled, make))
    if fault is not None:
        verdict.faults.append(fault)
    text = str(subject.entry.prologue_traces[-1])
    strides = [line for line in text.split("\n") if _STRIDE_CHECK.fullmatch(line)]
    run = without(subject.entry, *strides, check_tensors=lambda *tensors: True)
    try:
        verdict.is_needed = difference(expected, outcome(run, make)) is not None
    except LookupError:  # facts about sizes do not hold
        verdict.calls = 0
    return verdict
