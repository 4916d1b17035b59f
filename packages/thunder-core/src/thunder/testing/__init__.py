"""Tests for executors and transforms, for the test suites of their authors.

    import thunder
    from acme import my_ex

    class TestMine(thunder.testing.ConformanceTests):
        executor = my_ex

or, in any other runner, ``for case in thunder.testing.conformance(my_ex): case.run()``. Those of a transform
are ``TransformConformanceTests`` and ``transform_conformance``, those of rewrite rules
``RuleConformanceTests`` and ``rule_conformance``.
"""

from __future__ import annotations

from importlib.util import find_spec

from thunder.base.errors import PluginNotInstalledError

if find_spec("pytest") is None:
    raise PluginNotInstalledError(
        "thunder.testing runs its tests with pytest, which is not installed.",
        distribution="thunder-core[testing]",
        hint="Install it with: pip install 'thunder-core[testing]'",
    )

from thunder.testing.conformance_failure import ConformanceFailure
from thunder.testing.pytest_cases import ConformanceTests, RuleConformanceTests, TransformConformanceTests
from thunder.testing.rule_cases import rule_conformance
from thunder.testing.samples import Sample
from thunder.testing.suite import Case, conformance
from thunder.testing.transform_cases import Program, transform_conformance

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
