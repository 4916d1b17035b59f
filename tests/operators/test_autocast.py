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

#: entries whose dtypes differ, and why
DIFFERENT: dict[str, str] = {
    **dict.fromkeys(
        ["nn.functional.pad.reflect", "nn.functional.pad.replicate", "nn.functional.pad.replicate_negative"],
        "the modes are one row here, and kernels of their own in torch",
    ),
    **dict.fromkeys(
        ["nn.functional.adaptive_avg_pool3d", "nn.functional.adaptive_max_pool3d"],
        "torch widens in three dimensions only",
    ),
    **dict.fromkeys(
        ["linalg.pinv", "linalg.pinv.hermitian"],
        "the product inside of it is lowered, and it is one row here",
    ),
    "nn.functional.binary_cross_entropy": "torch widens it on CPUs, and refuses it on others",
}

ENTRIES = {
    name_of(op): op for op in op_db if TORCH.resolve(op.op) is not None and name_of(op) not in DIFFERENT
}

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
