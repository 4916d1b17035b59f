"""Values of tensors that must be eager's: how close, and what is said where they are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

#: what is compared are float64 numbers, computed in another order
TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


def tolerance_of(dtype: torch.dtype) -> dict[str, float]:
    """Return the tolerances for numbers that were computed in another order in this dtype."""
    if dtype in (torch.float64, torch.complex128):
        return TOLERANCE
    return {"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-5}


def assert_equal_tensors(
    expected: Sequence[Any], found: Sequence[Any], what: str, *, exact: bool = False, note: str = ""
) -> None:
    """Assert that two lists of tensors, and None, have equal or close values, in the same places."""
    assert len(expected) == len(found), f"{what}: {len(found)}, eager has {len(expected)}{note}"
    for i, (e, f) in enumerate(zip(expected, found, strict=True)):
        if e is None and f is None:
            continue
        assert e is not None, f"{what}, number {i}: {f}, eager has None{note}"
        assert f is not None, f"{what}, number {i}: None, eager has {e}{note}"
        if not isinstance(e, torch.Tensor):
            assert type(f) is type(e), f"{what}, number {i}: {f!r}, eager has {e!r}{note}"
            assert f == e or (f != f and e != e), f"{what}, number {i}: {f!r}, eager has {e!r}{note}"
            continue
        tolerance = {"rtol": 0.0, "atol": 0.0} if exact else tolerance_of(e.dtype)
        message = _message(f"{what}, number {i}", note)
        torch.testing.assert_close(f.detach(), e.detach(), equal_nan=True, msg=message, **tolerance)


def _message(what: str, note: str) -> Callable[[str], str]:
    """Return what `torch.testing.assert_close` calls to complete its text."""
    return lambda text: f"{what}: {text}{note}"
