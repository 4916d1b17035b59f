"""Autocast on CPUs: the results of every operator have eager's dtypes, whatever they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import thunder
from operators.samples import SEED, name_of
from thunder.core.errors import UnsupportedProgram
from thunder.core.langctx import TORCH
from thunder.core.pytree import tree_iter

ENTRIES = {name_of(op): op for op in op_db if TORCH.resolve(op.op) is not None}

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about what autocast does not support


def dtypes_under_autocast(fn: Callable[..., Any], args: Any, kwargs: Any) -> list[torch.dtype]:
    """The dtypes of what a call gives under autocast."""
    torch.manual_seed(SEED)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        return [x.dtype for x in tree_iter(fn(*args, **kwargs)) if isinstance(x, torch.Tensor)]


@pytest.mark.parametrize("name", ENTRIES)
def test_results_have_eagers_dtypes(name: str) -> None:
    op = ENTRIES[name]
    for dtype in (torch.float32, torch.bfloat16):
        sample = (
            next(iter(op.sample_inputs("cpu", dtype)), None) if dtype in op.supported_dtypes("cpu") else None
        )
        if sample is None:
            continue
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        try:
            expected = dtypes_under_autocast(op.op, args, kwargs)
        except (RuntimeError, TypeError):  # eager has no kernel for what autocast makes of it
            continue
        try:
            found = dtypes_under_autocast(thunder.jit(lambda *a, **k: op.op(*a, **k)), args, kwargs)
        except UnsupportedProgram:  # by name, for this sample
            continue
        assert found == expected, f"of {dtype}"


def test_what_torch_casts_inside_of_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedProgram, match=r"torch\.linalg\.pinv under autocast"):
        dtypes_under_autocast(thunder.jit(lambda x: torch.linalg.pinv(x)), (torch.rand(3, 3),), {})
    wide = torch.rand(3, 3, dtype=torch.float64)  # of which autocast knows nothing
    assert dtypes_under_autocast(thunder.jit(lambda x: torch.linalg.pinv(x)), (wide,), {}) == [torch.float64]


def test_calls_that_write_are_left_alone() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 1
        return y.addmm_(x, x), y.exp_(), y

    x = torch.rand(3, 3)
    assert dtypes_under_autocast(thunder.jit(program), (x,), {}) == dtypes_under_autocast(program, (x,), {})
