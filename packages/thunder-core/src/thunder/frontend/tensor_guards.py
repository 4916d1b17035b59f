"""The batched check of the metadata of all tensors of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.frontend.facts import TensorFacts
from thunder.ir.symbolic_sizes import SymbolicInt


def tensor_check(expected: Sequence[TensorFacts], examples: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """Return a function of as many tensors that returns whether all have their metadata.

    It is torch's batched check, which TorchDynamo uses: written in C, it compares type, dispatch keys, dtype,
    device, sizes, strides and requires_grad, and fails if a tensor comes twice. Sizes and strides are passed
    because None means "any", which it is for a symbolic one. A torch without it gets the check in Python.
    """
    batched = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if batched is None:
        return lambda *tensors: (
            len({*map(id, tensors)}) == len(tensors)
            and all(f.describe(t) is None for f, t in zip(expected, tensors, strict=True))
        )
    in_c = batched.TensorGuards(
        *examples,
        dynamic_dims_sizes=[
            list(t.shape) if f.free is None else _fixed(f.free.shape)
            for f, t in zip(expected, examples, strict=True)
        ],
        dynamic_dims_strides=[
            list(t.stride()) if f.free is None else _fixed(f.free.strides)
            for f, t in zip(expected, examples, strict=True)
        ],
    )
    return in_c.check  # type: ignore[no-any-return]


def _fixed(sizes: Sequence[Any]) -> list[int | None]:
    """Return sizes, with None for those that may differ from call to call."""
    return [None if isinstance(n, SymbolicInt) else n for n in sizes]
