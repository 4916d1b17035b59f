"""Tests for executors and transforms, for the test suites of their authors.

    import thunder
    from acme import my_ex

    class TestMine(thunder.testing.ConformanceTests):
        executor = my_ex

or, in any other runner, ``for case in thunder.testing.conformance(my_ex): case.run()``. Those of a transform
are ``TransformConformanceTests`` and ``transform_conformance``, those of rewrite rules
``RuleConformanceTests`` and ``rule_conformance``.
"""

from thunder_testing import (
    Case,
    ConformanceFailure,
    ConformanceTests,
    Program,
    RuleConformanceTests,
    Sample,
    TransformConformanceTests,
    conformance,
    rule_conformance,
    transform_conformance,
)

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
