"""Which products of a program the mode "auto" compiles: matrix products, convolutions and attention.

They run in kernels of a library either way. In a region a product gains what surrounds the arithmetic: its
call, views that become strides, layouts that convolutions hand to each other. But regions with products are
long and differ, where those between products are short and equal, and compile once.
"""

from __future__ import annotations

import math
from typing import Final

from thunder import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import Refusal

from .operators import PRODUCTS

__all__ = ["LARGEST_PRODUCT", "left_to_torch", "multiplications"]

#: the most multiplications of a product that the mode "auto" compiles; they take about 0.1 ms
LARGEST_PRODUCT: Final = 2**23

_CONVOLUTION: Final = "prims.convolution"
_GRADIENT_OF_CONVOLUTION: Final = "ltorch.convolution_backward"
_GRADIENT_OF_ATTENTION: Final = "ltorch.flash_attention_for_cpu_backward"


def left_to_torch(bsym: BoundSymbol) -> Refusal | None:
    """Return why the mode "auto" leaves a product to torch, or None if it compiles the product."""
    if bsym.sym.id not in PRODUCTS:
        return None
    tensors = [p for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs) if isinstance(p, TensorProxy)]
    if any(p.device.type != "cpu" for p in tensors):
        return Refusal("product", "products on this device run in torch's kernels", device=tensors[0].device)
    if bsym.sym.id in (_CONVOLUTION, _GRADIENT_OF_CONVOLUTION):
        if bsym.sym.id == _CONVOLUTION and not any(p.requires_grad for p in bsym.flat_proxy_outs):
            return None
        return Refusal("product", "convolutions that are differentiated run in torch's kernels")
    count = multiplications(bsym)
    if count <= LARGEST_PRODUCT:
        return None
    message = f"a product of more than {LARGEST_PRODUCT} multiplications runs in torch's kernels"
    return Refusal("product", message, multiplications=count)


def multiplications(bsym: BoundSymbol) -> int:
    """Return the multiplications of elements in a matrix product or in attention.

    A matrix product (*, n, k) @ (*, k, m) has n · k · m for each matrix, attention of queries (*, n, k) to
    keys (*, m, k) twice as many, and its gradient is counted as attention.
    """
    shapes = [p.shape for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    if bsym.sym.id in ("prims.matmul", "prims.linear"):
        products: int = math.prod(bsym.flat_proxy_outs[0].shape) * shapes[0][-1]
        return products
    query, key = shapes[1:3] if bsym.sym.id == _GRADIENT_OF_ATTENTION else shapes[:2]
    count: int = 2 * math.prod(query) * key[-2]
    return count
