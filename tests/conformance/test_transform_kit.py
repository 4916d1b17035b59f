"""The conformance tests of transforms: right transforms pass, and each property finds its fault."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import thunder
from conformance.example_transforms import Doubled, Scaled, doubled_in_mode
from conformance.faults_of_transforms import FAULTS
from sweeping import in_turn, one_in
from thunder.base.errors import InvalidArgument
from thunder.testing import ConformanceFailure, transform_conformance
from thunder.testing.transform_cases import PROGRAMS, TRANSFORM_PROPERTIES

pytest_plugins = ["pytester"]


RIGHT: dict[str, dict[str, Any]] = {
    "none": {"transform": thunder.Transform},
    "adds inputs": {"transform": Scaled},
    "changes results": {"transform": Doubled, "reference": doubled_in_mode},
}


def cases(**arguments: Any) -> dict[str, Any]:
    return {case.name: case for case in transform_conformance(**arguments)}


@pytest.mark.parametrize(("transform", "program"), in_turn(RIGHT, PROGRAMS))
def test_a_right_transform_passes(transform: str, program: str) -> None:
    for case in cases(**RIGHT[transform]).values():
        if case.name.endswith(program):
            case.run()


def test_there_is_a_fault_for_each_property() -> None:
    assert {fault.case.partition("-")[0] for fault in FAULTS.values()} == TRANSFORM_PROPERTIES.keys()


@pytest.mark.parametrize("what", one_in(4, FAULTS))
def test_a_faulty_transform_is_found(what: str) -> None:
    fault = FAULTS[what]
    with pytest.raises(ConformanceFailure, match=f"(?s){fault.transform.__name__}: .*{fault.text}"):
        cases(transform=fault.transform)[fault.case].run()


def test_names_of_cases_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="there is no case 'value-layers'"):
        transform_conformance(thunder.Transform, expected_failures={"value-layers": "it is off by one"})


def test_the_class_makes_a_test_of_each_case(pytester: pytest.Pytester) -> None:
    text = """
    import thunder

    class TestMine(thunder.testing.TransformConformanceTests):
        transform = thunder.Transform
        executors = ()
    """
    pytester.makepyfile(test_mine=textwrap.dedent(text))
    result = pytester.runpytest_inprocess("-k", "layers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(TRANSFORM_PROPERTIES), deselected=2 * len(TRANSFORM_PROPERTIES))
