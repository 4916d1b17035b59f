"""What depends on the elements of a tensor, be it a shape or a Python value, is a typed error that names the
line and says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import DataDependentControlFlow, UnsupportedOperator, UnsupportedProgram

X = torch.tensor([[1.0, -2.0], [3.0, 0.0]])


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return -x


def loops(x: torch.Tensor) -> torch.Tensor:
    while x.sum() > 0:
        x = x - 1
    return x


SHAPES: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero_as_tuple": lambda x: torch.nonzero(x, as_tuple=True),
    "argwhere": lambda x: torch.argwhere(x),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "mask_of_rows": lambda x: x[x[:, 0] > 0],
    "mask_and_index": lambda x: x[x[:, 0] > 0, 1],
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: torch.unique(x),
    "unique_consecutive": lambda x: torch.unique_consecutive(x),
    "bincount": lambda x: torch.bincount(x.flatten().long().abs()),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([1, 2]), 0),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long().abs()),
    "without a row": lambda x: torch.ops.aten.nonzero(x),
}
VALUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "bool": lambda x: bool(x.sum()),
    "if": branches,
    "while": loops,
    "and": lambda x: x.any() and x,
    "int": lambda x: int(x.sum()),
    "float": lambda x: float(x.sum()),
    "in": lambda x: 1.0 in x,
    "range": lambda x: list(range(x.sum().long())),
    "index": lambda x: [1, 2, 3][x.sum().long()],
    "equal": lambda x: torch.equal(x, x + 1),
    "allclose": lambda x: torch.allclose(x, x + 1),
    "tolist": lambda x: x.tolist(),
    "is_nonzero": lambda x: x.sum().is_nonzero(),
    "if item": lambda x: x if x.sum().item() > 0 else -x,
}


def error_of(fn: Callable[[torch.Tensor], Any]) -> UnsupportedProgram:
    with pytest.raises(UnsupportedProgram) as error:
        thunder.jit(fn, data_dependent="refuse")(X)
    return error.value


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_that_depends_on_data_is_refused_with_line_and_way_out(name: str) -> None:
    error = error_of(SHAPES[name])
    assert isinstance(error, UnsupportedOperator)
    first, *rest = str(error).splitlines()
    assert "depend" in first
    assert "test_data_dependent.py:" in rest[0]
    assert error.hint


@pytest.mark.parametrize("cache", ["constant values", "symbolic values"])
def test_programs_whose_shapes_depend_on_data_are_compiled_once(cache: str) -> None:
    for name, fn in SHAPES.items():
        compiled = thunder.jit(fn, cache=cache)
        for _ in range(2):
            torch.testing.assert_close(compiled(X), fn(X), msg=name)
        stats = thunder.compile_stats(compiled)
        assert (stats.cache_misses, stats.cache_hits, stats.runs_by_python) == (1, 1, 0), name


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_depends_on_data_is_refused_with_line_and_way_out(name: str) -> None:
    error = error_of(VALUES[name])
    assert isinstance(error, DataDependentControlFlow) or name == "tolist"
    assert "test_data_dependent.py:" in str(error).splitlines()[1]
    assert error.hint


def test_the_same_shape_kept_is_no_refusal() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[x > 0] = 0.5
        return torch.where(x > 0, x, 0) + x.masked_fill(x < 0, 1)

    torch.testing.assert_close(thunder.jit(program)(X.clone()), program(X.clone()))
