"""Facts that passes ask of rows: an operator of a package has them as one of torch's language does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder import cache_misses
from thunder.base.errors import PluginError, RegistrationError, UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.core import prims
from thunder.core.options import DebugOptions
from thunder.extend import CONTIGUOUS, LIKE, Layout, OperatorExecutor, ViewRule
from thunder.ir.proxies import TensorProxy


@pytest.fixture
def ex() -> OperatorExecutor:
    """An executor without operators."""
    return OperatorExecutor("facts")


def scale(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def column(x: torch.Tensor, i: int) -> torch.Tensor:
    return x[:, i]


def column_meta(x: TensorProxy, i: int) -> TensorProxy:
    return TensorProxy(shape=x.shape[:1], device=x.device, dtype=x.dtype)


def with_column(call: Any, base: TensorProxy, value: TensorProxy) -> TensorProxy:
    return prims.copy_with_setitem(base, (slice(None), call.args[1]), value)


def scaled_by_count(x: torch.Tensor) -> torch.Tensor:
    return scale(x, (x > 2).sum().item())


@pytest.mark.parametrize(("integers", "compiles"), [("decided", 2), ("values", 1)])
def test_integers_out_of_tensors_are_decided_as_the_row_says(
    ex: OperatorExecutor, integers: Any, compiles: int
) -> None:
    ex.register_operator(
        "scale", meta=lambda x, n: TensorProxy(like=x), fn=scale, replaces=scale, integers=integers
    )
    compiled = thunder.jit(scaled_by_count, executors=[ex])
    for x in (torch.arange(6.0), torch.arange(6.0) + 1):
        torch.testing.assert_close(compiled(x), scaled_by_count(x))
    assert cache_misses(compiled) == compiles


def test_another_word_for_integers_is_refused(ex: OperatorExecutor) -> None:
    with pytest.raises(RegistrationError, match="integers='numbers'"):
        ex.register_operator("scale", meta=lambda x, n: TensorProxy(like=x), fn=scale, integers="numbers")  # type: ignore[arg-type]


def scaled_column(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    column(y, 1).mul_(10)
    return y + y.sum()


def test_a_write_to_a_view_reaches_its_base_by_the_rule_of_the_row(ex: OperatorExecutor) -> None:
    rule = ViewRule(inverse=with_column)
    ex.register_operator(
        "column", meta=column_meta, fn=column, replaces=column, tags={OpTags.VIEW}, view=rule
    )
    x = torch.rand(3, 4)
    torch.testing.assert_close(thunder.jit(scaled_column, executors=[ex])(x), scaled_column(x))


def test_a_write_to_a_view_without_a_rule_is_refused(ex: OperatorExecutor) -> None:
    ex.register_operator("column", meta=column_meta, fn=column, replaces=column, tags={OpTags.VIEW})
    with pytest.raises(UnsupportedProgram, match="writes through column"):
        thunder.jit(scaled_column, executors=[ex])(torch.rand(3, 4))


class Kernel:
    """A kernel that tensors without data cannot run, as one in C."""

    def __init__(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.fn = fn

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.fn(x)


def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def with_strides(x: torch.Tensor) -> Any:
    y = halved(x)
    return y, y.stride()


def halving(ex: OperatorExecutor, fn: Callable[[torch.Tensor], torch.Tensor], layout: Layout | None) -> Any:
    ex.register_operator(
        "halved", meta=lambda x: TensorProxy(like=x), fn=Kernel(fn).run, replaces=halved, layout=layout
    )
    return thunder.jit(with_strides, executors=[ex], debug_options=DebugOptions(check_traces=True))


@pytest.mark.parametrize(
    ("fn", "layout"), [(lambda x: (x / 2).contiguous(), CONTIGUOUS), (lambda x: x / 2, LIKE)]
)
def test_a_kernels_results_have_the_strides_that_its_row_says(
    ex: OperatorExecutor, fn: Any, layout: Layout
) -> None:
    compiled = halving(ex, fn, layout)
    for x in (torch.rand(3, 4), torch.rand(4, 3).t(), torch.rand(2, 3, 4).permute(1, 2, 0)):
        result, strides = compiled(x)
        torch.testing.assert_close(result, x / 2)
        assert strides == result.stride() == fn(x).stride()


def test_the_strides_of_a_kernel_without_a_layout_are_refused(ex: OperatorExecutor) -> None:
    with pytest.raises(UnsupportedProgram, match=r"strides of the results of facts\.halved are not known"):
        halving(ex, halved, None)(torch.rand(3, 4))


def test_results_with_other_strides_than_the_row_says_are_found(ex: OperatorExecutor) -> None:
    compiled = halving(ex, halved, CONTIGUOUS)
    with pytest.raises(PluginError, match="returns other strides than eager"):
        compiled(torch.rand(4, 3).t())
