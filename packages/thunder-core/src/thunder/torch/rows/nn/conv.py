"""Convolutions: one decomposition for each direction, for any number of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thunder.base.errors import InvalidArgument
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.layout_rules import BY_DEVICE
from thunder.torch.broadcasting import integers
from thunder.torch.convolution_workspaces import of_convolution, of_transposed
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

Sizes = int | Sequence[int]


def each(value: Sizes, n: int) -> tuple[int, ...]:
    """Return one number for each of ``n`` dimensions."""
    sizes = integers(value)
    return sizes * n if len(sizes) == 1 else sizes


def batched(input: TensorProxy, n: int) -> tuple[TensorProxy, bool]:
    """Return ``(c, *space)`` as ``(1, c, *space)``, and whether it had no batch dimension."""
    return (ltorch.unsqueeze(input, 0), True) if len(input.shape) == n + 1 else (input, False)


def _convolve(
    input: TensorProxy,
    weight: TensorProxy,
    bias: TensorProxy | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> TensorProxy:
    n = len(weight.shape) - 2
    a, single = batched(input, n)
    strides, dilations = each(stride, n), each(dilation, n)
    if isinstance(padding, str):
        a, paddings = padded_by_name(a, padding, weight.shape[2:], strides, dilations)
    else:
        paddings = each(padding, n)
    out = _convolved(a, weight, bias, strides, paddings, dilations, False, (0,) * n, groups)
    return ltorch.squeeze(out, 0) if single else out


def _convolved(a: TensorProxy, weight: TensorProxy, bias: TensorProxy | None, *sizes: Any) -> TensorProxy:
    """The primitive; for complex numbers by real and imaginary parts, since kernels are real."""
    if not a.dtype.is_complex:
        return prims.convolution(a, weight, bias, *sizes)
    parts = prims.real(a), prims.imag(a)
    of_real, of_imag = (
        [prims.convolution(part, w, None, *sizes) for part in parts]
        for w in (prims.real(weight), prims.imag(weight))
    )
    out = ltorch.complex(prims.sub(of_real[0], of_imag[1]), prims.add(of_real[1], of_imag[0]))
    if bias is None or not out.shape[1]:
        return out
    return ltorch.add(out, ltorch.reshape(bias, (-1, *(1,) * (len(weight.shape) - 2))))


def padded_by_name(
    a: TensorProxy, padding: str, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[TensorProxy, tuple[int, ...]]:
    """Return the input and its padding on both sides, for ``padding="same"`` or ``"valid"``.

    Where ``same`` needs an odd amount, the end gets one more.
    """
    if padding == "valid":
        return a, (0,) * len(kernel)
    if padding != "same" or any(s != 1 for s in strides):
        raise InvalidArgument(
            f"padding is a number, 'valid', or 'same' with stride 1; got {padding!r}, stride {tuple(strides)}"
        )
    total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    if any(t % 2 for t in total):
        ends = [(0, t % 2, 0) for t in total]
        a = prims.pad(a, 0, ((0, 0, 0), (0, 0, 0), *ends))
    return a, tuple(t // 2 for t in total)


def _convolution_row(n: int) -> Symbol:
    def conv(
        input: TensorProxy,
        weight: TensorProxy,
        bias: TensorProxy | None = None,
        stride: Sizes = 1,
        padding: Any = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> TensorProxy:
        return _convolve(input, weight, bias, stride, padding, dilation, groups)

    path = f"torch.nn.functional.conv{n}d"
    return torchsymbol(path, tags=(OpTags.MATMUL_OP,), layout=BY_DEVICE, workspace=of_convolution)(conv)


def _transposed_row(n: int) -> Symbol:
    def conv_transpose(
        input: TensorProxy,
        weight: TensorProxy,
        bias: TensorProxy | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> TensorProxy:
        a, single = batched(input, n)
        sizes = (each(x, n) for x in (stride, padding, dilation))
        out = _convolved(a, weight, bias, *sizes, True, each(output_padding, n), groups)
        return ltorch.squeeze(out, 0) if single else out

    path = f"torch.nn.functional.conv_transpose{n}d"
    return torchsymbol(path, tags=(OpTags.MATMUL_OP,), layout=BY_DEVICE, workspace=of_transposed)(
        conv_transpose
    )


conv1d, conv2d, conv3d = (_convolution_row(n) for n in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_transposed_row(n) for n in (1, 2, 3))
