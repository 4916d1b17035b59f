"""Strides that the meta function of an operator declares, also where the operator is a part of another."""

from __future__ import annotations

from typing import Any

import torch

import thunder
from thunder.core.proxies import TensorProxy
from thunder.extend import OperatorExecutor

ex = OperatorExecutor("declared_strides")


def columns_meta(x: TensorProxy) -> TensorProxy:
    rows, columns = x.shape
    return TensorProxy(shape=(rows, columns), device=x.device, dtype=x.dtype, strides=(1, rows))


def columns(x: torch.Tensor) -> torch.Tensor:
    """Return a copy with adjacent columns; the numbers of its memory are read by no function of torch."""
    return x.mT.contiguous().mT


by_columns = ex.register_operator("by_columns", meta=columns_meta, fn=columns)


def doubled(x: Any) -> Any:
    return by_columns(x) * 2


doubled_by_columns = ex.register_operator("doubled_by_columns", like=doubled)


def test_the_strides_of_a_part_decide_those_of_the_whole():
    def program(x: torch.Tensor) -> Any:
        y = doubled_by_columns(x.sin())
        return y, y.stride()

    x = torch.randn(3, 5)
    result, strides = thunder.jit(program, executors=[ex])(x)
    expected = columns(x.sin()) * 2
    torch.testing.assert_close(result, expected)
    assert strides == result.stride() == expected.stride() == (1, 3)
