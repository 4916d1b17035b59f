"""Tables of text: columns, and the width of a terminal."""

from __future__ import annotations

import pytest

from thunder.base.text_tables import aligned, byte_text, terminal_width

ROWS = [("name", "what", "why"), ("a", "one two three four five six seven eight", "no"), ("bb", "", "yes")]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert aligned([("a", "bb", "c"), ("aaa", "b", "cc")]) == ["a    bb  c", "aaa  b   cc"]
    assert aligned([("a", "bb"), ("aaa", "b")], rule=True) == ["a    bb", "---  --", "aaa  b"]


@pytest.mark.parametrize("width", [28, 34, 60, 200])
def test_wide_cells_are_wrapped_and_no_word_is_lost(width: int) -> None:
    texts = aligned(ROWS, width)
    assert len(texts) == len(ROWS)
    assert max(len(line) for text in texts for line in text.splitlines()) <= width
    assert sorted(" ".join(texts).split()) == sorted(" ".join(map(" ".join, ROWS)).split())


def test_a_table_is_no_narrower_than_its_words_need() -> None:
    assert aligned(ROWS, 1) == aligned(ROWS, 20)


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert terminal_width() == 57


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (3 << 29, "1.50 GiB"), (5 << 40, "5.00 TiB")],
)
def test_bytes_are_in_the_largest_unit_that_is_not_larger(count: int, text: str) -> None:
    assert byte_text(count) == text
