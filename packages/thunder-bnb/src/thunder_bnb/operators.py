"""The executor `quant_bnb`, and its operators: stored weights, dequantised, and products with them.

    bnb_dequantize_nf4(qweight, absmax, quant_map, blocksize, dtype, shape)
    bnb_matmul_nf4(x, qweight, bias, absmax, quant_map, blocksize, dtype, shape)

`dtype` and `shape` are those of the weight before it was stored. With double quantisation, `absmax` is a
tuple: (absmax, nested_absmax, nested_code, nested_offset). The operators of fp4 differ in the name; those of
int8 have neither `quant_map` nor `blocksize`, and the product has a `threshold`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.dtypes import to_dtype, to_torch_dtype
from thunder.core.prims import OpTags
from thunder.core.symbol import Symbol
from thunder.extend import OperatorExecutor

from . import eight_bit_kernels, four_bit_kernels
from .argument_forms import check_eight_bit, check_four_bit, check_product
from .four_bit_kernels import Blocks, QuantType
from .library import library

__all__ = ["DEQUANTISE", "MATMUL", "ex", "get_bitsandbytes_executor"]

ex = OperatorExecutor("quant_bnb")


def get_bitsandbytes_executor() -> OperatorExecutor:
    """Return the executor of bitsandbytes, the same at each call.

    Raises ExecutorUnavailable if bitsandbytes is missing.
    """
    library()
    return ex


def _weight_meta(qweight: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
    return TensorProxy(like=qweight, shape=shape, dtype=to_dtype(dtype), requires_grad=False)


def _product_meta(x: Any, bias: Any, shape: tuple[int, ...]) -> Any:
    check_product(x, bias, shape)
    return TensorProxy(like=x, shape=(*x.shape[:-1], shape[0]))


def _weight_operator(storage: str, meta: Any, fn: Any) -> Symbol:
    """Register the operator that dequantises; a backward computes the weight again and does not keep it."""
    tags = (OpTags.CHEAP_TO_RECOMPUTE,)
    return ex.register_operator(f"bnb_dequantize_{storage}", meta=meta, fn=fn, tags=tags)


def _registered(
    name: str, weight: Callable[[Any], Any], batched: Callable[[Any], Any], meta: Any, fn: Any
) -> Symbol:
    """Register a product; `weight` dequantises that of a call, `batched` computes a batch of calls.

    The gradients are those of `linear`, with the weight computed again in the backward.
    """
    return ex.register_operator(
        name,
        meta=meta,
        fn=fn,
        vjp={"x": lambda c: c.g @ weight(c).to(c.g.dtype), "bias": lambda c: c.g},
        batch=lambda c: NotImplemented if _batched_weight(c) else batched(c),
    )


def _batched_weight(c: Any) -> bool:
    """Return whether the examples of a batch have different weights or biases."""
    absmax = c.absmax if isinstance(c.absmax, tuple) else (c.absmax,)
    return any(tensor is not None and c.is_batched(tensor) for tensor in (c.qweight, c.bias, *absmax))


def _four_bit(kind: QuantType) -> tuple[Symbol, Symbol]:
    """Register the operators of nf4 or fp4; return the one that dequantises and the product."""

    def weight_meta(qweight: Any, absmax: Any, quant_map: Any, blocksize: int, dtype: Any, shape: Any) -> Any:
        check_four_bit(qweight, absmax, quant_map, blocksize, dtype, shape)
        return _weight_meta(qweight, dtype, shape)

    def weight(qweight: Any, absmax: Any, quant_map: Any, blocksize: int, dtype: Any, shape: Any) -> Any:
        blocks = Blocks.of(absmax, quant_map)
        return four_bit_kernels.dequantised(qweight, blocks, kind, blocksize, shape, dtype)

    def product_meta(
        x: Any, qweight: Any, bias: Any, absmax: Any, quant_map: Any, blocksize: int, dtype: Any, shape: Any
    ) -> Any:
        check_four_bit(qweight, absmax, quant_map, blocksize, dtype, shape)
        return _product_meta(x, bias, shape)

    def product(
        x: Any, qweight: Any, bias: Any, absmax: Any, quant_map: Any, blocksize: int, dtype: Any, shape: Any
    ) -> Any:
        blocks = Blocks.of(absmax, quant_map)
        return four_bit_kernels.product(x, qweight, bias, blocks, kind, blocksize, shape)

    dequantise = _weight_operator(kind, weight_meta, weight)
    matmul = _registered(
        f"bnb_matmul_{kind}",
        lambda c: dequantise(c.qweight, c.absmax, c.quant_map, c.blocksize, c.dtype, c.shape),
        lambda c: matmul(
            c.full(c.x), c.qweight, c.bias, c.absmax, c.quant_map, c.blocksize, c.dtype, c.shape
        ),
        product_meta,
        product,
    )
    return dequantise, matmul


def _eight_bit() -> tuple[Symbol, Symbol]:
    """Register the operators of int8; return the one that dequantises and the product."""

    def weight_meta(qweight: Any, absmax: Any, dtype: Any, shape: Any) -> Any:
        check_eight_bit(qweight, absmax, dtype, shape)
        return _weight_meta(qweight, dtype, shape)

    def weight(qweight: Any, absmax: Any, dtype: Any, shape: Any) -> Any:
        return eight_bit_kernels.dequantised(qweight, absmax, dtype)

    def product_meta(
        x: Any, qweight: Any, bias: Any, absmax: Any, threshold: float, dtype: Any, shape: Any
    ) -> Any:
        check_eight_bit(qweight, absmax, dtype, shape)
        return _product_meta(x, bias, shape)

    def product(
        x: Any, qweight: Any, bias: Any, absmax: Any, threshold: float, dtype: Any, shape: Any
    ) -> Any:
        return eight_bit_kernels.product(x, qweight, bias, absmax, threshold)

    dequantise = _weight_operator("int8", weight_meta, weight)
    matmul = _registered(
        "bnb_matmul_int8",
        # in the dtype of the product, as bitsandbytes computes its gradient
        lambda c: dequantise(c.qweight, c.absmax, to_torch_dtype(c.g.dtype), c.shape),
        lambda c: matmul(c.full(c.x), c.qweight, c.bias, c.absmax, c.threshold, c.dtype, c.shape),
        product_meta,
        product,
    )
    return dequantise, matmul


_PAIRS = {"nf4": _four_bit("nf4"), "fp4": _four_bit("fp4"), "int8": _eight_bit()}
DEQUANTISE = {storage: pair[0] for storage, pair in _PAIRS.items()}
"""Storage → the operator that computes the weight."""
MATMUL = {storage: pair[1] for storage, pair in _PAIRS.items()}
"""Storage → the operator that computes a product with the weight."""
