"""What is said to Transformer Engine, heard by a stand-in that computes what its documentation says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder_te.te_kernels as te_kernels
from thunder_te import formulas
from thunder_te.executors import _REFERENCE
from thunder_te.four_bits import dequantised_four_bits, four_bits, stochastic_four_bits
from thunder_te.te_kernels import KERNELS

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def padded(scales: Tensor, rows: int, columns: int) -> Tensor:
    """Scales with the library's padding."""
    out = scales.new_ones(-(-scales.shape[0] // rows) * rows, -(-scales.shape[1] // columns) * columns)
    out[: scales.shape[0], : scales.shape[1]] = scales
    return out


def exponents(scales: Tensor) -> Tensor:
    """Powers of two as biased exponents in 8 bits."""
    return (torch.log2(scales) + 127).round().to(torch.uint8)


class Quantizer:
    """The library's quantizers, by the formulas of this package."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        self.kind, self.args, self.kwargs = kind, args, kwargs

    def __call__(self, x: Tensor) -> Any:
        return getattr(self, self.kind)(x)

    def current(self, x: Tensor) -> Any:
        assert self.kwargs["rowwise"]
        assert not self.kwargs["columnwise"]
        data, inverse = formulas.by_own_amax(x, FORMATS[self.args[0]], self.kwargs["force_pow_2_scales"])
        return SimpleNamespace(_data=data.view(torch.uint8), _scale_inv=inverse)

    def delayed(self, x: Tensor) -> Any:
        scale, amax, name = self.args
        data, inverse, largest = formulas.by_scale(x, scale, FORMATS[name])
        amax.fill_(largest)
        return SimpleNamespace(_data=data.view(torch.uint8), _scale_inv=inverse)

    def mx(self, x: Tensor) -> Any:
        block = (1, 32) if self.kwargs["rowwise"] else (32, 1)
        data, inverse = formulas.by_blocks(x, FORMATS[self.args[0]], block, True)
        sizes = (128, 4) if self.kwargs["rowwise"] else (4, 128)
        return self.stored(data, padded(exponents(inverse), *sizes))

    def block(self, x: Tensor) -> Any:
        if self.kwargs["block_scaling_dim"] == 2:
            assert self.kwargs["rowwise"]
            data, inverse = formulas.by_blocks(x, FORMATS[self.args[0]], (128, 128), True)
            return self.stored(data, padded(inverse, 1, 4))
        block = (1, 128) if self.kwargs["rowwise"] else (128, 1)
        data, inverse = formulas.by_blocks(x, FORMATS[self.args[0]], block, self.kwargs["force_pow_2_scales"])
        if self.kwargs["rowwise"]:
            return self.stored(data, padded(inverse.t(), 1, 4))
        return self.stored(data.t().contiguous(), padded(inverse, 1, 4))

    def four(self, x: Tensor) -> Any:
        """Two elements in a byte, scales with padding, and the largest magnitude."""
        rows, columns = self.kwargs["rowwise"], self.kwargs["columnwise"]
        assert rows != columns
        assert self.kwargs["with_rht"] == self.kwargs["with_post_rht_amax"]
        square, transform = self.kwargs["with_2d_quantization"], self.kwargs["with_rht"]
        if self.kwargs["stochastic_rounding"]:
            assert not square
            data, scales, amax = stochastic_four_bits(x, columns, transform)
        else:
            data, scales, amax = four_bits(x, columns, square, transform)
        part = "rowwise" if rows else "columnwise"
        stored = self.stored(data, padded(scales.view(torch.uint8), 128, 4))
        setattr(stored, f"_amax_{part}", amax)
        return stored

    def stored(self, data: Tensor, scale_inv: Tensor) -> Any:
        prefix = "_rowwise" if self.kwargs["rowwise"] else "_columnwise"
        return SimpleNamespace(**{f"{prefix}_data": data.view(torch.uint8), f"{prefix}_scale_inv": scale_inv})


class Storage:
    """A quantised tensor of the library, and its values by rows or by columns."""

    def __init__(self, kind: str, fields: dict[str, Any]) -> None:
        self.kind, self.fields = kind, fields

    def update_usage(self, *, rowwise_usage: bool, columnwise_usage: bool) -> None:
        assert self.kind == "block"
        assert self.fields["is_2D_scaled"]
        assert rowwise_usage
        self.fields["columnwise_data"] = self.fields["rowwise_data"].t().contiguous()

    def values(self, columnwise: bool) -> Tensor:
        if self.kind == "four":
            assert not columnwise, "both operands are read by rows"
            assert self.fields["fp4_dtype"] == "e2m1"
            data, amax = self.fields["rowwise_data"], self.fields["amax_rowwise"]
            scales = self.fields["rowwise_scale_inv"][: data.shape[0], : data.shape[1] // 8]
            return dequantised_four_bits(data, scales.view(torch.float8_e4m3fn), amax)
        dtype, part = FORMATS[self.fields["fp8_dtype"]], "columnwise" if columnwise else "rowwise"
        if self.kind == "tensor":
            assert not columnwise, "a kernel for Hopper reads rows"
            assert self.fields["data"].is_contiguous()
            return self.fields["data"].view(dtype).float() * self.fields["fp8_scale_inv"]
        data = self.fields[f"{part}_data"]
        assert data is not None, f"a kernel reads {part}"
        assert data.is_contiguous()
        data, scales = data.view(dtype), self.fields[f"{part}_scale_inv"]
        if self.kind == "mx":
            block = (32, 1) if columnwise else (1, 32)
            inverse = torch.exp2(scales.float() - 127)
        elif self.fields["is_2D_scaled"]:
            data, block = (data.t() if columnwise else data), (128, 128)
            inverse = self.fields["rowwise_scale_inv"]
        else:
            data, block = (data.t() if columnwise else data), (128, 1) if columnwise else (1, 128)
            inverse = scales if columnwise else scales.t()
        sizes = [-(-size // length) for size, length in zip(data.shape, block, strict=True)]
        return formulas.dequantised(data, inverse[: sizes[0], : sizes[1]], block)


#: how products were asked to accumulate
ACCUMULATIONS: list[bool] = []


def general_gemm(
    a: Storage,
    b: Storage,
    *,
    out_dtype: Any,
    layout: str,
    bias: Any,
    use_split_accumulator: bool = False,
) -> Any:
    """The product of matrices that are stored by columns, as cuBLAS takes them: `b @ a` by rows."""
    assert bias is None or out_dtype is not torch.float32, "cuBLAS adds no bias in float32"
    ACCUMULATIONS.append(use_split_accumulator)
    left = b.values(columnwise=layout[1] == "T")
    right = a.values(columnwise=layout[0] == "N")
    product = (left.t() if layout[1] == "T" else left) @ (right.t() if layout[0] == "T" else right)
    return ((product if bias is None else product + bias.float()).to(out_dtype),)


def module(name: str) -> Any:
    """The stand-in's modules by name."""

    def quantizer(kind: str) -> Any:
        return lambda *args, **kwargs: Quantizer(kind, *args, **kwargs)

    def storage(kind: str) -> Any:
        return lambda **fields: Storage(kind, fields)

    return SimpleNamespace(
        DType=SimpleNamespace(kFloat8E4M3="e4m3", kFloat8E5M2="e5m2", kFloat4E2M1="e2m1"),
        Float8CurrentScalingQuantizer=quantizer("current"),
        Float8Quantizer=quantizer("delayed"),
        MXFP8Quantizer=quantizer("mx"),
        Float8BlockQuantizer=quantizer("block"),
        NVFP4Quantizer=quantizer("four"),
        Float8TensorStorage=storage("tensor"),
        MXFP8TensorStorage=storage("mx"),
        NVFP4TensorStorage=storage("four"),
        Float8BlockwiseQTensorStorage=storage("block"),
        general_gemm=general_gemm,
    )


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(te_kernels, "library", module)


def quantised(kernels: Any, matrix: Tensor, dtype: torch.dtype, block: Any) -> tuple[Tensor, Tensor]:
    """A matrix by one scale, or by one for each block."""
    if block is None:
        return kernels.quantize(matrix, dtype, False)
    return kernels.quantize_blocks(matrix, dtype, block, True)


PRODUCTS = {
    "tensor": {"NT": (None, None), "NN": (None, None), "TN": (None, None)},
    "mx": {"NT": ((1, 32), (1, 32)), "NN": ((1, 32), (32, 1)), "TN": ((32, 1), (32, 1))},
    "block": {"NT": ((1, 128), (128, 128)), "NN": ((1, 128), (128, 128)), "TN": ((128, 1), (128, 1))},
}


@pytest.mark.parametrize("layout", ["NT", "NN", "TN"])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_products_are_those_of_the_reference(kind: str, layout: str):
    torch.manual_seed(0)
    shapes = {"NT": ((64, 160), (96, 160)), "NN": ((64, 96), (96, 160)), "TN": ((64, 96), (64, 160))}[layout]
    a, b = map(torch.randn, shapes)
    blocks = PRODUCTS[kind][layout]
    bias = torch.randn(96) if layout == "NT" else None
    results = []
    for kernels in (_REFERENCE, KERNELS):
        left = quantised(kernels, a, torch.float8_e5m2, blocks[0])
        right = quantised(kernels, b, torch.float8_e4m3fn, blocks[1])
        results.append(kernels.gemm(*left, *right, bias, layout, blocks, torch.float32))
        for matrix, (data, scales), block in zip((a, b), (left, right), blocks, strict=True):
            assert data.shape == matrix.shape
            if block is not None:
                shape, dtype = kernels.block_scales(tuple(matrix.shape), block)
                assert (tuple(scales.shape), scales.dtype) == (shape, dtype)
    torch.testing.assert_close(*results)
    # the recipes' default: the products of a backward, and all of blocks, add up their parts in float32
    assert ACCUMULATIONS[-1] is (kind != "tensor" or layout != "NT")


def test_a_scale_from_earlier_steps():
    x, scales = torch.randn(16, 32), torch.tensor([1.0, 32.0, 4.0])
    expected = _REFERENCE.quantize_by_scale(x, scales, 1, torch.float8_e4m3fn)
    found = KERNELS.quantize_by_scale(x, scales, 1, torch.float8_e4m3fn)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a.float(), b.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("transform", [False, True])
def test_products_in_four_bits_are_those_of_the_reference(dtype: torch.dtype, transform: bool):
    torch.manual_seed(0)
    a, b, bias = (
        torch.randn(64, 160, dtype=dtype),
        torch.randn(160, 96, dtype=dtype),
        torch.randn(96).to(dtype),
    )
    results = []
    for kernels in (_REFERENCE, KERNELS):
        left = kernels.quantize_four_bits(a, False, False, transform)
        right = kernels.quantize_four_bits(b, True, not transform, transform)
        for stored, shape in ((left, (64, 160)), (right, (96, 160))):
            assert (stored[0].shape, stored[0].dtype) == ((shape[0], shape[1] // 2), torch.uint8)
            assert (tuple(stored[1].shape), stored[1].dtype) == (
                kernels.four_bit_scales(shape),
                torch.float8_e4m3fn,
            )
            assert (stored[2].shape, stored[2].dtype) == ((1,), torch.float32)
        results.append(kernels.gemm_four_bits(*left, *right, bias, dtype))
    torch.testing.assert_close(*results, rtol=0, atol=0.02 if dtype is torch.bfloat16 else 1e-4)
    exact = a.double() @ b.double() + bias
    assert (results[0] - exact).norm() / exact.norm() < 0.2


@pytest.mark.parametrize("by_columns", [False, True])
def test_stochastic_rounding_is_asked_of_the_library_with_the_numbers_of_the_seed(by_columns: bool):
    x, results = torch.randn(64, 96), []
    for kernels in (_REFERENCE, KERNELS):
        torch.manual_seed(3)
        data, scales, amax = kernels.quantize_four_bits_at_random(x, by_columns, by_columns)
        stored = kernels.four_bit_scales((96, 64) if by_columns else (64, 96))
        assert tuple(scales.shape) == stored
        results.append((data, amax))
    for expected, found in zip(*results, strict=True):
        assert torch.equal(expected, found)
    assert not torch.equal(results[0][0], four_bits(x, by_columns, False, by_columns)[0])
