"""Equality of two results: same containers, same types, same numbers."""

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def assert_same(actual: Any, expected: Any, *, tolerance: float = 0.0, path: str = "result") -> None:
    """Raises AssertionError, naming the place, unless `actual` is what eager gave.

    `tolerance` is absolute and relative; 0 asks for equal numbers (NaN equals NaN). Containers have the same
    exact type; tensors the same dtype, shape, device, strides and `requires_grad`.
    """
    assert type(actual) is type(expected), f"{path}: {type(actual)} instead of {type(expected)}"
    if isinstance(expected, Tensor):
        assert_same_tensor(actual, expected, tolerance, path)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected), f"{path}: keys {list(actual)} instead of {list(expected)}"
        for key, value in expected.items():
            assert_same(actual[key], value, tolerance=tolerance, path=f"{path}[{key!r}]")
    elif isinstance(expected, tuple | list):
        assert len(actual) == len(expected), f"{path}: {len(actual)} items instead of {len(expected)}"
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, tolerance=tolerance, path=f"{path}[{i}]")
    elif is_dataclass(expected):
        for f in fields(expected):
            a, e = getattr(actual, f.name), getattr(expected, f.name)
            assert_same(a, e, tolerance=tolerance, path=f"{path}.{f.name}")
    elif getattr(type(expected), "__eq__", None) is object.__eq__ and hasattr(expected, "__dict__"):
        assert_same(vars(actual), vars(expected), tolerance=tolerance, path=f"vars({path})")
    else:
        assert actual == expected, f"{path}: {actual!r} instead of {expected!r}"


def assert_same_tensor(actual: Tensor, expected: Tensor, tolerance: float, path: str) -> None:
    """Raises AssertionError unless metadata are equal and numbers equal or within `tolerance`."""
    for fact in ("dtype", "shape", "device", "requires_grad"):
        a, e = getattr(actual, fact), getattr(expected, fact)
        assert a == e, f"{path}: {fact} {a} instead of {e}"
    assert actual.stride() == expected.stride(), f"{path}: strides {actual.stride()}, not {expected.stride()}"
    torch.testing.assert_close(
        actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text: f"{path}: {text}"
    )
