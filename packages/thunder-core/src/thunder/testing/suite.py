"""The cases of an executor: each property that is asked of an operator, for each of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.extend import get_executor, resolve_executors
from thunder.ir.symbol import Symbol
from thunder.testing import (
    checker_cases,
    fusion_cases,
    global_state_cases,
    gradient_cases,
    import_case,
    program_cases,
    result_cases,
)
from thunder.testing.global_state import restored
from thunder.testing.samples import Given
from thunder.testing.subjects import Settings, Subject, subjects

__all__ = ["OF_FUSIONS", "OF_OPERATORS", "Case", "conformance"]

#: name → what is asked of each operator
OF_OPERATORS: Mapping[str, Callable[[Subject], None]] = {
    "samples": checker_cases.samples_are_there,
    "metadata": result_cases.meta_is_reality,
    "checker": checker_cases.checker_can_be_asked,
    "refusals": checker_cases.refusals_have_reasons,
    "claims": checker_cases.claims_hold,
    "values": result_cases.results_are_right,
    "strides": result_cases.strides_are_eagers,
    "aliasing": result_cases.sharing_is_declared,
    "inputs": result_cases.inputs_are_left_alone,
    "repeats": result_cases.results_repeat,
    "gradient": gradient_cases.gradients_are_right,
    "state": global_state_cases.state_is_left_alone,
    "releases": global_state_cases.memory_is_released,
    "modes": global_state_cases.modes_change_nothing,
    "threads": global_state_cases.threads_do_not_meet,
    "jit": program_cases.compiled_functions_work,
}

#: name → what is asked of fusions of each operator
OF_FUSIONS: Mapping[str, Callable[[Subject], None]] = {
    "regions": fusion_cases.regions_are_right,
    "fuel": fusion_cases.fuel_is_heeded,
    "fusions-repeat": fusion_cases.fusions_repeat,
    "fusion-threads": fusion_cases.regions_do_not_meet,
}


@dataclass(frozen=True)
class Case:
    """One test of an executor.

    `run()` returns nothing, raises `ConformanceFailure`, or `unittest.SkipTest` where there is nothing to
    judge. `name` is `"<property>-<operator id>"`, and `expected` the reason why it is known to fail, if the
    author said so.
    """

    name: str
    property: str
    operator: str | None
    check: Callable[[], None]
    expected: str | None = None

    def run(self) -> None:
        """Runs the test; what the executor leaves changed does not reach the next one."""
        with restored():
            self.check()

    def __str__(self) -> str:
        return self.name


def conformance(
    executor: Executor | str,
    *,
    samples: Mapping[str | Symbol, Given] | None = None,
    references: Mapping[str | Symbol, Callable[..., Any]] | None = None,
    operators: Iterable[str] | str = ("*",),
    devices: Iterable[Any] | None = None,
    dtypes: Iterable[torch.dtype] | None = None,
    tolerances: Mapping[torch.dtype, tuple[float, float]] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    module: str | None = None,
) -> Iterator[Case]:
    """The tests of an executor: `for case in conformance(my_ex): case.run()`.

    Args:
        executor: an executor or the name of a registered one.
        samples: of operators, by id, name or symbol: a list of calls `((x, weight), {"eps": 1e-5})`, or a
            function `(device, dtype, requires_grad)` that gives them. Rows of torch have torch's samples.
        references: functions of the same arguments that say what is right, of operators that replace no
            function and implement no row.
        operators: patterns of ids; others are left out.
        devices: where samples are; the CPU and, if there is one, the CUDA device.
        dtypes: of the floating-point variants of samples; float32, float64 and bfloat16.
        tolerances: (relative, absolute) of results by dtype, where they are not the usual ones.
        expected_failures: name of a case → why it fails. A case that does not fail any more is a failure.
        module: that makes the executor, where that cannot be found out.

    Raises InvalidArgument for names that are no operator's or no case's.
    """
    (tested,) = resolve_executors((get_executor(executor) if isinstance(executor, str) else executor,))
    settings = Settings(
        samples={k: v if callable(v) else list(v) for k, v in _by_id(samples).items()},
        references=_by_id(references),
        operators=(operators,) if isinstance(operators, str) else tuple(operators),
        module=module,
        tolerances=dict(tolerances or {}),
    )
    if devices is not None or torch.cuda.is_available():
        given = devices if devices is not None else ("cpu", "cuda")
        settings = replace(settings, devices=tuple(torch.device(d) for d in given))
    if dtypes is not None:
        settings = replace(settings, dtypes=tuple(dtypes))
    return iter(_expecting(list(_cases(tested, settings)), dict(expected_failures or {})))


def _by_id(table: Mapping[str | Symbol, Any] | None) -> dict[str, Any]:
    return {key.id if isinstance(key, Symbol) else key: value for key, value in (table or {}).items()}


def _cases(executor: Executor, settings: Settings) -> Iterator[Case]:
    for subject in subjects(executor, settings):
        properties = {**OF_OPERATORS, **(OF_FUSIONS if isinstance(executor, FusionExecutor) else {})}
        for name, check in properties.items():
            if name != "gradient" or subject.brings_gradient:
                yield Case(f"{name}-{subject.id}", name, subject.id, partial(check, subject))
    yield Case("import", "import", None, partial(import_case.imports_without_device, executor, settings))


def _expecting(cases: list[Case], expected: dict[str, str]) -> list[Case]:
    known = {case.name for case in cases}
    for name in expected:
        if name not in known:
            raise InvalidArgument(f"there is no case {name!r}.{did_you_mean(name, known)}")
    return [replace(case, expected=expected.get(case.name)) for case in cases]
