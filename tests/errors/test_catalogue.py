"""The catalogue is complete: each case of misuse is tested, or waits for a package that is not here yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from errors.catalogue import AWAITED, TESTED, TESTS, numbers_in

CASES = range(1, 82)


def test_each_of_the_81_cases_has_its_place() -> None:
    assert sorted([*TESTED, *AWAITED]) == list(CASES)


@pytest.mark.parametrize("case", TESTED, ids=lambda n: f"M{n}")
def test_the_tests_of_a_case_are_where_the_table_says(case: int) -> None:
    assert TESTED[case]
    for file in TESTED[case]:
        assert case in numbers_in(TESTS / file), f"no test of {file} is called M{case}"


@pytest.mark.parametrize("package", sorted(set(AWAITED.values())))
def test_a_case_waits_only_for_a_package_that_is_not_here(package: str) -> None:
    here = TESTS.parent / "packages" / package
    assert not here.exists(), f"{package} has come: its cases belong into its tests, and into TESTED"


def test_numbers_are_read_from_names_of_tests_and_keys_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        'TABLE = {"M3-option": 1, "M4": 2, "M5x": 3, "other": 4}\ndef test_m17_is_refused(): ...\n'
    )
    assert numbers_in(file) == {3, 4, 17}
