"""Compiled regions at zeros, infinities, NaN and the limits of dtypes: values of eager's class."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from inductor.edge_grid import DTYPES, FLOATS, KINDS, difference, tensors
from thunder.core.pytree import tree_flatten

pytestmark = [pytest.mark.xdist_group("inductor"), pytest.mark.filterwarnings("ignore")]

#: calls whose results differ from eager's in class, and why
ACCEPTED: Mapping[str, str] = {
    "F.gelu": "eager's kernel for many elements gives NaN for infinity, that for few elements does not",
    "F.softshrink": "the sign of a zero differs between eager's kernels for many and for few elements",
    "fmax": "which of two zeros, the first or the second",
    "fmin": "which of two zeros, the first or the second",
    "lerp": "the sign of a zero, of which eager computes one factor with a fused multiplication",
    "lerp tensor": "the same",
    "rmod": "eager's kernel for many elements gives NaN for large quotients, that for few elements does not",
    "var_mean": "eager's mean of a row with an infinity is NaN here, and infinite in torch.mean",
}


def is_accepted(name: str) -> bool:
    return name in ACCEPTED or name.split()[0] in ACCEPTED


def differences(cases: Mapping[str, Callable[..., Any]], inputs: list[torch.Tensor]) -> dict[str, str]:
    """Return the calls whose results differ, of those that eager computes; all are one program."""
    taken: dict[str, Callable[..., Any]] = {}
    for name, case in cases.items():
        try:
            results = tree_flatten(case(*inputs))[0]
        except (RuntimeError, TypeError, OverflowError, ZeroDivisionError):  # eager refuses the call
            continue
        if not any(x.is_complex() for x in results):
            taken[name] = case

    def program(*args: torch.Tensor) -> list[Any]:
        copies = [x.clone() for x in args]
        return [case(*copies) for case in taken.values()]

    results, expected = thunder.jit(program)(*inputs), program(*inputs)
    found = {}
    for name, result, value in zip(taken, results, expected, strict=True):
        pairs = zip(tree_flatten(result)[0], tree_flatten(value)[0], strict=True)
        if kinds := [kind for x, y in pairs if (kind := difference(x, y)) is not None]:
            found[name] = kinds[0]
    return found


def test_values_at_which_torchinductor_differs_are_those_of_eager() -> None:
    cases: dict[str, Callable[..., Any]] = {
        "expm1": torch.expm1,
        "atanh": torch.atanh,
        "acosh": torch.acosh,
        "remainder": lambda x: torch.remainder(x, float("inf")),
        "remainder of -1": lambda x: torch.remainder(x, -1),
        "addcdiv": lambda x: torch.addcdiv(x, x, x, value=2),
        "clamp": lambda x: x.clamp(min=0),
        "relu6": F.relu6,
        "threshold": lambda x: F.threshold(x, 0.1, 2.0),
    }
    assert differences(cases, tensors("of one", torch.float32)) == {}


def test_expm1_of_a_small_number_is_as_precise_as_eager() -> None:
    x = torch.logspace(-30, 1, 64)
    result = thunder.jit(lambda x: torch.expm1(x) * 1)(x)
    torch.testing.assert_close(result, torch.expm1(x), rtol=1e-6, atol=0)


def test_bools_are_added_with_a_factor() -> None:
    """TorchInductor's own code for it writes beyond the memory of the result."""
    x, y = torch.tensor([True, False, False, True] * 4), torch.tensor([True, True, False, False] * 4)
    compiled = thunder.jit(lambda x, y: torch.add(x, ~y, alpha=3))
    assert torch.equal(compiled(x, y), x | ~y)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_are_of_the_class_of_eager(kind: str, dtype: torch.dtype) -> None:
    if kind == "divisions" and dtype in (*FLOATS, torch.bool):
        pytest.skip("among the calls of two tensors")
    with warnings.catch_warnings(action="ignore"):
        found = differences(KINDS[kind](dtype), tensors(kind, dtype))
    assert {name: kind for name, kind in found.items() if not is_accepted(name)} == {}
