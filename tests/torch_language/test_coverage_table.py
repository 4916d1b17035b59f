"""The coverage page is made of what the sweeps recorded, and what they recorded is what the rows are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from thunder.base.tags import OpTags
from thunder.ops.operator import all_rows
from torch_language.coverage_records import IS_OF_THIS_TORCH, Record, load, verdict
from torch_language.database import op_db
from torch_language.entries_without_rows import FALLBACK, PARTLY_REFUSED, REFUSED, WITHOUT_ROW
from torch_language.samples import SKIPPED, means, name_of

TOOL = Path(__file__).parents[2] / "tools" / "coverage_table.py"
ENTRIES = {name_of(op): op for op in op_db if not op.name.startswith(SKIPPED)}
RECORDS = load()
AGAIN = "run the sweeps with --record, and tools/coverage_table.py"


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_table", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_records_and_the_rows_say(table: ModuleType) -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(RECORDS), AGAIN


@pytest.mark.skipif(not IS_OF_THIS_TORCH, reason="the records are of the database of another torch")
def test_every_entry_of_the_database_is_recorded() -> None:
    assert ENTRIES.keys() == RECORDS.keys(), AGAIN


def test_an_entry_is_recorded_as_what_it_is() -> None:
    recorded = {name: record.means for name, record in RECORDS.items()}
    found = {name: means(op) for name, op in ENTRIES.items() if name in RECORDS}
    assert recorded == (recorded | found), AGAIN


def test_nothing_that_was_recorded_failed() -> None:
    failed = [n for n, r in RECORDS.items() if "failed" in (*r.forward.values(), r.gradient, r.second_order)]
    assert failed == []


def test_an_entry_leaves_the_table_only_with_a_reason() -> None:
    lacking = {n for n, r in RECORDS.items() if {"partial", "refused"} & {*r.forward.values(), r.gradient}}
    assert lacking - REFUSED.keys() - PARTLY_REFUSED.keys() == set()


def test_there_is_no_reason_without_an_entry() -> None:
    assert (FALLBACK | REFUSED.keys() | PARTLY_REFUSED.keys()) - RECORDS.keys() == set()
    assert FALLBACK & REFUSED.keys() == set()
    assert {n for n in PARTLY_REFUSED if "partial" not in RECORDS[n].forward.values()} == set()


def test_no_entry_without_a_row_has_one() -> None:
    rows = {row.id for row in all_rows() if OpTags.FALLBACK not in row.tags}
    assert "torch.sin" in rows
    assert {name for name in WITHOUT_ROW if f"torch.{name}" in rows} == set()


def test_the_numbers_are_those_that_are_promised(table: ModuleType) -> None:
    counts = table.counted(RECORDS.values())
    assert counts["forward"] >= 600
    assert counts["gradient"] >= 490
    assert counts["second order"] >= 480


def test_a_lost_entry_and_a_changed_verdict_change_the_page(table: ModuleType) -> None:
    page = table.page(RECORDS)
    assert table.page({n: r for n, r in RECORDS.items() if n != "add"}) != page
    assert table.page({**RECORDS, "add": Record(forward={"float32": "partial"}, reason="")}) != page


def test_verdicts() -> None:
    assert [verdict(*c) for c in ((1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 1, 1), (0, 0, 0))] == [
        "complete",
        "partial",
        "refused",
        "failed",
        "none",
    ]
