"""A refusal that is not recorded fails a test, and so does a recorded one that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

import recorded_refusals
import thunder
from recorded_refusals import Recorder, Refusals, load, refusals_as_recorded, save


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Record, in a file of the test, that sample 1 of `add` is refused."""
    monkeypatch.setattr(recorded_refusals, "PATH", tmp_path / "recorded.json")
    load.cache_clear()
    save({"operators": {"add": {"1": "UnsupportedProgram: no complex numbers"}, "sub": {}}})
    yield
    load.cache_clear()


def refuse(refusals: Refusals, sample: int, text: str) -> None:
    """Refuse a sample as a program is refused, whose error has more lines."""
    with refusals.of(sample):
        raise thunder.UnsupportedProgram(f"{text}\n  at  model.py:3")


def test_the_refusal_that_is_recorded_passes() -> None:
    with refusals_as_recorded("operators", "add") as refusals:
        refuse(refusals, 1, "no complex numbers")


@pytest.mark.parametrize("case", ["add", "sub", "mul"])
def test_one_refusal_more_fails(case: str) -> None:
    with (
        pytest.raises(AssertionError, match=r"refused, not recorded: {'2': 'UnsupportedProgram: no bool'}"),
        refusals_as_recorded("operators", case) as refusals,
    ):
        refuse(refusals, 2, "no bool")


def test_one_refusal_less_asks_to_record_again() -> None:
    with (
        pytest.raises(AssertionError, match=r"recorded, not refused: {'1': .*\n.*record_refusals.py"),
        refusals_as_recorded("operators", "add") as refusals,
        refusals.of(1),
    ):
        pass


def test_another_reason_for_a_refusal_fails() -> None:
    with (
        pytest.raises(AssertionError, match=r"refused, not recorded: {'1': 'UnsupportedProgram: out of mem"),
        refusals_as_recorded("operators", "add") as refusals,
    ):
        refuse(refusals, 1, "out of memory")


def test_a_missing_gradient_is_not_a_refusal() -> None:
    with (
        pytest.raises(thunder.MissingGradient, match="no rule"),
        refusals_as_recorded("operators", "add") as refusals,
        refusals.of(1),
    ):
        raise thunder.MissingGradient("no rule")


def test_the_recorder_collects_what_is_refused_and_compares_nothing() -> None:
    with Recorder() as recorder, refusals_as_recorded("operators", "add") as refusals:
        refuse(refusals, 3, "no ints")
    assert recorder.recorded == {"operators": {"add": {"3": "UnsupportedProgram: no ints"}}}


def test_cases_without_refusals_are_not_saved() -> None:
    assert load() == {"operators": {"add": {"1": "UnsupportedProgram: no complex numbers"}}}
