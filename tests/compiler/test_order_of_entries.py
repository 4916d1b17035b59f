"""The order in which a call tries the entries of a compiled function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import thunder


@pytest.fixture
def tried() -> Iterator[tuple[Any, list[int]]]:
    """A compiled function with entries for three numbers, and the numbers of the entries that it tries."""
    compiled = thunder.jit(lambda x, n: x * n, executors=["torch"], cache="constant values")
    x, order = torch.ones(2), list[int]()
    for n in (2, 3, 4):
        compiled(x, n)
    for n, entry in zip((2, 3, 4), thunder.compile_stats(compiled).interpreter_cache, strict=True):

        def prologue(*args: Any, n: int = n, run: Any = entry.prologue_fn) -> Any:
            order.append(n)
            return run(*args)

        entry.prologue_fn = prologue
    yield lambda n: compiled(x, n).tolist(), order
    assert thunder.cache_misses(compiled) == 3


def test_an_entry_that_serves_two_calls_in_a_row_is_tried_first(tried):
    call, order = tried
    assert [call(2) for _ in range(3)] == [[2.0, 2.0]] * 3
    assert order == [4, 3, 2, 4, 3, 2, 2]
    order.clear()
    assert [call(3) for _ in range(3)] == [[3.0, 3.0]] * 3
    assert order == [2, 4, 3, 2, 4, 3, 3]


def test_calls_that_change_between_entries_leave_the_order(tried):
    call, order = tried
    for _ in range(2):
        assert (call(4), call(2)) == ([4.0, 4.0], [2.0, 2.0])
    assert order == [4, 4, 3, 2, 4, 4, 3, 2]


def test_a_new_entry_is_tried_first():
    compiled = thunder.jit(lambda x, n: x * n, executors=["torch"], cache="constant values")
    x = torch.ones(2)
    for n in (2, 3, 2, 2, 5):
        assert compiled(x, n).tolist() == [float(n)] * 2
    assert [e.last_use for e in thunder.compile_stats(compiled).interpreter_cache] == [4, 2, 5]
