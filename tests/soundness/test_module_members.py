"""A slice of the programs that read, write and read again members of modules, against eager."""

from __future__ import annotations

import pytest

import thunder
from soundness.module_members import CLASSES, judge, programs

#: one program in so many is run here; `python -m soundness.module_members` runs them all
PARTS = 2400


@pytest.mark.parametrize("base", CLASSES)
def test_what_a_module_holds_is_what_was_written_last(base):
    chosen = [choice for choice in programs() if choice[0] == base][::PARTS]
    assert len(chosen) > 15, "a slice has many programs"
    found = {choice: judge(thunder, choice) for choice in chosen}
    wrong = [f"{choice}: {text}" for choice, text in found.items() if text is not None]
    assert not wrong, "\n".join(wrong)
