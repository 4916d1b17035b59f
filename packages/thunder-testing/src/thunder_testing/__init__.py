"""Tests for executors, transforms and rewrite rules. `thunder.testing` is the public path of this package."""

from __future__ import annotations

from thunder_testing.conformance_failure import ConformanceFailure
from thunder_testing.pytest_cases import ConformanceTests, RuleConformanceTests, TransformConformanceTests
from thunder_testing.rule_cases import rule_conformance
from thunder_testing.samples import Sample
from thunder_testing.suite import Case, conformance
from thunder_testing.transform_cases import Program, transform_conformance

__all__ = [
    "Case",
    "ConformanceFailure",
    "ConformanceTests",
    "Program",
    "RuleConformanceTests",
    "Sample",
    "TransformConformanceTests",
    "conformance",
    "rule_conformance",
    "transform_conformance",
]
