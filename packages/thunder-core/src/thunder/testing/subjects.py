"""What is tested of an executor: each operator that it brought or implements, with what is known of it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, Location, nearest
from thunder.base.tags import OpTags
from thunder.executor_base.executor import Executor, ImplInfo
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.ir.gradient_declarations import NoGradient
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator, row_of, symbol_of
from thunder.passes.placement import runs
from thunder.testing.conformance_failure import ConformanceFailure, NothingToJudge, definition_of
from thunder.testing.sample_call import Call
from thunder.testing.samples import Given, Sample, samples_of

__all__ = ["Settings", "Subject", "subjects"]

#: relative and absolute tolerance of results and gradients, by dtype, over what eager itself is off
TOLERANCES: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-10, 1e-10),
    torch.complex128: (1e-10, 1e-10),
    torch.float32: (1e-5, 1e-5),
    torch.complex64: (1e-5, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (2e-3, 1e-3),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an author may say of the tests; see `thunder.testing.conformance`."""

    samples: Mapping[str, Given] = field(default_factory=dict)
    references: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    operators: tuple[str, ...] = ("*",)
    devices: tuple[torch.device, ...] = (torch.device("cpu"),)
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.bfloat16)
    tolerances: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)
    module: str | None = None

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float]:
        """Relative and absolute tolerance for results of a dtype; nothing for those that are exact."""
        return self.tolerances.get(dtype, TOLERANCES.get(dtype, (0.0, 0.0)))


class Subject:
    """An operator that an executor runs, and the sample calls by which that is judged."""

    def __init__(
        self, executor: Executor, symbol: Symbol, settings: Settings, stands_for: Operator | None = None
    ) -> None:
        self.executor, self.symbol, self.settings = executor, symbol, settings
        self.row = row_of(symbol)
        #: the operator whose samples fit: another one for an operator that only serves as its implementation
        self.stands_for = stands_for or self.row
        self.info: ImplInfo = executor.implmap.get(symbol.id) or ImplInfo()

    @property
    def id(self) -> str:
        """The id of the operator."""
        return self.symbol.id

    @cached_property
    def calls(self) -> list[Call]:
        """The sample calls. Variants of a sample that eager does not take are left out, and so are those
        samples of torch's that the operator's meta function refuses.
        """
        return [call for sample in self._samples() if (call := self._call(sample)) is not None]

    def _samples(self) -> Iterator[Sample]:
        given = self._said(self.settings.samples)
        for device in self.settings.devices:
            yield from samples_of(self.stands_for, given, device, self.settings.dtypes)

    def _call(self, sample: Sample) -> Call | None:
        call = Call(self, sample)
        if call.is_other_operator:
            return None  # it hands an argument on, and nobody is asked
        if sample.name.startswith(("yours", "the row's")) and "," not in sample.name:
            return call
        if call.recording_error is not None and self.stands_for is self.row:
            return None  # not a call that programs can make
        return call if call.reference_error is None else None

    def _said(self, table: Mapping[str, Any]) -> Any:
        """What the author's table has for the operator, or for the one that it serves."""
        ids = [self.id, self.symbol.name, *([self.stands_for.id] if self.stands_for is not None else [])]
        return next((table[i] for i in ids if i in table), None)

    @cached_property
    def reference(self) -> Callable[..., Any] | None:
        """The function of a sample's arguments that says what is right; None if nobody does."""
        said = self._said(self.settings.references)
        if said is not None:
            return said  # type: ignore[no-any-return]
        if isinstance(self.executor, OperatorExecutor):
            for function, symbol in self.executor.replacements.items():
                if symbol is self.symbol:
                    return function
        return _eager_of(self.stands_for)

    def failure(
        self,
        what: str,
        call: Call | None = None,
        *,
        found: Mapping[str, object] | None = None,
        hint: str,
        where: list[Location] | None = None,
    ) -> ConformanceFailure:
        """The error that says of the operator, and of one call of it, what is wrong and what to do."""
        facts: dict[str, object] = {}
        if call is not None:
            facts = {"call": call, "sample": call.sample.name or "unnamed"}
        return ConformanceFailure(
            f"{self.id} of executor {self.executor.name!r}: {what}",
            found={**facts, **(found or {})},
            where=self.where if where is None else where,
            hint=hint,
        )

    def judged_calls(self) -> list[Call]:
        """Those of `run_calls` for which a reference says what is right.

        Raises NothingToJudge without a reference, and ConformanceFailure for one that does not take a call.
        """
        calls = self.run_calls()
        if self.reference is None:
            raise NothingToJudge(
                f"{self.id} has no reference; pass references={{{self.id!r}: a function of torch}}"
            )
        for call in calls:
            if call.reference_error is not None:
                raise self.failure(
                    "its reference does not take a sample call",
                    call,
                    found={"raised": f"{type(call.reference_error).__name__}: {call.reference_error}"},
                    where=definition_of(self.reference),
                    hint="A reference has the operator's signature. Correct it, or leave the sample out.",
                ) from call.reference_error
        return calls

    def exact_calls(self) -> list[Call]:
        """Those that promise values. Raises NothingToJudge if there is none."""
        found = [call for call in self.run_calls() if call.promises_values]
        if not found:
            raise NothingToJudge(f"{self.id} promises no particular values")
        return found

    def run_calls(self) -> list[Call]:
        """The calls that the executor claimed and ran. Raises NothingToJudge if there is none."""
        found = [call for call in self.calls if call.is_run]
        if not found:
            raise NothingToJudge(f"no sample of {self.id} was claimed and ran; other cases say why")
        return found

    @property
    def brings_gradient(self) -> bool:
        """Whether the executor says what the gradient is: for others core's own rules answer."""
        if self.info.grad_transform is not None:
            return True
        own = self.symbol.executor is self.executor
        if not own or self.row is None:
            return False
        return not isinstance(self.symbol.declared_gradient, NoGradient | None)

    @property
    def where(self) -> list[Location]:
        """Where what runs it is defined."""
        own = self.info.symbol if self.info.symbol is not None else self.symbol
        row = row_of(own)
        return definition_of(
            self.info.execution_transform, own.python_impl, row.eager if row is not None else None, own.meta
        )


def _eager_of(row: Operator | None) -> Callable[..., Any] | None:
    if row is None or row.eager is None:
        return None
    eager, symbol = row.eager, symbol_of(row.id)

    def reference(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = symbol.normalize(*args, **kwargs)  # defaults filled in, other spellings undone
        return eager(*args, **kwargs)

    return reference


def subjects(executor: Executor, settings: Settings) -> Iterator[Subject]:
    """The operators of an executor that are to be tested, its own ones first.

    Twins that write in place are not among them: programs are functional before executors are asked. Raises
    InvalidArgument for a name among the samples or references that is no operator's.
    """
    found = list(_all(executor, settings))
    known = {n for s in found for n in (s.id, s.symbol.name)}
    for name in (*settings.samples, *settings.references):
        if name not in known:
            close = nearest(name, known)
            raise InvalidArgument(
                f"executor {executor.name!r} has no operator {name!r} to test",
                hint=f"Did you mean {close!r}?" if close else f"It has {', '.join(sorted(known)) or 'none'}.",
            )
    for subject in found:
        wanted = any(fnmatch.fnmatchcase(subject.id, pattern) for pattern in settings.operators)
        if wanted and OpTags.IN_PLACE not in subject.symbol.tags:
            yield subject


def _all(executor: Executor, settings: Settings) -> Iterator[Subject]:
    serves = {
        info.symbol.id: row_of(operator_id)
        for operator_id, info in executor.implmap.items()
        if info.symbol is not None and not isinstance(executor, FusionExecutor)
    }
    for symbol in executor.opmap.values():
        yield Subject(executor, symbol, settings, stands_for=serves.get(symbol.id))
    for operator_id in executor.implmap:
        if row_of(operator_id) is not None and not _is_own(executor, operator_id):
            yield Subject(executor, symbol_of(operator_id), settings)


def _is_own(executor: Executor, operator_id: str) -> bool:
    return any(symbol.id == operator_id and runs(symbol) for symbol in executor.opmap.values())
