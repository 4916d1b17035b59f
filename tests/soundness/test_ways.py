"""A slice of :mod:`soundness.ways`: objects that come out of containers, and what changes of them later."""

from __future__ import annotations

import pytest

import thunder
from soundness.ways import KINDS, judge, programs

#: one program in so many is run here; `python -m soundness.ways` runs them all
PARTS = 35


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_from_a_container_is_guarded_and_written_as_any_other(kind):
    chosen = [choice for choice in programs() if choice[0] == kind]
    found = {choice: judge(thunder, choice) for choice in chosen[:: PARTS if len(chosen) > 1000 else 8]}
    assert len(found) > 10, "a slice has many programs"
    wrong = [f"{choice}: {text}" for choice, text in found.items() if text is not None]
    if kind == "tensor":  # which is refused as a key, by name
        wrong = [line for line in wrong if "has a key of type Tensor" not in line]
    assert not wrong, "\n".join(wrong)
