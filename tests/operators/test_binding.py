"""Calls that torch's parser refuses raise what it raises; those that it takes mean what they mean in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder

X = torch.rand(2, 3)


def test_a_python_type_is_a_dtype() -> None:
    def program(x: torch.Tensor) -> Any:
        return x.to(float), x.to(bool), x.to(int), x.to(complex), x.to(dtype=float), torch.zeros(2, dtype=int)

    for ours, theirs in zip(thunder.jit(program)(X), program(X), strict=True):
        assert ours.dtype is theirs.dtype
        assert torch.equal(ours, theirs)
