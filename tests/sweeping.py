"""What a default run of the tests takes of exhaustive tests: a slice; `--sweep` runs the rest too."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

#: the mark of what only `--sweep` runs
MARK = pytest.mark.sweep


def one_in(step: int, values: Iterable[Any], start: int = 0) -> list[Any]:
    """Return parameters for `pytest.mark.parametrize`, of which a default run has one in `step`."""
    return [
        value if i % step == start % step else pytest.param(*_several(value), marks=MARK)
        for i, value in enumerate(values)
    ]


def in_turn(names: Iterable[Any], kinds: Sequence[Any], step: int = 1) -> list[Any]:
    """Return all pairs of two values for `pytest.mark.parametrize`.

    A default run has each name, or one in `step`, with one kind, and the kinds in turn.
    """
    return [
        pytest.param(name, kind, marks=[] if i % step == 0 and i // step % len(kinds) == j else MARK)
        for i, name in enumerate(names)
        for j, kind in enumerate(kinds)
    ]


def spread_over(count: int, most: int, name: str, *, whole: bool) -> range:
    """Return indices at equal distances below `count`: about `most` of them, or all in a whole run.

    The first index depends on `name`, so that several programs together cover each kind of change.
    """
    step = 1 if whole else max(1, count // most)
    return range(zlib.crc32(name.encode()) % step, count, step)


def _several(value: Any) -> tuple[Any, ...]:
    """Return a parameter as a tuple of values, as `pytest.param` takes it."""
    return value if type(value) is tuple else (value,)  # a named tuple is one value
