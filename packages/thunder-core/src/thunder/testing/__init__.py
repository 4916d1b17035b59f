"""Tests for executors, for the test suites of their authors.

    import thunder
    from acme import my_ex

    class TestMine(thunder.testing.ConformanceTests):
        executor = my_ex

or, in any other runner, ``for case in thunder.testing.conformance(my_ex): case.run()``.
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
from thunder.testing.pytest_cases import ConformanceTests
from thunder.testing.samples import Sample
from thunder.testing.suite import Case, conformance

__all__ = ["Case", "ConformanceFailure", "ConformanceTests", "Sample", "conformance"]
