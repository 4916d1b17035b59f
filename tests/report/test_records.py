"""What is noted of compiles: texts, for which no code of the program runs."""

from __future__ import annotations

import gc
from enum import Enum
from typing import Any

import pytest
import torch

import thunder
from thunder_report import records
from thunder_report.records import noting_programs, record_of, short_text


class Loud:
    """An object whose `repr` may not be called."""

    def __repr__(self) -> str:
        raise AssertionError("the program's code runs")


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("a" * 400, None),
        (Loud(), "<Loud object>"),
        ([Loud(), 1], "[<Loud object>, 1]"),
        ({"key": Loud()}, "{'key': <Loud object>}"),
        (Colour.RED, "Colour.RED"),
        (torch.float32, "torch.float32"),
        (Loud, f"<class '{Loud.__module__}.Loud'>"),
    ],
    ids=["number", "long text", "object", "list", "dict", "enum", "dtype", "class"],
)
def test_texts_of_values(value: Any, text: str | None) -> None:
    found = short_text(value)
    assert len(found) <= 300
    assert text is None or found == text


def test_a_recompile_runs_no_code_of_the_program() -> None:
    compiled = thunder.jit(lambda x, by: x if by is None else x * by.size)
    first, second = Loud(), Loud()
    first.size, second.size = 2, 3  # type: ignore[attr-defined]
    for by in (None, first, second):
        compiled(torch.ones(2), by)
    entries = thunder.compile_stats(compiled).interpreter_cache
    reasons = [reason for entry in entries for reason in record_of(entry).reasons]  # type: ignore[union-attr]
    assert any("Loud" in reason.found for reason in reasons)


def test_a_record_ends_with_its_entry() -> None:
    compiled = thunder.jit(lambda x: x + 1)
    compiled(torch.ones(2))
    entry = thunder.compile_stats(compiled).interpreter_cache[0]
    assert record_of(entry) is not None
    before = len(records._records)
    del entry, compiled
    gc.collect()
    assert len(records._records) < before


def test_programs_are_noted_once_and_within_the_context_only() -> None:
    compiled = thunder.jit(lambda x: x + 1)
    with noting_programs() as outer:
        compiled(torch.ones(2))
        with noting_programs() as inner:
            compiled(torch.ones(2).double())
            thunder.jit(lambda x: x + 2)(torch.ones(2))
    compiled(torch.ones(2, 2))
    assert [len(programs) for programs in (outer, inner)] == [2, 2]
    assert outer[0][1] is thunder.compile_stats(compiled)
