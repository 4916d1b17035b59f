"""The operators of quantised weights, and when their kernels are used.

    y = int8_dynamic_linear(x, q, scale, b)   →   p = onednn_pack_int8(q)
                                                  y = onednn_int8_dynamic(x, q, p, scale, b)
    y = int8_linear(x, q, scale, b)           →   y = onednn_int8(x, q, scale, b)
    y = int4_linear(x, stored, scales, b)     →   y = onednn_int4(x, stored, scales, b)

An operator on the left computes the weight, and a linear layer with it; those on the right are kernels of
torch. Where a checker refuses a call, it is computed as on the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import linear

import thunder.torch as ltorch
from thunder import TensorProxy, bfloat16
from thunder.core.dtypes import to_dtype, to_torch_dtype
from thunder.core.proxies import AnyProxy, ProxyTag
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.extend import Refusal
from thunder_onednn.packed_weights import PackedWeight, ex
from thunder_onednn.quantised import eight_bits, four_bits

__all__ = ["SCHEMES", "Scheme"]

#: bits of a weight → rows of an input above which a product with the dequantised weight is faster
_FEW: Final = {8: 16, 4: 64}
#: elements of a weight that are dequantised together, which stay in a cache, in multiples of so many rows
_PART: Final = 1 << 19
_PART_ROWS: Final = 64
#: elements that the kernel of int8 reads at a time, also past the end of a row
_STEP: Final = 16
#: the addresses, in bytes, at which the kernel of int8 reads its arguments
_ALIGNED: Final = 32


@dataclass(frozen=True)
class Scheme:
    """How weights are quantised, and the operators of a weight: (q, scales, dtype), and of a product."""

    bits: int
    weight: Symbol
    product: Symbol


def _computed(x: Tensor, bias: Tensor | None, product: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a product with rows of any number of dimensions, in the dtype of x."""
    y = product(x.reshape(-1, x.shape[-1]).contiguous())
    if bias is not None:
        y = y + bias
    return y.to(x.dtype).view(*x.shape[:-1], y.shape[-1])


def _aligned(x: Tensor) -> Tensor:
    """Return a tensor that begins where the kernel can read it; others end the process."""
    return x.clone() if x.data_ptr() % _ALIGNED else x


def _rows(x: Any) -> int:
    return math.prod(x.shape[:-1])


# -- kernels


def _int8_dynamic(
    x: Tensor, q: Tensor, packed: PackedWeight | None, scale: Tensor, bias: Tensor | None
) -> Tensor:
    form = None if packed is None or _rows(x) == 1 else packed.tensor
    return _computed(x, bias, lambda rows: eight_bits.exact_product(rows, q, form, scale))


def _int8(x: Tensor, q: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    if _rows(x) > _FEW[8]:
        return _in_parts(
            x, scale.shape[0], bias, lambda a, b: eight_bits.dequantised(q[a:b], scale[a:b], x.dtype)
        )
    return _computed(x, bias, lambda rows: eight_bits.product(_aligned(rows), _aligned(q), scale))


def _int4(x: Tensor, stored: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    if _rows(x) > _FEW[4]:
        block = 2 * stored.shape[2]

        def part(a: int, b: int) -> Tensor:
            return four_bits.dequantised(stored[a // block : b // block], scales[:, a:b], x.dtype)

        return _in_parts(x, scales.shape[1], bias, part)
    return _computed(x, bias, lambda rows: four_bits.product(rows, stored, scales))


def _in_parts(x: Tensor, features: int, bias: Tensor | None, weight: Callable[[int, int], Tensor]) -> Tensor:
    """Return a product with a weight whose rows from a to b are `weight(a, b)`; a part fits into a cache."""
    size = max(_PART // x.shape[-1] // _PART_ROWS, 1) * _PART_ROWS
    parts = []
    for a in range(0, features, size):
        b = min(a + size, features)
        parts.append(linear(x, weight(a, b), None if bias is None else bias[a:b]))
    return torch.cat(parts, -1)


def _linear_meta(x: Any, features: int) -> TensorProxy:
    return TensorProxy(like=x, shape=(*x.shape[:-1], features))


_pack = ex.register_operator(
    "onednn_pack_int8",
    meta=lambda q: AnyProxy(prefix="packed"),
    fn=lambda q: PackedWeight(eight_bits.packed(q)),
    tags=(OpTags.PURE,),
)
_int8_dynamic_kernel = ex.register_operator(
    "onednn_int8_dynamic",
    meta=lambda x, q, packed, scale, bias: _linear_meta(x, q.shape[0]),
    fn=_int8_dynamic,
)
_int8_kernel = ex.register_operator(
    "onednn_int8", meta=lambda x, q, scale, bias: _linear_meta(x, q.shape[0]), fn=_int8
)
_int4_kernel = ex.register_operator(
    "onednn_int4", meta=lambda x, stored, scales, bias: _linear_meta(x, scales.shape[1]), fn=_int4
)


# -- whether a kernel computes a call


def _takes_dynamic(x: Any, q: Any, scale: Any, bias: Any) -> bool | Refusal:
    if not torch.cpu._is_vnni_supported():
        return Refusal("device", "this CPU has no instructions for sums of products of int8 (VNNI)")
    if q.shape[1] > eight_bits.LONGEST:
        return Refusal("shape", "a sum of so many products may be beyond int32", columns=q.shape[1])
    if q.shape[1] == 1:
        return Refusal("shape", "torch._int_mm of a single column returns memory that it has not written")
    return True


def _takes_int8(x: Any, q: Any, scale: Any, bias: Any) -> bool | Refusal:
    if q.shape[1] % _STEP:
        return Refusal("shape", f"the kernel reads {_STEP} columns at a time", columns=q.shape[1])
    return _takes_bfloat16(x, q, scale, bias)


def _takes_bfloat16(x: Any, q: Any, scale: Any, bias: Any) -> bool | Refusal:
    """Return whether a kernel that dequantises as it computes is used for an input."""
    if x.dtype is not bfloat16 or scale.dtype is not bfloat16:
        return Refusal("dtype", "the kernel is fast in bfloat16 alone", input=str(x.dtype))
    return True


def _int8_dynamic_transform(x: Any, q: Any, scale: Any, bias: Any) -> Any:
    # one row needs no packed form, and a form that is not kept costs more than it gains
    is_row = all(type(n) is int and n == 1 for n in x.shape[:-1])
    is_packed = not is_row and ProxyTag.FROZEN in q.tags
    return _int8_dynamic_kernel(x, q, _pack(q) if is_packed else None, scale, bias)


# -- what is computed where no kernel takes a call


def _scheme(
    name: str,
    bits: int,
    dequantised: Callable[[Tensor, Tensor, torch.dtype], Tensor],
    shape: Callable[[Any, Any], tuple[int, ...]],
    takes: Callable[..., bool | Refusal],
    transform: Callable[..., Any],
) -> Scheme:
    """Register the operators of a scheme; `shape` is that of the weight that is stored."""

    def weight_meta(q: Any, scale: Any, dtype: torch.dtype) -> TensorProxy:
        return TensorProxy(like=q, shape=shape(q, scale), dtype=to_dtype(dtype), requires_grad=False)

    # a backward computes the weight again and does not keep it
    weight = ex.register_operator(
        f"{name}_weight", meta=weight_meta, fn=dequantised, tags=(OpTags.CHEAP_TO_RECOMPUTE,)
    )

    def with_weight(x: Any, q: Any, scale: Any, bias: Any) -> Any:
        return ltorch.linear(x, weight(q, scale, to_torch_dtype(x.dtype)), bias)

    product = ex.register_operator(f"{name}_linear", like=with_weight)
    ex.register_implementation(product, checker=takes, execution_transform=transform)
    return Scheme(bits, weight, product)


def _shape_of_int8(q: Any, scale: Any) -> tuple[int, ...]:
    return tuple(q.shape)


def _shape_of_int4(stored: Any, scales: Any) -> tuple[int, ...]:
    return (scales.shape[1], stored.shape[1])


SCHEMES: Final = {
    "int8-dynamic": _scheme(
        "int8_dynamic", 8, eight_bits.dequantised, _shape_of_int8, _takes_dynamic, _int8_dynamic_transform
    ),
    "int8": _scheme("int8", 8, eight_bits.dequantised, _shape_of_int8, _takes_int8, _int8_kernel),
    "int4": _scheme("int4", 4, four_bits.dequantised, _shape_of_int4, _takes_bfloat16, _int4_kernel),
}
"""The name of a scheme → its operators."""
