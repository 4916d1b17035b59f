"""Programs of the suites answer as eager in a process that finds them kept; a whole run has all of them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from first_programs import SUITES
from store.kept_suites import difference
from sweeping import MARK, one_in

#: one in so many programs of a suite is in a default run; None: no one
STEPS: dict[str, int | None] = {
    "changing": 96, "worlds": 24, "operators": None, "families": None, "libraries": None
}  # fmt: skip
counts: Counter[str] = Counter()


def programs() -> list[object]:
    rows: list[object] = []
    for suite, step in STEPS.items():
        if step is None:
            rows.append(pytest.param(suite, None, marks=MARK))
        else:
            rows += one_in(step, [(suite, name) for name in SUITES[suite].names()])
    return rows


@pytest.fixture(scope="module", autouse=True)
def _counted() -> object:
    yield
    file = os.environ.get("THUNDER_KEPT_LOG")
    if file:
        lines = [f"{count} {event}" for event, count in counts.most_common()]
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize(("suite", "name"), programs())
def test_a_kept_program_answers_as_eager_in_another_process(suite: str, name: str | None) -> None:
    names = SUITES[suite].names() if name is None else [name]
    wrong = {name: found for name in names if (found := difference(suite, name, counts)) is not None}
    assert wrong == {}
