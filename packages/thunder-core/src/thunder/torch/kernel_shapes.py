"""Shapes of the results of torch's kernels, computed from symbolic sizes.

Torch's own metadata of these functions takes numbers, which would fix the sizes. Each function has the
parameters of the row that it is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.torch.broadcasting import canonical_dims, integers

Shape = tuple[Any, ...]
ShapeRule = Callable[..., Shape]


def _several(value: Any, count: int) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,) * count


# -- spectra -------------------------------------------------------------------------------------------------


def one_spectrum(name: str) -> ShapeRule:
    """Return the rule of a Fourier transform along one dimension."""

    def shape(input: TensorProxy, n: Any = None, dim: int = -1, norm: Any = None) -> Shape:
        return _spectrum(name, input, None if n is None else (n,), (dim,))

    return shape


def spectra(name: str, dims: Sequence[int] | None) -> ShapeRule:
    """Return the rule of a Fourier transform along several dimensions, by default ``dims``."""

    def shape(input: TensorProxy, s: Any = None, dim: Any = dims, norm: Any = None) -> Shape:
        return _spectrum(name, input, None if s is None else _several(s, 1), dim)

    return shape


def _spectrum(name: str, input: TensorProxy, lengths: Sequence[Any] | None, dim: Any) -> Shape:
    rank = len(input.shape)
    if dim is None:  # the last ones
        count = rank if lengths is None else len(lengths)
        dim = range(rank - count, rank)
    dims = [d % rank for d in integers(dim)]
    given = [-1] * len(dims) if lengths is None else lengths
    shape = list(input.shape)
    for d, n in zip(dims, given, strict=True):
        shape[d] = shape[d] if n == -1 else n
    last = dims[-1]
    if name in ("rfft", "ihfft"):  # half of the spectrum of real numbers
        shape[last] = shape[last] // 2 + 1
    elif name in ("irfft", "hfft") and given[-1] == -1:
        shape[last] = 2 * (input.shape[last] - 1)
    return tuple(shape)


# -- images --------------------------------------------------------------------------------------------------


def interpolated(
    input: TensorProxy, size: Any = None, scale_factor: Any = None, *how: Any, **more: Any
) -> Shape:
    """``(b, c, *space)`` → ``(b, c, *size)``, or the floors of the scaled lengths."""
    space = input.shape[2:]
    if size is None:
        factors = _several(scale_factor, len(space))
        size = [math.floor(n * float(factor)) for n, factor in zip(space, factors, strict=True)]
    return (*input.shape[:2], *_several(size, len(space)))


def adaptive(count: int) -> ShapeRule:
    """Return the rule of pooling to lengths of the last ``count`` dimensions; None keeps one."""

    def shape(input: TensorProxy, output_size: Any, *how: Any, **more: Any) -> Shape:
        lead, space = input.shape[:-count], input.shape[-count:]
        sizes = zip(space, _several(output_size, count), strict=True)
        return (*lead, *(n if wanted is None else wanted for n, wanted in sizes))

    return shape


def largest_of_windows(
    input: TensorProxy,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *how: Any,
    **more: Any,
) -> Shape:
    """``(*, n)`` → ``(*, windows)``; with ``ceil_mode`` the last one may end after the input."""
    (kernel,), (before,), (gap,) = (_several(value, 1) for value in (kernel_size, padding, dilation))
    (step,) = _several(kernel if stride in (None, (), []) else stride, 1)
    last = input.shape[-1] + 2 * before - gap * (kernel - 1) - 1
    windows = (last + (step - 1 if ceil_mode else 0)) // step + 1
    if ceil_mode and (windows - 1) * step >= input.shape[-1] + before:
        windows = windows - 1
    return (*input.shape[:-1], windows)


def fractional(count: int) -> ShapeRule:
    """Return the rule of pooling to lengths, or to a part, of the last ``count`` dimensions."""

    def shape(
        input: TensorProxy,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        *how: Any,
        **more: Any,
    ) -> Shape:
        lead, space = input.shape[:-count], input.shape[-count:]
        if output_size is not None:
            return (*lead, *_several(output_size, count))
        ratios = zip(space, output_ratio, strict=True)
        return (*lead, *(math.floor(n * float(ratio)) for n, ratio in ratios))

    return shape


# -- matrices ------------------------------------------------------------------------------------------------


def kron(input: TensorProxy, other: TensorProxy) -> Shape:
    """Each length is a product; the shorter shape is preceded by ones."""
    pairs = zip_longest(reversed(input.shape), reversed(other.shape), fillvalue=1)
    return tuple(math.prod(pair) for pair in pairs)[::-1]


def bilinear(input1: TensorProxy, input2: TensorProxy, weight: TensorProxy, bias: Any = None) -> Shape:
    """``(*, n)``, ``(*, m)`` and a weight ``(k, n, m)`` → ``(*, k)``."""
    return (*input1.shape[:-1], weight.shape[0])


def matrix_norm(
    A: TensorProxy,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Shape:
    """The shape without the two dimensions, or with ones in their place."""
    dims = canonical_dims(dim, len(A.shape))
    if keepdim:
        return tuple(1 if d in dims else n for d, n in enumerate(A.shape))
    return tuple(n for d, n in enumerate(A.shape) if d not in dims)
