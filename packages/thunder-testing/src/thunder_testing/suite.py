"""The conformance cases of an executor: each property, for each of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch

from thunder.core.errors import InvalidArgument, did_you_mean
from thunder.core.symbol import Symbol
from thunder.extend import Executor, FusionExecutor, get_executor, resolve_executors
from thunder_testing import (
    checker_cases,
    failure_cases,
    global_state_cases,
    gradient_cases,
    import_case,
    program_cases,
    result_cases,
    training_cases,
)
from thunder_testing.author_programs import ProgramSubject
from thunder_testing.fusion_cases import FUSION_PROPERTIES, RegionSubject
from thunder_testing.global_state import restored
from thunder_testing.samples import SampleSource
from thunder_testing.subjects import Settings, Subject, subjects

__all__ = ["FUSION_PROPERTIES", "OPERATOR_PROPERTIES", "Case", "conformance", "expecting"]

SubjectT = TypeVar("SubjectT", bound=Subject)

#: property → its check, for each operator
OPERATOR_PROPERTIES: Mapping[str, Callable[[Subject], None]] = {
    "samples": checker_cases.check_samples,
    "metadata": result_cases.check_metadata,
    "checker": checker_cases.check_checker,
    "refusals": checker_cases.check_refusals,
    "claims": checker_cases.check_claims,
    "values": result_cases.check_values,
    "strides": result_cases.check_strides,
    "aliasing": result_cases.check_aliasing,
    "inputs": result_cases.check_inputs,
    "repeats": result_cases.check_repeats,
    "gradient": gradient_cases.check_gradients,
    "state": global_state_cases.check_state,
    "releases": global_state_cases.check_releases,
    "modes": global_state_cases.check_modes,
    "threads": global_state_cases.check_threads,
    "failures": failure_cases.check_failures,
    "jit": program_cases.check_compiled_function,
    "shapes": program_cases.check_changing_shapes,
    "training": training_cases.check_training,
}


@dataclass(frozen=True)
class Case:
    """One test of an executor or a transform.

    `run()` returns None, or raises `ConformanceFailure`, or `unittest.SkipTest` if there is nothing to test.
    `name` is `"<property>-<operator id>"`, or of a transform `"<property>-<program>"`; `expected` is the
    reason for an expected failure, or None.
    """

    name: str
    property: str
    operator: str | None
    check: Callable[[], None]
    expected: str | None = None

    def run(self) -> None:
        """Run the test, and restore the global state that it changes."""
        with restored():
            self.check()

    def __str__(self) -> str:
        return self.name


def conformance(
    executor: Executor | str,
    *,
    samples: Mapping[str | Symbol, SampleSource] | None = None,
    references: Mapping[str | Symbol, Callable[..., Any]] | None = None,
    operators: Iterable[str] | str = ("*",),
    devices: Iterable[Any] | None = None,
    dtypes: Iterable[torch.dtype] | None = None,
    tolerances: Mapping[torch.dtype, tuple[float, float]] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    module: str | None = None,
    programs: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]] | None = None,
) -> Iterator[Case]:
    """Return the tests of an executor: `for case in conformance(my_ex): case.run()`.

    Args:
        executor: an executor or the name of a registered one.
        samples: by an operator's id, name or symbol: a list of calls `((x, weight), {"eps": 1e-5})`, or a
            function `(device, dtype, requires_grad)` that returns one. Torch's functions have samples.
        references: by operator: a function of the same arguments with the right results. Operators that
            replace a function or implement a row need none.
        operators: patterns of ids to test.
        devices: of samples; by default the CPU and, if there is one, the CUDA device.
        dtypes: of the floating-point variants of samples; by default float32, float64 and bfloat16.
        tolerances: (relative, absolute) of results by dtype, in place of the defaults.
        expected_failures: name of a case → why it fails. Such a case fails when it passes.
        module: that defines the executor, if it cannot be inferred.
        programs: by a name: a function of torch and its arguments, of which a fusion executor makes regions.

    Raises InvalidArgument for the name of an operator or a case that does not exist.
    """
    (tested,) = resolve_executors((get_executor(executor) if isinstance(executor, str) else executor,))
    settings = Settings(
        samples={k: v if callable(v) else list(v) for k, v in _by_id(samples).items()},
        references=_by_id(references),
        operators=(operators,) if isinstance(operators, str) else tuple(operators),
        module=module,
        tolerances=dict(tolerances or {}),
        programs=dict(programs or {}),
    )
    if devices is not None or torch.cuda.is_available():
        names = devices if devices is not None else ("cpu", "cuda")
        settings = replace(settings, devices=tuple(torch.device(name) for name in names))
    if dtypes is not None:
        settings = replace(settings, dtypes=tuple(dtypes))
    return iter(expecting(list(_cases(tested, settings)), dict(expected_failures or {})))


def _by_id(table: Mapping[str | Symbol, Any] | None) -> dict[str, Any]:
    return {key.id if isinstance(key, Symbol) else key: value for key, value in (table or {}).items()}


def _cases(executor: Executor, settings: Settings) -> Iterator[Case]:
    recent = _Recent()
    tested = list(subjects(executor, settings))
    programs = [ProgramSubject(executor, name, *given, settings) for name, given in settings.programs.items()]
    for subject in tested:
        for name, check in OPERATOR_PROPERTIES.items():
            if name != "gradient" or subject.has_own_gradient:
                yield Case(f"{name}-{subject.id}", name, subject.id, partial(recent.run, subject, check))
        if isinstance(executor, FusionExecutor):
            yield from _fusion_cases(RegionSubject(subject, tested, programs=programs), recent)
    for program in programs:
        yield from _fusion_cases(program, recent)
    yield Case("import", "import", None, partial(import_case.check_import, executor, settings))


def _fusion_cases(subject: RegionSubject, recent: _Recent) -> Iterator[Case]:
    for name, check in FUSION_PROPERTIES.items():
        yield Case(f"{name}-{subject.id}", name, subject.id, partial(recent.run, subject, check))


class _Recent:
    """The subject whose calls are kept, with their results; those of others are computed again."""

    def __init__(self) -> None:
        self.subject: Subject | None = None

    def run(self, subject: SubjectT, check: Callable[[SubjectT], None]) -> None:
        """Run a check of a subject, and release what the subject of the last check has computed."""
        if self.subject is not None and self.subject is not subject:
            self.subject.forget()
        self.subject = subject
        check(subject)


def expecting(cases: list[Case], expected: dict[str, str]) -> list[Case]:
    """Return cases with the reasons for which some are expected to fail, by name."""
    names = {case.name for case in cases}
    for name in expected:
        if name not in names:
            raise InvalidArgument(f"there is no case {name!r}.{did_you_mean(name, names)}")
    return [replace(case, expected=expected.get(case.name)) for case in cases]
