"""The refusals that tests allow, recorded sample by sample in ``recorded_refusals.json``.

A test that compares many samples with eager allows a compiled program to refuse some of them. It allows only
those that are recorded, each with its error: one refusal more, one less, or another error fails the test.

    python tools/record_refusals.py [pytest's arguments]     runs these tests, and records what they refuse
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import summaries
from thunder import MissingGradient, UnsupportedProgram

PATH = Path(__file__).with_suffix(".json")

#: names within pybind11: which one is refused depends on the compiler, and on earlier calls of the process
COMPILED_NAME = re.compile(r"pybind11_builtins\.\S+")

#: subject of a test → case (an operator, a program) → sample → the refusal
Recorded = dict[str, dict[str, dict[str, str]]]


class Refusals:
    """The refusals of one case: sample → class and first line of the error."""

    def __init__(self) -> None:
        self.by_sample: dict[str, str] = {}

    def add(self, sample: object, error: BaseException | str) -> None:
        """Note that a sample is refused with this error."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        first_line = COMPILED_NAME.sub("pybind11_builtins", text.splitlines()[0])
        known = self.by_sample.setdefault(str(sample), first_line)
        assert known == first_line, f"two refusals of {sample}: {known}, {first_line}"

    @contextlib.contextmanager
    def of(self, sample: object) -> Iterator[None]:
        """Note a refusal that is raised within the context; a missing gradient is not one."""
        try:
            yield
        except MissingGradient:
            raise
        except UnsupportedProgram as error:
            self.add(sample, error)


class Recorder:
    """The refusals of a run that records them, in place of comparing them with those recorded."""

    active: Recorder | None = None

    def __init__(self) -> None:
        self.recorded: Recorded = {}

    def __enter__(self) -> Recorder:
        Recorder.active = self
        return self

    def __exit__(self, *error: object) -> None:
        Recorder.active = None


@functools.cache
def load() -> Recorded:
    """Return the recorded refusals."""
    recorded: Recorded = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    return recorded


def save(recorded: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
    """Write the recorded refusals, sorted, a line for each case; cases without refusals are left out."""
    subjects = []
    for subject, cases in sorted(recorded.items()):
        lines = [f"  {json.dumps(c)}: {json.dumps(r, sort_keys=True)}" for c, r in sorted(cases.items()) if r]
        if lines:
            subjects.append(f" {json.dumps(subject)}: {{\n" + ",\n".join(lines) + "\n }")
    PATH.write_text("{\n" + ",\n".join(subjects) + "\n}\n", encoding="utf-8")
    if PATH in summaries.SUMMARIES:
        summaries.write(PATH)


@contextlib.contextmanager
def refusals_as_recorded(subject: str, case: str) -> Iterator[Refusals]:
    """Collect the refusals of a case; raise AssertionError at the end if others are recorded for it."""
    refusals = Refusals()
    yield refusals
    if Recorder.active is not None:
        cases = Recorder.active.recorded.setdefault(subject, {})
        assert case not in cases, f"two cases of {subject} are called {case}"
        cases[case] = refusals.by_sample
        return
    assert_as_recorded(refusals.by_sample, load().get(subject, {}).get(case, {}))


def assert_as_recorded(refused: Mapping[str, str], recorded: Mapping[str, str]) -> None:
    """Raise AssertionError if the refusals are not those recorded, with what is new and what is gone."""
    new = {sample: text for sample, text in refused.items() if recorded.get(sample) != text}
    gone = {sample: text for sample, text in recorded.items() if refused.get(sample) != text}
    advice = "if this is intended: python tools/record_refusals.py -k …"
    assert not new | gone, f"refused, not recorded: {new}\nrecorded, not refused: {gone}\n{advice}"
