"""The first calls of programs in their processes are eager's; a whole run has all programs of the suites."""

from __future__ import annotations

import pytest

from first_programs import SUITES, are_alike, difference
from sweeping import MARK, one_in

#: one in so many programs of a suite is in a default run; None: no one
STEPS: dict[str, int | None] = {
    "changing": 2, "worlds": 2, "operators": 32, "families": None, "libraries": None
}  # fmt: skip


def programs() -> list[object]:
    """Return the suites and names of programs; those of suites that take long to import are one parameter."""
    rows: list[object] = []
    for suite, step in STEPS.items():
        if step is None:
            rows.append(pytest.param(suite, None, marks=MARK))
        else:
            rows += one_in(step, [(suite, name) for name in SUITES[suite].names()])
    return rows


@pytest.mark.parametrize(("suite", "name"), programs())
def test_the_first_calls_in_a_process_are_eagers(suite: str, name: str | None) -> None:
    names = SUITES[suite].names() if name is None else [name]
    wrong = {name: found for name in names if (found := difference(suite, name)) is not None}
    assert wrong == {}


def test_answers_that_differ_are_not_alike() -> None:
    one = ("result", [1.0, None, ["a"]])
    assert are_alike(one, ("result", [1.0 + 1e-7, None, ["a"]]))
    for other in (("raised", "x"), ("result", [1.1, None, ["a"]]), ("result", [1.0, None, ["b"]])):
        assert not are_alike(one, other)
