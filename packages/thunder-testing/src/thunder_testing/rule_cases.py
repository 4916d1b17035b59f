"""The conformance cases of a rewrite rule: what it replaces computes the same, for many arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

import thunder
from thunder import explain, jit, last_traces
from thunder.core.symbol import Symbol
from thunder_testing.comparison import layout_of
from thunder_testing.conformance_failure import (
    ConformanceFailure,
    NothingToTest,
    definition_of,
    described,
    described_call,
    error_text,
    tensors_in,
)
from thunder_testing.sample_call import memory_of
from thunder_testing.samples import Sample, cast, samples_of
from thunder_testing.suite import Case, expecting
from thunder_testing.tolerances import Judge, Reference, same_bits
from thunder_testing.variants import resized, variants

if TYPE_CHECKING:  # thunder-transforms, which has rules, is there where one is tested
    from thunder.core.patterns import RewriteRule

__all__ = ["RULE_PROPERTIES", "rule_conformance"]

#: the sizes of dimensions of variants
SIZES = (0, 1, 65)

#: how many variants are compiled, and of how many the gradients are compared
MAX_CALLS, MAX_TRAINED = 48, 6


@dataclass(frozen=True, eq=False)
class RuleCall:
    """A program that computes a rule's pattern, and its arguments."""

    subject: RuleSubject
    sample: Sample
    name: str = "the pattern"

    @cached_property
    def program(self) -> Callable[..., Any]:
        """The program, a function of the sample's tensors; numbers are its constants."""
        positions = {id(x): i for i, x in enumerate(self.sample.tensors)}
        places = tuple(positions.get(id(a)) for a in self.sample.args)
        constants = tuple(None if isinstance(a, torch.Tensor) else a for a in self.sample.args)
        program, pattern = PROGRAMS[self.name], self.subject.rule.pattern

        def function(*tensors: torch.Tensor) -> Any:
            args = []
            for i in range(len(places)):
                place = places[i]
                args.append(constants[i] if place is None else tensors[place])
            return program(pattern, args)

        return function

    def compiled(self) -> Any:
        """Return the program, compiled with the rule."""
        executors = self.subject.executors or None
        return jit(
            self.program, executors=executors, transforms=thunder.core.patterns.Rewrites(self.subject.rule)
        )

    def eager(self, sample: Sample) -> list[torch.Tensor]:
        """Return the tensors that eager computes of a sample's own tensors."""
        return tensors_in(self.program(*sample.tensors))

    @cached_property
    def reference(self) -> list[torch.Tensor] | None:
        """The results of eager, or None if eager refuses the arguments."""
        try:
            with torch.no_grad():
                return self.eager(self.sample.copy())
        except Exception:  # a variant may be none that eager takes
            return None

    @cached_property
    def exact(self) -> list[torch.Tensor] | None:
        """The results of eager in float64."""
        try:
            with torch.no_grad():
                return self.eager(cast(self.sample, torch.float64))
        except Exception:  # as above
            return None


def _twice(pattern: Callable[..., Any], args: Sequence[Any]) -> Any:
    halves = [a * 0.5 if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    return pattern(*args), pattern(*halves)


def _around(pattern: Callable[..., Any], args: Sequence[Any]) -> Any:
    given = [torch.sin(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    results = pattern(*given)
    return [x * 2.0 for x in (results if isinstance(results, tuple) else (results,))], given


#: what is around the pattern → a program with it
PROGRAMS: Mapping[str, Callable[[Callable[..., Any], Sequence[Any]], Any]] = {
    "the pattern": lambda pattern, args: pattern(*args),
    "the pattern twice": _twice,
    "the pattern between other calls": _around,
}


@dataclass(frozen=True, eq=False)
class RuleSubject:
    """A rule, with the arguments of its pattern."""

    rule: RewriteRule
    samples: Sequence[Any]
    executors: Sequence[Any]
    dtypes: tuple[torch.dtype, ...]
    tolerances: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def calls(self) -> list[RuleCall]:
        """The programs that eager runs: of the samples, of their variants, and with calls around them."""
        given = list(samples_of(None, self.samples, torch.device("cpu")))
        symbol = Symbol(self.rule.name.rpartition(".")[2], self.rule.name, self.rule.pattern)
        other = list(variants(given, self.dtypes, symbol))
        for sample in given[:1]:
            other += resized(sample, SIZES, lambda s, n: RuleCall(self, s).reference is not None)
        calls = [RuleCall(self, s, name) for s in given for name in PROGRAMS]
        calls += [RuleCall(self, s) for s in other[:MAX_CALLS]]
        return [call for call in calls if call.reference is not None]

    def failure(
        self, what: str, call: RuleCall | None = None, *, found: Mapping[str, object] | None = None, hint: str
    ) -> ConformanceFailure:
        """Return the error for a fault of the rule, with the call that shows it."""
        facts: dict[str, object] = {}
        if call is not None:
            pattern = described_call(self.rule.name, call.sample.args, {})
            facts = {"program": call.name, "call": pattern, "arguments": call.sample.title}
        return ConformanceFailure(
            f"rewrite rule {self.rule.name!r}: {what}",
            found={**facts, **(found or {})},
            where=definition_of(self.rule.replacement, self.rule.pattern),
            hint=hint,
        )

    def run(
        self, call: RuleCall, mode: AbstractContextManager[Any] | None = None
    ) -> tuple[Any, list[torch.Tensor]]:
        """Return the compiled program and the tensors of its result. Raises ConformanceFailure."""
        compiled = call.compiled()
        try:
            with mode or nullcontext(), torch.no_grad():
                return compiled, tensors_in(compiled(*call.sample.copy().tensors))
        except Exception as error:
            raise self.failure(
                "a program with it fails",
                call,
                found={"raised": error_text(error)},
                hint="The replacement takes what the pattern takes, or check= refuses the arguments.",
            ) from error


# -- cases ---------------------------------------------------------------------------------------------------


def check_applied(subject: RuleSubject) -> None:
    """Check that there are samples, and that the pattern of each is replaced or refused with a reason."""
    if not subject.calls:
        raise subject.failure(
            "it is not tested, since there are no arguments that its pattern takes",
            hint="Pass samples=[(x, weight, 1e-5)]: arguments of the pattern.",
        )
    reasons: set[str] = set()
    for call in subject.calls:
        if call.sample.variant or call.name != "the pattern":
            continue
        compiled, _ = subject.run(call)
        rewritings = [
            note for note in explain(compiled).notes if isinstance(note, thunder.core.patterns.Rewriting)
        ]
        if any(r.is_applied for r in rewritings):
            return
        reasons |= {str(r.refusal) for r in rewritings}
    raise subject.failure(
        "it is applied to none of its samples, not to its own pattern",
        found={"refused": "; ".join(sorted(reasons)) or "the pattern is not found in the program"},
        hint="Pass samples that check= accepts, and the executors that the rule names: executors=[…].",
    )


def check_rule_values(subject: RuleSubject) -> None:
    """Check that programs have eager's results: number, types, strides, values, and unchanged arguments."""
    judge = Judge(subject.tolerances)
    for call in subject.calls:
        given = call.sample.copy()
        before = [memory_of(x).clone() for x in given.tensors]
        compiled = call.compiled()
        try:
            with torch.no_grad():
                ours = tensors_in(compiled(*given.tensors))
        except Exception as error:
            raise subject.failure(
                "a program with it fails",
                call,
                found={"raised": error_text(error)},
                hint="The replacement takes what the pattern takes, or check= refuses the arguments.",
            ) from error
        if not all(same_bits(memory_of(x), b) for x, b in zip(given.tensors, before, strict=True)):
            raise subject.failure(
                "a program with it changes its arguments", call, hint="A replacement writes to fresh memory."
            )
        _compare(subject, call, ours, judge)


def _compare(subject: RuleSubject, call: RuleCall, ours: Sequence[torch.Tensor], judge: Judge) -> None:
    eager, exact = call.reference or [], call.exact
    if exact is None or [x.shape for x in exact] != [x.shape for x in eager]:
        exact = eager
    if len(ours) != len(eager):
        raise subject.failure(
            "a program with it returns another number of tensors",
            call,
            found={"eager": described(eager), "with the rule": described(ours)},
            hint="The replacement returns what the pattern returns.",
        )
    for i, (x, y, z) in enumerate(zip(ours, eager, exact, strict=True)):
        if (x.shape, x.dtype) != (y.shape, y.dtype) or layout_of(x) != layout_of(y):
            raise subject.failure(
                f"result {i} has another type or other strides than eager's",
                call,
                found={"eager": described(y), "with the rule": described(x)},
                hint="The replacement has the pattern's results, or check= refuses the arguments.",
            )
        fault = judge.fault(x, Reference(exact=z, eager=y, scale=_scale(call.sample)))
        if fault is not None:
            raise subject.failure(
                f"result {i} of a program with it is wrong",
                call,
                found={"against eager in float64": fault, "bound": judge.bound(x.dtype)},
                hint="Correct the replacement, or let check= refuse these arguments.",
            )


def _scale(sample: Sample) -> float:
    finite = [x.detach().abs().nan_to_num(0.0, 0.0, 0.0).max() for x in sample.tensors if x.numel()]
    return max(map(float, finite), default=1.0)


def check_rule_training(subject: RuleSubject) -> None:
    """Check that gradients of a program with the rule are eager's."""
    checked, judge = 0, Judge(subject.tolerances, factor=4.0)
    for call in subject.calls:
        floating = [i for i, x in enumerate(call.sample.tensors) if x.is_floating_point()]
        finite = all(bool(x.isfinite().all()) for x in call.sample.tensors)
        if not floating or not finite or call.sample.is_large or checked == MAX_TRAINED:
            continue
        try:
            eager = _gradients(call.program, call.sample.copy(), floating)
            exact = _gradients(call.program, cast(call.sample, torch.float64), floating)
        except RuntimeError:  # eager does not differentiate it
            continue
        compiled = call.compiled()
        try:
            ours = _gradients(compiled, call.sample.copy(), floating)
        except Exception as error:
            raise subject.failure(
                "the gradient of a program with it fails",
                call,
                found={"raised": error_text(error)},
                hint="The operators of the replacement have gradients: vjp= or a grad_transform.",
            ) from error
        checked += 1
        for i, x, y, z in zip(floating, ours, eager, exact, strict=True):
            fault = judge.fault(x, Reference(exact=z, eager=y, scale=_scale(call.sample)))
            if fault is not None:
                raise subject.failure(
                    f"the gradient of tensor {i} of a program with it is wrong",
                    call,
                    found={"against eager in float64": fault},
                    hint="Programs are rewritten before they are differentiated: the gradient is that of the "
                    "replacement.",
                )
    if not checked:
        raise NothingToTest("eager differentiates no sample")


def _gradients(program: Callable[..., Any], sample: Sample, floating: Sequence[int]) -> list[torch.Tensor]:
    tensors = sample.tensors
    inputs = [tensors[i].requires_grad_() for i in floating]
    results = [x for x in tensors_in(program(*tensors)) if x.requires_grad]
    weights = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
    gradients = torch.autograd.grad(results, inputs, weights, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients, strict=True)]


def check_rule_autocast(subject: RuleSubject) -> None:
    """Check that under autocast a program has eager's types, and values in their precision."""
    judge = Judge(subject.tolerances, factor=4.0)
    for call in subject.calls[: len(PROGRAMS)]:
        sample = call.sample.copy()
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            eager = call.eager(sample)
        _, ours = subject.run(call, torch.autocast("cpu", torch.bfloat16))
        exact = call.exact or eager
        for i, (x, y, z) in enumerate(zip(ours, eager, exact, strict=False)):
            same = (x.shape, x.dtype) == (y.shape, y.dtype)
            fault = judge.fault(x, Reference(exact=z, eager=y)) if same else None
            if not same or fault is not None:
                raise subject.failure(
                    f"result {i} of a program with it is another under autocast than eager's",
                    call,
                    found={"eager": described(y), "with the rule": described(x), "values": fault},
                    hint="autocast= of the operators that the replacement calls says what they are cast to; "
                    "casts= of the rule, which casts a program may have.",
                )


def check_rule_repeats(subject: RuleSubject) -> None:
    """Check that a program is rewritten into the same text each time."""
    for call in subject.calls[: len(PROGRAMS)]:
        texts = []
        for _ in range(2):
            compiled, _ = subject.run(call)
            texts.append([t.python(include_timing=False) for t in last_traces(compiled)])
        if texts[0] != texts[1]:
            raise subject.failure(
                "two compiles of a program with it give different programs",
                call,
                hint="Leave out of the replacement and the check what depends on earlier compiles or on ids.",
            )


#: property → its check
RULE_PROPERTIES: Mapping[str, Callable[[RuleSubject], None]] = {
    "applied": check_applied,
    "values": check_rule_values,
    "training": check_rule_training,
    "autocast": check_rule_autocast,
    "repeats": check_rule_repeats,
}


def rule_conformance(
    rules: RewriteRule | Iterable[RewriteRule],
    samples: Mapping[str, Sequence[Any]] | Sequence[Any],
    *,
    executors: Sequence[Any] = (),
    dtypes: Iterable[torch.dtype] = (torch.float32, torch.float64, torch.bfloat16),
    tolerances: Mapping[torch.dtype, tuple[float, float]] | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> Iterator[Case]:
    """Return the tests of rewrite rules: `for case in rule_conformance(rule, [(x, w)]): case.run()`.

    Args:
        rules: a rule that `thunder.core.patterns.rewrite` makes, or several.
        samples: arguments of the pattern, `[(x, weight, 1e-5)]`; for several rules, by their names.
        executors: of the compiles: those that the rules name, and those of the operators of replacements.
        dtypes: of the floating-point variants of samples.
        tolerances: (relative, absolute) of results by dtype, in place of the defaults.
        expected_failures: name of a case → why it fails. Such a case fails when it passes.

    Raises InvalidArgument for the name of a case that does not exist.
    """
    listed = list(rules) if isinstance(rules, Iterable) else [rules]
    tables = samples if isinstance(samples, Mapping) else {rule.name: samples for rule in listed}
    cases = []
    for rule in listed:
        subject = RuleSubject(
            rule, list(tables.get(rule.name, ())), list(executors), tuple(dtypes), dict(tolerances or {})
        )
        cases += [
            Case(f"{name}-{rule.name}", name, rule.name, partial(check, subject))
            for name, check in RULE_PROPERTIES.items()
        ]
    return iter(expecting(cases, dict(expected_failures or {})))
