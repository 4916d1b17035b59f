"""The subjects of the tests: each operator that an executor defines or implements, with its samples."""

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
from thunder.passes.placement import is_executable
from thunder.testing.conformance_failure import ConformanceFailure, NothingToTest, definition_of
from thunder.testing.sample_call import SampleCall
from thunder.testing.samples import Sample, SampleSource, samples_of

__all__ = ["Settings", "Subject", "subjects"]

#: relative and absolute tolerance of results and gradients by dtype, in addition to eager's own error
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
    """The arguments of `thunder.testing.conformance`."""

    samples: Mapping[str, SampleSource] = field(default_factory=dict)
    references: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    operators: tuple[str, ...] = ("*",)
    devices: tuple[torch.device, ...] = (torch.device("cpu"),)
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.bfloat16)
    tolerances: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)
    module: str | None = None

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float]:
        """Return the relative and absolute tolerance for results of a dtype; 0 for exact ones."""
        return self.tolerances.get(dtype, TOLERANCES.get(dtype, (0.0, 0.0)))


class Subject:
    """An operator that an executor runs, with its sample calls and its reference."""

    def __init__(
        self, executor: Executor, symbol: Symbol, settings: Settings, implements: Operator | None = None
    ) -> None:
        self.executor, self.symbol, self.settings = executor, symbol, settings
        self.row = row_of(symbol)
        #: the operator whose samples are used: for an operator that only implements another one, that one
        self.implements = implements or self.row
        self.info: ImplInfo = executor.implmap.get(symbol.id) or ImplInfo()

    @property
    def id(self) -> str:
        """The id of the operator."""
        return self.symbol.id

    @cached_property
    def calls(self) -> list[SampleCall]:
        """The sample calls, without variants that eager refuses and torch's samples that the meta refuses."""
        return [call for sample in self._samples() if (call := self._call(sample)) is not None]

    def _samples(self) -> Iterator[Sample]:
        samples = self._setting(self.settings.samples)
        for device in self.settings.devices:
            yield from samples_of(self.implements, samples, device, self.settings.dtypes)

    def _call(self, sample: Sample) -> SampleCall | None:
        call = SampleCall(self, sample)
        if call.is_other_operator:
            return None  # it returns an argument, and no executor gets the call
        if sample.name.startswith(("yours", "the row's")) and "," not in sample.name:
            return call
        if call.tracing_error is not None and self.implements is self.row:
            return None  # programs cannot make the call
        return call if call.reference_error is None else None

    def _setting(self, table: Mapping[str, Any]) -> Any:
        """Return the entry of a table of settings for the operator, or for the one that it implements."""
        ids = [self.id, self.symbol.name, *([self.implements.id] if self.implements is not None else [])]
        return next((table[i] for i in ids if i in table), None)

    @cached_property
    def reference(self) -> Callable[..., Any] | None:
        """The function whose results are right, or None; it takes a sample's arguments."""
        reference = self._setting(self.settings.references)
        if reference is not None:
            return reference  # type: ignore[no-any-return]
        if isinstance(self.executor, OperatorExecutor):
            for function, symbol in self.executor.replacements.items():
                if symbol is self.symbol:
                    return function
        return _eager_of(self.implements)

    def failure(
        self,
        what: str,
        call: SampleCall | None = None,
        *,
        found: Mapping[str, object] | None = None,
        hint: str,
        where: list[Location] | None = None,
    ) -> ConformanceFailure:
        """Return the error for a fault of the operator, with a call that shows it and a hint."""
        facts: dict[str, object] = {}
        if call is not None:
            facts = {"call": call, "sample": call.sample.name or "unnamed"}
        return ConformanceFailure(
            f"{self.id} of executor {self.executor.name!r}: {what}",
            found={**facts, **(found or {})},
            where=self.where if where is None else where,
            hint=hint,
        )

    def calls_with_reference(self) -> list[SampleCall]:
        """Return `run_calls`, after checking that the reference takes each of them.

        Raises NothingToTest without a reference, and ConformanceFailure for one that refuses a call.
        """
        calls = self.run_calls()
        if self.reference is None:
            raise NothingToTest(
                f"{self.id} has no reference; pass references={{{self.id!r}: a function of torch}}"
            )
        for call in calls:
            if call.reference_error is not None:
                raise self.failure(
                    "its reference refuses a sample call",
                    call,
                    found={"raised": f"{type(call.reference_error).__name__}: {call.reference_error}"},
                    where=definition_of(self.reference),
                    hint="A reference has the operator's signature. Correct it, or leave the sample out.",
                ) from call.reference_error
        return calls

    def exact_calls(self) -> list[SampleCall]:
        """Return the calls whose values are determined. Raises NothingToTest if there is none."""
        calls = [call for call in self.run_calls() if call.promises_values]
        if not calls:
            raise NothingToTest(f"the results of {self.id} are random or uninitialised")
        return calls

    def run_calls(self) -> list[SampleCall]:
        """Return the calls that the executor claimed and ran. Raises NothingToTest if there is none."""
        calls = [call for call in self.calls if call.is_run]
        if not calls:
            raise NothingToTest(f"no sample of {self.id} was claimed and ran; other cases have the reason")
        return calls

    @property
    def has_own_gradient(self) -> bool:
        """Whether the gradient is the executor's, and not that of core's rules."""
        if self.info.grad_transform is not None:
            return True
        own = self.symbol.executor is self.executor
        if not own or self.row is None:
            return False
        return not isinstance(self.symbol.declared_gradient, NoGradient | None)

    @property
    def where(self) -> list[Location]:
        """The definition of the function that runs the operator."""
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
        args, kwargs = symbol.normalize(*args, **kwargs)  # with defaults, and arguments by their own names
        return eager(*args, **kwargs)

    return reference


def subjects(executor: Executor, settings: Settings) -> Iterator[Subject]:
    """Yield the operators of an executor that are to be tested, those that it defines first.

    In-place variants are not tested: programs are functional before executors claim calls. Raises
    InvalidArgument if samples or references name an operator that the executor does not have.
    """
    candidates = list(_all(executor, settings))
    names = {n for s in candidates for n in (s.id, s.symbol.name)}
    for name in (*settings.samples, *settings.references):
        if name not in names:
            close = nearest(name, names)
            raise InvalidArgument(
                f"executor {executor.name!r} has no operator {name!r} to test",
                hint=f"Did you mean {close!r}?" if close else f"It has {', '.join(sorted(names)) or 'none'}.",
            )
    for subject in candidates:
        is_selected = any(fnmatch.fnmatchcase(subject.id, pattern) for pattern in settings.operators)
        if is_selected and OpTags.IN_PLACE not in subject.symbol.tags:
            yield subject


def _all(executor: Executor, settings: Settings) -> Iterator[Subject]:
    implemented = {
        info.symbol.id: row_of(operator_id)
        for operator_id, info in executor.implmap.items()
        if info.symbol is not None and not isinstance(executor, FusionExecutor)
    }
    for symbol in executor.opmap.values():
        yield Subject(executor, symbol, settings, implements=implemented.get(symbol.id))
    for operator_id in executor.implmap:
        if row_of(operator_id) is not None and not _is_own(executor, operator_id):
            yield Subject(executor, symbol_of(operator_id), settings)


def _is_own(executor: Executor, operator_id: str) -> bool:
    return any(symbol.id == operator_id and is_executable(symbol) for symbol in executor.opmap.values())
