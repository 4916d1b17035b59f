"""Calls that torch refuses, from its own database of operators, raise what eager raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from comparison.errors import assert_same_error, without_marks
from recorded_refusals import refusals_as_recorded
from sweeping import one_in
from torch_language.database import op_db
from torch_language.samples import name_of

#: one in so many entries is in a default run
STEP = 4

#: entries whose calls torch refuses where a compiled program does not, and why
NOT_JUDGED = {"__rdiv__": "a method of tensors that is called on a number"}

ENTRIES = {
    name_of(op): op for op in op_db if op.error_inputs_func is not None and name_of(op) not in NOT_JUDGED
}


def call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def refused(op: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Exception]]:
    """The arguments that eager refuses, and its error."""
    for entry in op.error_inputs("cpu"):
        sample = entry.sample_input
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        try:
            call(op.op, args, kwargs)
        except Exception as error:
            yield args, kwargs, error


def assert_raises_the_same(fn: Callable[..., Any], args: Any, kwargs: Any, expected: Exception) -> None:
    """Assert that the compiled call raises eager's error; a refusal is raised."""
    with pytest.raises(Exception) as found:  # noqa: PT011  (its class and text are compared below)
        thunder.jit(call)(fn, args, kwargs)
    if isinstance(found.value, thunder.UnsupportedProgram):
        raise found.value
    assert_same_error(expected, found.value, without_marks)


@pytest.mark.parametrize("name", one_in(STEP, ENTRIES))
def test_a_call_that_torch_refuses_is_refused_with_its_text(name: str) -> None:
    op = ENTRIES[name]
    with warnings.catch_warnings(), refusals_as_recorded("calls that torch refuses", name) as refusals:
        warnings.simplefilter("ignore")
        for number, (args, kwargs, expected) in enumerate(refused(op)):
            with refusals.of(number):
                assert_raises_the_same(op.op, args, kwargs, expected)


@pytest.mark.parametrize(
    "bounds",
    [
        (float("inf"),),
        (0, float("inf")),
        (-float("inf"), 1),
        (float("nan"),),
        (0, 1e300, 1e-300),
        (0, 1, 0.0),
    ],
)
def test_a_range_without_end_is_refused_with_torchs_text(bounds: tuple[float, ...]) -> None:
    with pytest.raises(RuntimeError) as expected:
        torch.arange(*bounds)
    assert_raises_the_same(torch.arange, bounds, {}, expected.value)


@pytest.mark.parametrize(
    "tensors",
    [
        (),
        (torch.ones(2), torch.ones(3, dtype=torch.float64)),
        (torch.ones(2), torch.ones(3, device="meta")),
    ],
)
@pytest.mark.parametrize("function", [torch.meshgrid, torch.cartesian_prod])
def test_a_grid_of_unlike_tensors_is_refused(function, tensors):
    try:
        function(*tensors)
    except RuntimeError as error:
        assert_raises_the_same(function, tensors, {}, error)
    else:
        pytest.fail("torch refuses the call")
