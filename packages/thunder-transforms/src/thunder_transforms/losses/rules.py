"""The rewrite rules that recognise the cross entropy of a linear layer in programs.

    logits = F.linear(x, weight)
    loss = F.cross_entropy(logits, target)      →      loss = linear_cross_entropy(x, weight, target, -100)

A program that uses its logits elsewhere stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from thunder.core.patterns import rewrite
from thunder.extend import Refusal

__all__ = ["linear_cross_entropy_rules"]


def _of_rows(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
    return F.cross_entropy(F.linear(x, weight), target, ignore_index=ignore_index)


def _of_rows_in_float32(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
    return F.cross_entropy(F.linear(x, weight).float(), target, ignore_index=ignore_index)


def _of_batches(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
    logits = F.linear(x, weight)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target, ignore_index=ignore_index)


def _of_viewed_batches(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
    logits = F.linear(x, weight)
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), target, ignore_index=ignore_index)


def _of_batches_in_float32(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
    logits = F.linear(x, weight).float()
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target, ignore_index=ignore_index)


def _of_viewed_batches_in_float32(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
    logits = F.linear(x, weight).float()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), target, ignore_index=ignore_index)


def linear_cross_entropy_rules(
    loss: Callable[..., Any], check: Callable[..., bool | Refusal], *, package: str, executor: str
) -> Iterator[Any]:
    """Yield rules for rows of inputs and batches of them, with and without a cast to float32.

    ``loss(x, weight, target, ignore_index)`` is an operator of an executor, which returns the mean loss of
    ``x (n, features)``. ``check`` has its arguments, with ``x`` as it is in the program.
    """

    def in_dtype_of_x(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
        return loss(x.flatten(0, -2), weight, target, ignore_index).to(x.dtype)

    def in_float32(x: Any, weight: Any, target: Any, ignore_index: int = -100) -> Any:
        return loss(x.flatten(0, -2), weight, target, ignore_index).float()

    for pattern, replacement, shape, dtype in (
        (_of_rows, in_dtype_of_x, (4, 8), torch.float32),
        (_of_rows_in_float32, in_float32, (4, 8), torch.bfloat16),
        (_of_batches, in_dtype_of_x, (2, 2, 8), torch.float32),
        (_of_viewed_batches, in_dtype_of_x, (2, 2, 8), torch.float32),
        (_of_batches_in_float32, in_float32, (2, 2, 8), torch.bfloat16),
        (_of_viewed_batches_in_float32, in_float32, (2, 2, 8), torch.bfloat16),
    ):
        x, weight = (torch.empty(size, dtype=dtype, device="meta") for size in (shape, (16, 8)))
        target = torch.empty(4, dtype=torch.int64, device="meta")
        yield rewrite(
            pattern,
            replacement,
            check=check,
            name=f"{package}.linear_cross_entropy{pattern.__name__}",
            casts="written",
            examples=(x, weight, target, -100),
            executors=executor,
            root="torch.nn.functional.nll_loss",
        )
