"""The conformance cases of executors and transforms as pytest tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
from torch import nn

from thunder.core.transform import Transform
from thunder.extend import Executor
from thunder_testing.rule_cases import rule_conformance
from thunder_testing.samples import SampleSource
from thunder_testing.suite import Case, conformance
from thunder_testing.transform_cases import Program, transform_conformance

if TYPE_CHECKING:
    from thunder.core.patterns import RewriteRule

__all__ = ["ConformanceTests", "RuleConformanceTests", "TransformConformanceTests"]


class _CaseTests:
    """Base class of tests that are the cases of a class."""

    @classmethod
    def cases(cls) -> list[Case]:
        """Return the cases; override it to leave some out."""
        raise NotImplementedError

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize `test_conformance` with the cases."""
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", [_parameter(case) for case in self.cases()])

    def test_conformance(self, case: Case) -> None:
        """Test one property of one operator or program."""
        case.run()


class ConformanceTests(_CaseTests):
    """Base class of an executor's tests: each case of `thunder.testing.conformance` becomes a test.

        class TestMine(thunder.testing.ConformanceTests):
            executor = my_ex

    The attributes are the arguments of `thunder.testing.conformance`. A case in `expected_failures` is a
    strict xfail: it fails when it passes.
    """

    executor: ClassVar[Executor | str]
    samples: ClassVar[Mapping[Any, SampleSource]] = {}
    references: ClassVar[Mapping[Any, Callable[..., Any]]] = {}
    operators: ClassVar[Iterable[str] | str] = ("*",)
    devices: ClassVar[Iterable[Any] | None] = None
    dtypes: ClassVar[Iterable[torch.dtype] | None] = None
    tolerances: ClassVar[Mapping[torch.dtype, tuple[float, float]]] = {}
    expected_failures: ClassVar[Mapping[str, str]] = {}
    module: ClassVar[str | None] = None
    programs: ClassVar[Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]] = {}

    @classmethod
    def cases(cls) -> list[Case]:
        """Return the cases; override it to leave some out."""
        return list(
            conformance(
                cls.executor,
                samples=cls.samples,
                references=cls.references,
                operators=cls.operators,
                devices=cls.devices,
                dtypes=cls.dtypes,
                tolerances=cls.tolerances,
                expected_failures=cls.expected_failures,
                module=cls.module,
                programs=cls.programs,
            )
        )


class TransformConformanceTests(_CaseTests):
    """Base class of a transform's tests: each case of `transform_conformance` becomes a test.

        class TestMine(thunder.testing.TransformConformanceTests):
            transform = MyTransform

    The attributes are the arguments of `thunder.testing.transform_conformance`; a function among them is a
    `staticmethod`.
    """

    transform: ClassVar[Callable[[], Transform]]
    reference: ClassVar[Callable[[nn.Module], Callable[..., Any]]] = staticmethod(lambda module: module)
    programs: ClassVar[Mapping[str, Program]] = {}
    tolerance: ClassVar[tuple[float, float]] = (1e-5, 1e-5)
    executors: ClassVar[Sequence[Any]] = ("torch",)
    expected_failures: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def cases(cls) -> list[Case]:
        """Return the cases; override it to leave some out."""
        return list(
            transform_conformance(
                cls.transform,
                reference=cls.reference,
                programs=cls.programs,
                tolerance=cls.tolerance,
                executors=cls.executors,
                expected_failures=cls.expected_failures,
            )
        )


class RuleConformanceTests(_CaseTests):
    """Base class of tests of rewrite rules: each case of `rule_conformance` becomes a test.

        class TestRules(thunder.testing.RuleConformanceTests):
            rules = [rms_norm_rule]
            samples = {"rms_norm": [(torch.randn(3, 8), torch.ones(8), 1e-5)]}

    The attributes are the arguments of `thunder.testing.rule_conformance`.
    """

    rules: ClassVar[Sequence[RewriteRule]]
    samples: ClassVar[Mapping[str, Sequence[Any]]]
    executors: ClassVar[Sequence[Any]] = ()
    dtypes: ClassVar[Iterable[torch.dtype]] = (torch.float32, torch.float64, torch.bfloat16)
    tolerances: ClassVar[Mapping[torch.dtype, tuple[float, float]]] = {}
    expected_failures: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def cases(cls) -> list[Case]:
        """Return the cases; override it to leave some out."""
        return list(
            rule_conformance(
                cls.rules,
                cls.samples,
                executors=cls.executors,
                dtypes=cls.dtypes,
                tolerances=cls.tolerances,
                expected_failures=cls.expected_failures,
            )
        )


def _parameter(case: Case) -> Any:
    marks = [pytest.mark.xfail(reason=case.expected, strict=True)] if case.expected is not None else []
    return pytest.param(case, id=case.name, marks=marks)
