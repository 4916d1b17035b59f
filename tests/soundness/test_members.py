"""A slice of :mod:`soundness.members`: members of modules read, written and read again, against eager."""

from __future__ import annotations

import pytest

import thunder
from soundness.members import CLASSES, judge, programs

#: one program in so many is run here; `python -m soundness.members` runs them all
PARTS = 1600


@pytest.mark.parametrize("base", CLASSES)
def test_what_a_module_holds_is_what_was_written_last(base):
    chosen = [choice for choice in programs() if choice[0] == base][::PARTS]
    assert len(chosen) > 20, "a slice has many programs"
    found = {choice: judge(thunder, choice) for choice in chosen}
    wrong = [f"{choice}: {text}" for choice, text in found.items() if text is not None]
    assert not wrong, "\n".join(wrong)
