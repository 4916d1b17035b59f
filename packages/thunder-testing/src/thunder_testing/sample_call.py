"""A sample call and the steps of its compilation: traced, offered to the executor, lowered, run.

Each step is taken when its result is first needed. One case reports the exceptions of one step
(`tracing_error`, `checker_error`, `lowering_error`, `running_error`); the others leave such calls out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch

from thunder.core.symbol import has_tags
from thunder.core.tags import VIEW_TAGS, OpTags
from thunder.extend import Refusal
from thunder_testing.conformance_failure import described_call, tensors_in
from thunder_testing.reproduction import call_text, callee_text, function_of
from thunder_testing.sample_lowering import SEED, LoweredProgram, TracedCall, lowered, seeded, trace_call
from thunder_testing.samples import Sample, cast, perturbed
from thunder_testing.tensor_layouts import copied, has_storage
from thunder_testing.tolerances import LOW_PRECISION, Reference

if TYPE_CHECKING:
    from thunder_testing.subjects import Subject

__all__ = ["Outcome", "SampleCall"]

#: operators whose results are uninitialised memory
UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided")


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run: its arguments, copies of them from before the run, and its result.

    `versions` are torch's counters of writes to the arguments, from before the run.
    """

    given: list[torch.Tensor]
    before: list[torch.Tensor]
    result: Any
    versions: list[int]

    @classmethod
    def of(cls, fn: Callable[[], Any], given: list[torch.Tensor]) -> Outcome:
        """Return the outcome of a run."""
        before, versions = [memory_of(x).clone() for x in given], [version_of(x) for x in given]
        return cls(given, before, fn(), versions)


def version_of(x: torch.Tensor) -> int:
    """Return torch's counter of writes to a tensor; inference tensors have none."""
    return 0 if x.is_inference() else x._version


def memory_of(x: torch.Tensor) -> torch.Tensor:
    """Return all elements of a tensor's storage, also those between and beyond its own."""
    if not has_storage(x):
        return copied(x.detach())
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())


class SampleCall:
    """One sample call of a subject."""

    #: what the program of the call is, in failures
    program_text = ""

    @property
    def is_single(self) -> bool:
        """Whether the program is the call alone, with its results."""
        return not self.program_text

    def __init__(self, subject: Subject, sample: Sample) -> None:
        self.subject, self.sample = subject, sample

    def __str__(self) -> str:
        return described_call(self.subject.symbol.name, self.sample.args, self.sample.kwargs)

    def like(self, sample: Sample) -> SampleCall:
        """Return the same call of another sample."""
        return type(self)(self.subject, sample)

    def body(self, names: dict[int, str]) -> tuple[list[str], list[str]]:
        """Return lines that define operators, and the body of a function: an expression or statements."""
        setup, callee = callee_text(self.subject)
        return setup, [call_text(callee, tuple(self.sample.args), self.sample.kwargs, names)]

    # -- steps

    @cached_property
    def traced(self) -> TracedCall:
        """The call, traced on proxies."""
        return trace_call(self.subject.symbol, self.sample)

    @cached_property
    def tracing_error(self) -> Exception | None:
        """The exception of the meta function or of the operator's decomposition."""
        return _raised(lambda: self.traced)

    @property
    def is_other_operator(self) -> bool:
        """Whether the call recorded nothing, or another operator."""
        return self.tracing_error is None and self.traced.bsym.sym.id != self.subject.id

    @cached_property
    def answer(self) -> bool | Refusal:
        """The executor's answer for the call."""
        return self.subject.executor.can_execute_or_fuse(self.traced.bsym)

    @cached_property
    def checker_error(self) -> Exception | None:
        """The exception of the checker."""
        return None if self.tracing_error else _raised(lambda: self.answer)

    @cached_property
    def is_claimed(self) -> bool:
        """Whether the executor claims the call."""
        return self.tracing_error is None and self.checker_error is None and self.answer is True

    @cached_property
    def program(self) -> LoweredProgram:
        """The lowered program, in which the executor runs the call."""
        return self.lower()

    def lower(self) -> LoweredProgram:
        """Lower the program once more."""
        return lowered(self.traced.trace, self.subject.executor)

    def compile_again(self) -> LoweredProgram:
        """Trace, offer and lower the call once more."""
        other = self.like(self.sample)
        other.subject.executor.can_execute_or_fuse(other.traced.bsym)
        return other.program

    @cached_property
    def lowering_error(self) -> Exception | None:
        """The exception of an execution transform, a fusion pass or the checks of their traces."""
        return _raised(lambda: self.program) if self.is_claimed else None

    @cached_property
    def outcome(self) -> Outcome:
        """The first run."""
        return self.run()

    @cached_property
    def running_error(self) -> Exception | None:
        """The exception of the first run."""
        return _raised(lambda: self.outcome) if self.is_claimed and self.lowering_error is None else None

    @property
    def is_run(self) -> bool:
        """Whether the executor claimed the call and it ran."""
        return self.is_claimed and self.lowering_error is None and self.running_error is None

    def run(self, fn: Callable[..., Any] | None = None, seed: int = SEED) -> Outcome:
        """Run the program on copies of the sample's tensors."""
        given = self.sample.copy().tensors
        program = fn or self.program.run
        with seeded(seed):
            return Outcome.of(lambda: program(*given), given)

    # -- the reference

    @cached_property
    def is_random(self) -> bool:
        """Whether the operator is tagged as one that draws random numbers."""
        return self.tracing_error is None and has_tags(self.traced.bsym, (OpTags.RANDOM_OP,))

    @property
    def promises_values(self) -> bool:
        """Whether results are the same whenever the arguments are."""
        return not self.is_random and self.subject.symbol.name not in UNINITIALISED

    @cached_property
    def eager(self) -> Outcome | None:
        """The run of the reference, or None without one."""
        return self._reference_on(self.sample)

    @cached_property
    def reference_error(self) -> Exception | None:
        """The exception of the reference."""
        return _raised(lambda: self.eager)

    @cached_property
    def exact(self) -> Outcome | None:
        """The run of the reference in float64, or None if it refuses float64."""
        return self._reference_in(torch.float64)

    @cached_property
    def single(self) -> Outcome | None:
        """The run of the reference in float32 of inputs of low precision, or None."""
        if not any(x.dtype in LOW_PRECISION for x in self.sample.tensors):
            return None
        return self._reference_in(torch.float32)

    def _reference_in(self, dtype: torch.dtype) -> Outcome | None:
        sample = cast(self.sample, dtype)
        try:
            return self._reference_on(sample)
        except Exception:  # a reference may refuse a dtype with any exception
            return None

    def _reference_on(self, sample: Sample) -> Outcome | None:
        if self.subject.reference is None:
            return None
        sample = sample.copy()
        with seeded(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # samples may use what torch warns about
            return Outcome.of(lambda: self.evaluate(sample), sample.tensors)

    def evaluate(self, sample: Sample) -> Any:
        """Return the result of the reference on a sample's own tensors."""
        assert self.subject.reference is not None, "the caller checks it"
        return self.subject.reference(*sample.args, **sample.kwargs)

    def function(self) -> Callable[..., Any]:
        """Return a function of the sample's tensors that makes the call, for `thunder.jit`."""
        return function_of(self, {"ex": self.subject.executor}, has_setup=True)

    def may_alias(self, ours: set[str], theirs: set[str]) -> bool:
        """Return whether results may share this memory, if eager's results share `theirs`."""
        subject = self.subject
        tags = subject.symbol.tags | (
            subject.info.symbol.tags if subject.info.symbol is not None else frozenset()
        )
        if tags & VIEW_TAGS:
            return True
        # the tags of an operator that the executor implements describe eager's
        is_own = subject.row is subject.implements and subject.symbol.executor is subject.executor
        return not is_own and ours <= theirs

    def references(self) -> list[Reference]:
        """Return the right values of the tensors of the result, and of the arguments after the run."""
        eager = self.eager
        assert eager is not None, "calls without reference are left out"
        exact = self.exact if _is_alike(self.exact, eager) else eager
        single = self.single if _is_alike(self.single, eager) else None
        assert exact is not None, "eager is there"
        shapes = {tuple(x.shape) for x in self.sample.tensors}
        return [
            Reference(
                exact=z,
                eager=y,
                single=s,
                is_eager=self.subject.is_eager_reference,
                is_elementwise=tuple(y.shape) in shapes,
                scale=_scale(self.sample),
                perturbed=partial(self._perturbed, i, z),
            )
            for i, (y, z, s) in enumerate(
                zip(
                    tensors_in(eager.result),
                    tensors_in(exact.result),
                    tensors_in(single.result)
                    if single is not None
                    else [None] * len(tensors_in(eager.result)),
                    strict=True,
                )
            )
        ]

    def _perturbed(self, number: int, exact: torch.Tensor) -> list[torch.Tensor]:
        """Return a tensor of the result in float64, of inputs that are changed in their last bits."""
        results = []
        for seed in (1, 2, 3):
            wide = cast(perturbed(self.sample, seed), torch.float64)
            outcome = self._reference_on(wide) if self.exact is not None else None
            tensors = tensors_in(outcome.result) if outcome is not None else []
            results += [x for x in tensors[number : number + 1] if x.shape == exact.shape]
        return results


def _is_alike(outcome: Outcome | None, eager: Outcome) -> bool:
    """Return whether a run in another precision has results of the same shapes."""
    if outcome is None:
        return False
    ours, theirs = tensors_in(outcome.result), tensors_in(eager.result)
    return [x.shape for x in ours] == [x.shape for x in theirs]


def _scale(sample: Sample) -> float:
    """Return the largest finite magnitude of the floating-point arguments."""
    largest = [
        x.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()
        for x in sample.tensors
        if (x.is_floating_point() or x.is_complex()) and x.numel() and has_storage(x)
    ]
    return max((float(x) for x in largest), default=1.0)


def _raised(step: Callable[[], Any]) -> Exception | None:
    try:
        step()
    except Exception as error:
        return error
    return None
