"""Programs whose meaning depends on the version of torch: they do what eager does on the one installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from comparison.derivatives import assert_as_eager
from thunder.base.errors import UnsupportedProgram
from thunder.base.torch_versions import ASARRAY_KEEPS_GRADIENTS

pytestmark = pytest.mark.filterwarnings("ignore:torch.asarray")

INTERMEDIATES: dict[str, Callable[[torch.Tensor], Any]] = {
    "one": lambda x: torch.asarray(x * 2) * 3 + x,
    "its argument by name": lambda x: torch.asarray(obj=x * 2) * x,
    "cast": lambda x: torch.asarray(x * 2, dtype=torch.float64) * x,
    "a cast input": lambda x: torch.asarray(x, dtype=torch.float32) * x,
}


@pytest.mark.parametrize("program", INTERMEDIATES.values(), ids=INTERMEDIATES)
def test_asarray_cuts_gradients_where_eager_does(program: Callable[[torch.Tensor], Any]) -> None:
    x = torch.linspace(0.5, 2, 3, dtype=torch.float64, requires_grad=True)
    assert_as_eager(program, x)


def test_asarray_of_a_leaf_is_eagers_or_refused() -> None:
    program = thunder.jit(lambda x: torch.asarray(x) * 3)
    assert torch.equal(program(torch.ones(3)), torch.full((3,), 3.0))
    x = torch.ones(3, requires_grad=True)
    if ASARRAY_KEEPS_GRADIENTS:
        program(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [3, 3, 3]
    else:
        with pytest.raises(UnsupportedProgram, match="would set requires_grad of its argument to False"):
            program(x)
        assert x.requires_grad


@pytest.mark.skipif(not hasattr(torch.Tensor, "has_names"), reason="this torch has no names of dimensions")
def test_names_of_dimensions_are_refused() -> None:
    program = thunder.jit(lambda x: (x * 2, x.has_names()))
    result, has_names = program(torch.ones(2, 3))
    assert not has_names
    assert result.tolist() == [[2, 2, 2]] * 2
    named = torch.ones(2, 3).rename("N", "C")  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedProgram, match="a tensor with names of dimensions"):
        program(named)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 8), (0, 3, 8)])
def test_the_fast_path_of_an_encoder_layer_has_eagers_strides(
    norm_first: bool, shape: tuple[int, ...]
) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(shape)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        with torch.no_grad():
            y = layer(x)
            return y, y.stride() if y.numel() else ()

    compiled = thunder.jit(program)
    for inputs in (x, x.transpose(0, 1).contiguous().transpose(0, 1), x.mT.contiguous().mT):
        (expected, strides), (found, found_strides) = program(inputs), compiled(inputs)
        assert torch.equal(expected, found)
        assert found_strides == strides
