"""Copies of small values that the caller holds: the backward computes large values again from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors

#: in float64, 512 KiB and 1 KiB
ROWS, WIDTH = 512, 128


def normalised(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return a product of scaled rows, which eager saves."""
    h = x @ v
    scaled = h * torch.rsqrt((h * h).mean(-1, keepdim=True)) * w
    return torch.nn.functional.linear(scaled, v)


def inputs() -> tuple[torch.Tensor, ...]:
    return leaf(ROWS, WIDTH), leaf(WIDTH, seed=1), leaf(WIDTH, WIDTH, seed=2)


def saved(compiled: Any) -> dict[str, tuple[int, ...]]:
    tensors = get_saved_for_backward_tensors(thunder.last_traces(compiled)[-1])
    return {p.name: tuple(p.shape) for p in tensors if not p.declared_leaf}


def test_the_scaled_rows_are_computed_again_from_a_copy_of_the_weight() -> None:
    compiled = thunder.jit(normalised)
    compiled(*inputs())
    assert saved(compiled) == {"h": (ROWS, WIDTH), "t4": (ROWS, 1), "saved_w": (WIDTH,)}


@pytest.mark.parametrize("policy", ["none", 10_000])
def test_other_policies_save_no_copy(policy: str | int) -> None:
    compiled = thunder.jit(normalised, rematerialization=policy)
    compiled(*inputs())
    assert not any(name.startswith("saved_") for name in saved(compiled))


def test_small_values_are_saved_themselves() -> None:
    compiled = thunder.jit(normalised)
    compiled(leaf(4, WIDTH), *inputs()[1:])
    assert not any(name.startswith("saved_") for name in saved(compiled))


def gradients(program: Callable[..., torch.Tensor], change: Callable[[torch.Tensor], object]) -> Any:
    arguments = inputs()
    result = program(*arguments)
    change(arguments[1])
    return torch.autograd.grad(result, arguments, torch.ones_like(result))


def test_a_write_to_the_weights_data_before_the_backward_has_the_effect_that_it_has_in_eager() -> None:
    def change(w: torch.Tensor) -> None:
        w.data.mul_(3)

    compiled = thunder.jit(normalised)
    for ours, theirs in zip(gradients(compiled, change), gradients(normalised, change), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "saved_w" in saved(compiled)


def test_a_write_to_the_weight_before_the_backward_is_the_error_that_it_is_in_eager() -> None:
    def change(w: torch.Tensor) -> None:
        with torch.no_grad():
            w.mul_(3)

    for program in (normalised, thunder.jit(normalised)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(program, change)


def test_second_derivatives_flow_through_the_copy() -> None:
    assert_as_eager(normalised, *inputs())


def test_two_nodes_share_a_copy() -> None:
    def two(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return normalised(x, w, v), torch.exp(x) * w @ v

    assert_as_eager(two, *inputs())


def test_a_weight_that_the_program_writes_to_is_copied_before() -> None:
    def writes(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        shifted = torch.sin(x @ v) + w  # eager does not save w
        w.mul_(2)
        return shifted @ v

    x, w, v = inputs()
    compiled = assert_as_eager(writes, x, w.detach(), v)
    assert "saved_w" in saved(compiled)


def test_a_view_of_the_weight_is_copied() -> None:
    def view(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return normalised(x, w[:WIDTH], v)

    assert_as_eager(view, leaf(ROWS, WIDTH), leaf(2 * WIDTH, seed=1), leaf(WIDTH, WIDTH, seed=2))
