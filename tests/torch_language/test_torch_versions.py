"""Programs whose meaning depends on the version of torch: they do what eager does on the one installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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


BFLOATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a complex number": lambda x: x * 1j,
    "a complex tensor": lambda x: x + torch.ones(3, dtype=torch.complex64),
    "one without dimensions": lambda x: x * torch.tensor(2j),
    "parts": lambda x: torch.complex(x, x),
}


@pytest.mark.parametrize("program", BFLOATS.values(), ids=BFLOATS)
def test_bfloat16_and_complex_numbers_have_eagers_type(program: Callable[..., torch.Tensor]) -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    try:
        expected = program(x)
    except RuntimeError as error:  # torch 2.15 has a type for it, and few kernels
        with pytest.raises(type(error), match=re.escape(str(error))):
            thunder.jit(program)(x)
        return
    found = thunder.jit(program)(x)
    assert found.dtype is expected.dtype
    assert torch.equal(found, expected)


MODES = ("reflect", "replicate", "circular")
STRIDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fft": lambda x: torch.fft.fft(x, dim=1),
    "fft2": lambda x: torch.fft.fft2(x),
    "rfft": lambda x: torch.fft.rfft(x, dim=1),
    "irfftn": lambda x: torch.fft.irfftn(x),
    "quantile": lambda x: torch.quantile(x, 0.5, dim=1),
    **{mode: lambda x, mode=mode: F.pad(x, (1,) * 6, mode=mode) for mode in MODES},
    **{f"{mode} 2d": lambda x, mode=mode: F.pad(x[0], (1,) * 4, mode=mode) for mode in MODES},
}


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 4, 1, 2, 3), (0, 1, 3, 2, 4)])
@pytest.mark.parametrize("fn", STRIDED.values(), ids=STRIDED)
def test_strides_are_those_of_kernels_with_data(
    fn: Callable[[torch.Tensor], torch.Tensor], order: tuple[int, ...]
) -> None:
    def program(x: torch.Tensor) -> tuple[int, ...]:
        return fn(x).stride()

    x = torch.randn(2, 3, 4, 5, 6).permute(order)
    assert thunder.jit(program)(x) == program(x)
