"""The conformance tests find faults: each faulty executor fails the case that is about its fault."""

from __future__ import annotations

from unittest import SkipTest

import pytest

from sweeping import MARK, one_in
from testing import right_executors, right_packages
from testing.example_executors import (
    Trial,
    fuser,
    gate_executor,
    gelu_executor,
    norm_executor,
    one_operator,
    tensor,
)
from testing.faults import FAULTS, NOT_FOUND, Fault
from thunder.testing import Case, ConformanceFailure, conformance
from thunder_testing.suite import FUSION_PROPERTIES, OPERATOR_PROPERTIES

FOUND = [fault for fault in FAULTS if fault.caught_by != NOT_FOUND]


def cases(tested: Trial, *properties: str) -> list[Case]:
    """The cases of an executor, or those about some properties; not that which starts a process."""
    made = conformance(tested.executor, **tested.arguments)
    return [
        case for case in made if case.property != "import" and (not properties or case.property in properties)
    ]


def failure(case: Case) -> ConformanceFailure | None:
    """What a case says is wrong, or None."""
    try:
        case.run()
    except ConformanceFailure as error:
        return error
    except SkipTest:
        return None
    return None


def identifier(fault: Fault) -> str:
    return fault.what.replace(" ", "-")


@pytest.mark.parametrize("fault", one_in(24, FOUND), ids=identifier)
def test_a_fault_is_found_by_the_case_that_is_about_it(fault: Fault) -> None:
    errors = [error for case in cases(fault.make(), fault.caught_by) if (error := failure(case)) is not None]
    assert errors, f"no case about {fault.caught_by!r} fails"
    for error in errors:
        assert error.hint, "a failure says what to do"
        assert "toy" in error.asked, "a failure names the executor"


def test_each_property_finds_a_fault() -> None:
    """A case that nothing fails would say nothing. The import has its own tests."""
    assert {fault.caught_by for fault in FOUND} == {*OPERATOR_PROPERTIES, *FUSION_PROPERTIES}


def test_there_are_many_faults_and_nearly_all_are_found() -> None:
    assert len({fault.what for fault in FAULTS}) == len(FAULTS) >= 200
    assert sum(fault.is_fusion for fault in FAULTS) >= 40
    assert len(FOUND) / len(FAULTS) >= 0.97


def test_there_are_ten_right_packages_of_different_kinds() -> None:
    assert len(right_packages.PACKAGES) == 10


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.caught_by == NOT_FOUND], ids=identifier)
def test_a_fault_that_no_sample_shows_is_not_found(fault: Fault) -> None:
    """If this fails, the fault belongs to the found ones."""
    assert [
        failure(case) for case in cases(fault.make(), "values", "repeats", "claims") if failure(case)
    ] == []


def rows(*operators: str) -> Trial:
    """Operators of the torch executor."""
    return Trial("torch", {"operators": operators})


RIGHT = {
    "gate": gate_executor,
    "gelu": gelu_executor,
    "fuser": fuser,
    "blocks": right_executors.norm_in_blocks,
    "numpy": right_executors.in_numpy,
    "rows": lambda: rows("torch.add", "torch.softmax"),
}
PACKAGES_BY_DEFAULT = ("a reduction", "an in-place operator")
RIGHT |= {what: right_packages.PACKAGES[what] for what in PACKAGES_BY_DEFAULT}
RIGHT_TOO = {
    **{what: make for what, make in right_packages.PACKAGES.items() if what not in PACKAGES_BY_DEFAULT},
    "norm": norm_executor,
    "replaced": right_executors.swapped_arguments,
    "precise-fuser": lambda: fuser(right_executors.Precise),
    "long-fuser": lambda: fuser(right_executors.Long),
    "fused-primitives": right_executors.fused_primitives,
    "cumsum": lambda: one_operator(lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "reductions": lambda: rows("torch.sum", "torch.transpose", "torch.topk"),
    "more-rows": lambda: rows("torch.nn.functional.embedding", "torch.bernoulli", "torch.split"),
    "primitives": lambda: rows("prims.sin", "torch.nn.functional.layer_norm"),
    "attention": lambda: rows("torch.nn.functional.scaled_dot_product_attention"),
}


@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(make, id=name) for name, make in RIGHT.items()),
        *(pytest.param(make, id=name, marks=MARK) for name, make in RIGHT_TOO.items()),
    ],
)
def test_a_right_executor_passes(make) -> None:
    tested = make()
    errors = {case.name: str(error) for case in cases(tested) if (error := failure(case)) is not None}
    assert errors == {}


def test_a_right_executor_is_judged_and_not_skipped() -> None:
    skipped = []
    for tested in (gate_executor(), gelu_executor()):
        for case in cases(tested):
            try:
                case.run()
            except SkipTest as reason:
                skipped.append((case.name, str(reason)))
    assert skipped == []


def test_a_failure_has_four_parts() -> None:
    wrong = one_operator(lambda x: x.double(), lambda x: x, samples=[((tensor(2, 3),), {})])
    (error,) = filter(None, map(failure, cases(wrong, "metadata")))
    lines = str(error).splitlines()
    assert lines[0] == (
        f"{wrong.executor.name}.op of executor {wrong.executor.name!r}: "
        "the dtype of the result is not what its meta function says"
    )
    assert "test_faults.py:" in lines[1]
    assert "lambda x: x.double()" in lines[1]
    assert lines[2:6] == [
        '  call:  op("cpu f32[2, 3]")',
        "  arguments:  your sample 0",
        '  meta function:  "cpu f32[2, 3]"',
        '  result:  "cpu f64[2, 3]"',
    ]
    assert lines[6].rstrip() == "  to reproduce:"
    assert lines[-1].startswith("Return what the meta function says")
