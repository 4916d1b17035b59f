"""The subjects of the tests: each operator that an executor defines or implements, with its samples."""

from __future__ import annotations

import fnmatch
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from thunder.core.errors import InvalidArgument, Location, nearest
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.core.transforms import NoGradient
from thunder.executors.passes import is_executable
from thunder.extend import (
    FUNCTIONAL,
    Executor,
    FusionExecutor,
    ImplInfo,
    Operator,
    OperatorExecutor,
    on_copies,
    row_of,
    symbol_of,
)
from thunder_testing.comparison import written_arguments
from thunder_testing.conformance_failure import ConformanceFailure, NothingToTest, definition_of, error_text
from thunder_testing.expense import MAX_ELEMENTS, is_affordable, is_one_call
from thunder_testing.inner_operators import inner_operators
from thunder_testing.reproduction import program_of
from thunder_testing.row_samples import UNCHECKED_SHAPES
from thunder_testing.sample_call import SampleCall
from thunder_testing.samples import Sample, SampleSource, cast, own_samples_of, samples_of
from thunder_testing.tolerances import Judge
from thunder_testing.variants import SIZES, inner_variants, resized, variants

__all__ = ["Settings", "Subject", "replaced_functions", "subjects"]


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
    programs: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]] = field(default_factory=dict)

    @property
    def judge(self) -> Judge:
        """The bounds of errors."""
        return Judge(self.tolerances)


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
        self._calls: list[SampleCall] | None = None

    @property
    def id(self) -> str:
        """The id of the operator."""
        return self.symbol.id

    @property
    def calls(self) -> list[SampleCall]:
        """The sample calls, without variants that eager refuses and torch's samples that the meta refuses."""
        if self._calls is None:
            self._calls = self.make_calls()
        return self._calls

    def make_calls(self) -> list[SampleCall]:
        """Make `calls`."""
        return [call for sample in self._samples() if (call := self._call(sample)) is not None]

    def forget(self) -> None:
        """Release the calls and their results, which are made again when they are needed."""
        self._calls = None

    @property
    def returns_arguments(self) -> bool:
        """Whether a call of the operator records nothing, and returns an argument."""
        if self.implements is None or self.calls:
            return False
        samples = samples_of(self.implements, None, self.settings.devices[0])
        return any(SampleCall(self, sample).is_other_operator for sample in samples)

    def _samples(self) -> Iterator[Sample]:
        given = self._setting(self.settings.samples)
        for device in self.settings.devices:
            samples = list(samples_of(self.implements, given, device))
            is_of_torch = given is None and self.implements is not None and self.implements.samples is None
            if is_of_torch and not any(map(self._call, samples)) and self.implements is not None:
                samples = list(own_samples_of(self.implements, device))
            yield from samples
            if self.id in inner_operators(self.executor):
                yield from inner_variants(samples, self.settings.dtypes)
                continue
            yield from variants(samples, self.settings.dtypes, self.symbol)
            if self.implements is not None and self.implements.id in UNCHECKED_SHAPES:
                continue
            for sample, sizes in _resizable(samples, self.settings.dtypes):
                yield from resized(sample, sizes, self._accepts)

    def _accepts(self, sample: Sample, size: int) -> bool:
        """Return whether the operator takes a call of another size, and it is cheap enough to run."""
        if size > 1 and (self.reference is None or not is_affordable(self.reference, sample)):
            return False
        call = SampleCall(self, sample)
        if call.tracing_error is not None or not call.is_claimed:
            return False
        outputs = [p for p in call.traced.bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
        is_small = all(math.prod(p.shape) <= MAX_ELEMENTS for p in outputs)
        return self.reference is not None and is_small and call.reference_error is None

    def _call(self, sample: Sample) -> SampleCall | None:
        call = SampleCall(self, sample)
        if call.is_other_operator:
            return None  # it returns an argument, and no executor gets the call
        if sample.is_given:
            return call
        if call.tracing_error is not None and (self.implements is self.row or sample.variant):
            return None  # programs cannot make the call
        if call.reference_error is not None:
            return None
        if sample.variant and call.eager is not None and written_arguments(call.eager):
            return None  # a flag such as `inplace`, which programs have no more when executors get them
        return call

    def _setting(self, table: Mapping[str, Any]) -> Any:
        """Return the entry of a table of settings for the operator, or for the one that it implements."""
        ids = [self.id, *([self.implements.id] if self.implements is not None else [])]
        if self.written:
            ids += [self.id.removesuffix(FUNCTIONAL), self.symbol.name.removesuffix(FUNCTIONAL)]
        if self.symbol.executor is self.executor or self.symbol.name not in _own_names(self.executor):
            ids.insert(1, self.symbol.name)
        return next((table[i] for i in ids if i in table), None)

    @cached_property
    def reference(self) -> Callable[..., Any] | None:
        """The function whose results are right, or None; it takes a sample's arguments."""
        reference = self._setting(self.settings.references)
        for function in (*([reference] if reference is not None else []), *replaced_functions(self)):
            return self._on_copies(function) if self.written else function
        if self._definition is not None:
            return self._definition
        return _eager_of(self.implements)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The arguments to which the operator writes, of which this is the functional form."""
        executor = self.executor
        table = executor.functional_forms if isinstance(executor, OperatorExecutor) else {}
        return next((names for functional, names in table.values() if functional is self.symbol), ())

    def _on_copies(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that writes as one that writes to copies of its arguments, and returns them."""
        assert self.symbol.meta is not None, "a functional form has a meta function"
        return on_copies(function, self.symbol.meta, self.written)

    @property
    def _definition(self) -> Callable[..., Any] | None:
        """The function of torch that an operator of the executor is like, or None."""
        is_own = self.implements is self.row and self.symbol.executor is self.executor
        function = self.row.decomposition if self.row is not None and is_own else None
        function = inspect.unwrap(function) if function is not None else None
        return function if inspect.isfunction(function) else None

    @cached_property
    def is_eager_reference(self) -> bool:
        """Whether a program without the executor has the values of the reference in the same dtype.

        A composed function of `references=`, or the operator's own, defines what is computed in float64, and
        not how results of low precision are rounded; a single call of torch is right as it is.
        """
        is_given = self._setting(self.settings.references) is not None
        is_own = self.implements is self.row and self.symbol.executor is self.executor
        if not is_given and (replaced_functions(self) or self._definition is not None or not is_own):
            return True
        samples = [call.sample for call in self.calls[:1]]
        return (
            self.reference is not None and is_given and all(is_one_call(self.reference, s) for s in samples)
        )

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
        program: dict[str, object] = {}
        if call is not None:
            facts = {"call": call, "arguments": call.sample.title}
            program = {"to reproduce": "\n" + program_of(call)}
        return ConformanceFailure(
            f"{self.id} of executor {self.executor.name!r}: {what}",
            found={**facts, **(found or {}), **program},
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
                    found={"raised": error_text(call.reference_error)},
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

    def small_calls(self) -> list[SampleCall]:
        """Return `run_calls` without large tensors, which are run once."""
        return [call for call in self.run_calls() if not call.sample.is_large]

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


def replaced_functions(subject: Subject) -> list[Callable[..., Any]]:
    """Return the functions that the operator of a subject replaces."""
    executor = subject.executor
    if not isinstance(executor, OperatorExecutor):
        return []
    ids = {i for i, (functional, _) in executor.functional_forms.items() if functional is subject.symbol}
    ids.add(subject.symbol.id)
    return [function for function, symbol in executor.replacements.items() if symbol.id in ids]


def _own_names(executor: Executor) -> frozenset[str]:
    """Return the names of the operators that an executor defines: a bare name means one of these first."""
    return frozenset(symbol.name for symbol in executor.opmap.values())


def _resizable(
    samples: list[Sample], dtypes: tuple[torch.dtype, ...]
) -> Iterator[tuple[Sample, tuple[int, ...]]]:
    """Yield the samples that get variants of other sizes, and the sizes."""
    by_rank: dict[int, Sample] = {}
    for sample in samples:
        if any(x.ndim and x.numel() and x.is_floating_point() for x in sample.tensors):
            by_rank.setdefault(max(x.ndim for x in sample.tensors), sample)
    for number, sample in enumerate(by_rank.values()):
        yield sample, SIZES if number == 0 else SIZES[:2]
        if number == 0 and torch.bfloat16 in dtypes:
            yield cast(sample, torch.bfloat16, "in bfloat16"), SIZES[2:3]


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
    names |= {n.removesuffix(FUNCTIONAL) for s in candidates if s.written for n in (s.id, s.symbol.name)}
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
