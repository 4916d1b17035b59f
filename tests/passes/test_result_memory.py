"""The memory of what an executor returns for a call: that of the operator's results, also through views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.tags import OpTags
from thunder.extend import OperatorExecutor

CHECKED = thunder.DebugOptions(check_traces=True)


def implementing(operator_id: str, transform: Callable[..., Any]) -> OperatorExecutor:
    executor = OperatorExecutor("memories")
    executor.register_implementation(operator_id, execution_transform=transform)
    return executor


def share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def copied(x: Any, first: int, second: int) -> Any:
    return thunder.torch.clone(thunder.torch.permute(x, (1, 0)))


@pytest.mark.parametrize(
    "alias",
    [lambda a: a, lambda a: a.view(-1).view(a.shape), lambda a: a.contiguous()],
    ids=["argument", "view", "perhaps a view"],
)
def test_a_result_of_a_transform_does_not_share_memory_with_an_argument(alias: Callable[..., Any]) -> None:
    x = torch.ones(3)
    y = thunder.jit(torch.exp, executors=[implementing("torch.exp", alias)])(x)
    assert torch.equal(x, y)
    assert not share(x, y)


def test_a_view_of_a_result_that_is_an_alias_does_not_share_memory_either() -> None:
    x = torch.ones(3)
    executor = implementing("torch.exp", lambda a: a)
    assert not share(x, thunder.jit(lambda x: torch.exp(x)[1:], executors=[executor])(x))


def test_an_alias_that_the_program_does_not_return_is_not_copied() -> None:
    executor = implementing("torch.exp", lambda a: a.view(-1).view(a.shape))
    compiled = thunder.jit(lambda x: torch.exp(x) + 1, executors=[executor])
    compiled(torch.ones(3))
    assert "clone" not in str(thunder.last_traces(compiled)[-1])


def test_an_operator_that_may_return_a_view_is_copied_where_torchs_operator_returns_no_view() -> None:
    executor = OperatorExecutor("memories")
    same = executor.register_operator(
        "same", like=thunder.torch.exp, fn=lambda a: a, tags=[OpTags.MAYBE_VIEW], replace=True
    )
    executor.register_implementation("torch.exp", same)
    x = torch.ones(3)
    y = thunder.jit(lambda x: torch.exp(x), executors=[executor], debug_options=CHECKED)(x)
    assert torch.equal(x, y)
    assert not share(x, y)


def test_a_copy_in_place_of_a_view_is_refused_where_the_program_returns_the_view() -> None:
    compiled = thunder.jit(
        lambda x: torch.transpose(x, 0, 1), executors=[implementing("torch.transpose", copied)]
    )
    x = torch.zeros(3, 2)
    compiled(x).add_(1)
    assert torch.equal(x, torch.ones(3, 2))
    (row,) = thunder.explain(compiled).rows
    assert (row.claimed_by, [r.code for r in row.refusals]) == ("torch", ["view"])


def test_an_operator_without_the_tag_view_is_refused_where_the_program_returns_the_view() -> None:
    executor = OperatorExecutor("memories")
    turned = executor.register_operator(
        "turned",
        meta=lambda x, a, b: thunder.TensorProxy(like=x, shape=tuple(reversed(x.shape))),
        fn=lambda x, a, b: x.transpose(a, b).contiguous(),
        replace=True,
    )
    executor.register_implementation("torch.transpose", turned)
    compiled = thunder.jit(lambda x: torch.transpose(x, 0, 1), executors=[executor])
    x = torch.zeros(3, 2)
    assert share(x, compiled(x))


@pytest.mark.parametrize(
    "program", [lambda x: torch.transpose(x, 0, 1) * 2, lambda x: torch.transpose(x * 2, 0, 1)]
)
def test_a_copy_in_place_of_a_view_is_not_refused_where_no_write_can_tell(
    program: Callable[..., Any],
) -> None:
    compiled = thunder.jit(program, executors=[implementing("torch.transpose", copied)])
    x = torch.randn(3, 2)
    assert torch.equal(compiled(x), program(x))
    assert "memories" in {row.claimed_by for row in thunder.explain(compiled).rows}


def test_a_kernel_that_copies_is_found_if_its_operator_returns_views() -> None:
    executor = OperatorExecutor("memories")
    turned = executor.register_operator(
        "turned",
        like=torch.transpose,
        fn=lambda x, a, b: x.transpose(a, b).contiguous(),
        replace=True,
    )
    executor.register_implementation("torch.transpose", turned)
    compiled = thunder.jit(lambda x: torch.transpose(x, 0, 1), executors=[executor], debug_options=CHECKED)
    with pytest.raises(thunder.PluginError, match="returns a copy, and is declared to return a view"):
        compiled(torch.ones(3, 2))


def test_a_kernel_that_returns_one_memory_twice_is_found() -> None:
    def halves(x: Any) -> Any:
        doubled = x * 2
        return doubled, doubled.view(-1).view(x.shape)

    executor = OperatorExecutor("memories")
    executor.register_operator(
        "halves",
        meta=lambda x: (thunder.TensorProxy(like=x), thunder.TensorProxy(like=x)),
        fn=halves,
        replaces=halves,
        replace=True,
    )
    compiled = thunder.jit(lambda x: halves(x), executors=[executor], debug_options=CHECKED)
    with pytest.raises(thunder.PluginError, match="returns two results in one memory"):
        compiled(torch.ones(3))
