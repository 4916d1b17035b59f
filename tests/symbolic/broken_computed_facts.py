"""Calls whose data break the facts about computed sizes of an entry one at a time (Note [Computed sizes])."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch

import thunder
from symbolic.fact_outcomes import Verdict, difference, outcome
from thunder.base.errors import DecisionChanged
from thunder.base.float_expressions import RELATIONS
from thunder.ops.prims import decision_checks
from thunder.ops.prims.decision_checks import QUESTIONS

__all__ = ["DataSubject", "random_calls"]


class _Checks:
    """The relations in the order in which a run checks them; those that are skipped hold."""

    def __init__(self, skipped: frozenset[int] | None) -> None:
        self.skipped, self.answers = skipped, list[bool]()

    def __getitem__(self, relation: str) -> Callable[..., Any]:
        if relation not in RELATIONS:
            return QUESTIONS[relation]

        def holds(left: Any, right: Any) -> bool:
            number = len(self.answers)
            self.answers.append(RELATIONS[relation](left, right))
            return self.skipped is None or number in self.skipped or self.answers[number]

        return holds


@contextmanager
def _skipping(skipped: frozenset[int] | None) -> Iterator[_Checks]:
    """Skip checks by their numbers, or all."""
    checks = _Checks(skipped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision_checks, "QUESTIONS", checks)
        yield checks


def random_calls(rng: random.Random, shapes: Sequence[Sequence[int]], count: int) -> list[list[torch.Tensor]]:
    """Return data for calls, from such of which masks choose all to such of which they choose nothing."""
    calls = []
    for i in range(count):
        draws = torch.Generator().manual_seed(rng.randrange(1 << 30))
        shift = rng.choice([-9.0, 9.0, *(rng.uniform(-2, 2) for _ in range(6))]) if i else 0.3
        calls.append([torch.randn(list(s), generator=draws, dtype=torch.float64) + shift for s in shapes])
    return calls


class DataSubject:
    """A program with the entry for its first data, whose checks of computed sizes are broken."""

    def __init__(self, program: Callable[..., Any], data: Sequence[Sequence[torch.Tensor]]) -> None:
        self.program, self.data = program, data
        self.compiled = thunder.jit(
            program, cache="symbolic values", recompile_limit=None, executors=["torch"]
        )
        with _skipping(frozenset()) as checks:
            outcome(self.compiled, self._make(data[0]))
        entries = thunder.compile_stats(self.compiled).interpreter_cache
        self.entry = entries[-1] if entries else None
        self.checks = len(checks.answers)

    def verdicts(self, calls: int = 4) -> Iterator[Verdict]:
        """Yield for each check what the calls show whose data break it, if possible alone."""
        found: dict[int, list[tuple[int, Any]]] = {k: [] for k in range(self.checks)}
        for call in self.data:
            broken = self._broken_by(call)
            for k in broken:
                found.setdefault(k, []).append((len(broken), call))
        for k, candidates in sorted(found.items()):
            alone = [call for count, call in candidates if count == 1][:calls]
            verdict = Verdict(f"check {k}", calls=len(alone))
            for call in alone or [call for _, call in candidates[:1]]:
                self._try(k, call, verdict, is_alone=bool(alone))
            yield verdict

    def _make(self, call: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        return lambda: [t.clone().requires_grad_() for t in call]

    def _broken_by(self, call: Sequence[torch.Tensor]) -> list[int]:
        """Return the checks that fail for data, up to an error that what runs after the first one raises."""
        with _skipping(None) as checks:
            inputs = self.entry.prologue_fn(*self._make(call)())
            if inputs is None:
                return []
            with suppress(RuntimeError, IndexError, ValueError, TypeError, DecisionChanged):
                self.entry.computation_fn(*inputs[0])
        return [k for k, answer in enumerate(checks.answers) if not answer]

    def _try(self, k: int, call: Sequence[torch.Tensor], verdict: Verdict, *, is_alone: bool) -> None:
        make = self._make(call)
        inputs = self.entry.prologue_fn(*make())
        try:
            self.entry.computation_fn(*inputs[0])
        except DecisionChanged:
            pass
        else:
            verdict.faults.append("the entry is not left")
        expected = outcome(self.program, make)
        fault = difference(expected, outcome(self.compiled, make))
        if fault is not None:
            verdict.faults.append(fault)
        verdict.is_refused &= expected.error is not None
        if is_alone and not verdict.is_needed:
            with _skipping(frozenset((k,))):
                verdict.is_needed = difference(expected, outcome(self._run, make)) is not None

    def _run(self, *args: torch.Tensor) -> Any:
        inputs = self.entry.prologue_fn(*args)
        result = self.entry.computation_fn(*inputs[0])
        return result if self.entry.epilogue_fn is None else self.entry.epilogue_fn(*result, *inputs[1])
