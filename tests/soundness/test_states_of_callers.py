"""Programs use values and iterators of a caller as in eager, over calls between which these change."""

from __future__ import annotations

import decimal
import itertools
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import thunder
from soundness.states_of_callers import ITERATORS, VALUES, Row
from sweeping import one_in
from thunder.base.errors import UnsupportedProgram

ROWS = VALUES | ITERATORS


def plain(value: Any) -> Any:
    """Return a value in a form that is compared by type and content."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, types.SimpleNamespace):
        return plain(vars(value))
    if isinstance(value, dict):
        return {repr(key): plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value), [plain(item) for item in value]
    return type(value), None if hasattr(type(value), "__next__") else repr(value)


def outcomes(row: Row, *, is_compiled: bool, calls: int = 4) -> Iterator[Any]:
    """Yield what each call returns or raises, the state and decimals' context after it, and what is left."""
    state, fn = row.make(), row.program
    if is_compiled:
        fn = thunder.jit(fn, recompile_limit=None)
    with decimal.localcontext(decimal.Context()):
        for i in range(calls):
            row.change(state, i)
            try:
                yield plain(fn(torch.arange(1.0, 4.0), state))
            except UnsupportedProgram:
                raise
            except Exception as error:
                yield type(error), str(error)
            yield plain(state), str(decimal.getcontext())
    for name, value in vars(state).items():
        if hasattr(type(value), "__next__"):
            try:
                yield name, plain(list(itertools.islice(value, 3)))
            except (RuntimeError, ValueError) as error:
                yield name, str(error)


@pytest.mark.parametrize("name", one_in(3, ROWS))
def test_calls_and_states_are_eagers(name: str) -> None:
    row = ROWS[name]
    if row.refused:
        with pytest.raises(UnsupportedProgram, match=row.refused):
            list(outcomes(row, is_compiled=True))
    else:
        assert list(outcomes(row, is_compiled=True)) == list(outcomes(row, is_compiled=False))


def test_numbers_of_an_iterator_are_values_of_one_program() -> None:
    row = ITERATORS["a generator"]
    state, compiled = row.make(), thunder.jit(row.program)
    for _ in range(4):
        compiled(torch.ones(3), state)
    assert thunder.cache_misses(compiled) == 1


def test_an_iterator_is_advanced_once_where_a_call_is_run_again() -> None:
    def program(x: torch.Tensor, it: Iterator[str]) -> str:
        return next(it)

    letters = iter({name: 1 for name in "abcdefghijklmnop"})
    compiled = thunder.jit(program, recompile_limit=2)  # Python runs calls beyond it, if it may
    assert [compiled(torch.ones(1), letters) for _ in range(12)] == list("abcdefghijkl")


@pytest.mark.parametrize("is_opaque", [False, True])
def test_code_that_changes_what_the_program_reads_is_refused(is_opaque: bool) -> None:
    state = types.SimpleNamespace(n=0, t=torch.zeros(2))

    def change() -> float:
        state.n += 1
        state.t = torch.full((2,), float(state.n))
        return 1.0

    iterator = (change() for _ in itertools.count())
    next(iterator)
    fn = thunder.opaque(change) if is_opaque else lambda: next(iterator)

    def read_number(x: torch.Tensor) -> Any:
        return x * fn() + state.n

    def read_tensor(x: torch.Tensor) -> Any:
        return x * fn() + state.t

    for program in (read_number, read_tensor):
        compiled = thunder.jit(program)
        with pytest.raises(UnsupportedProgram, match="has changed the"):
            [compiled(torch.ones(2)) for _ in range(4)]
