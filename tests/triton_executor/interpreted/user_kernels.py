"""Kernels as users write them, with what each of them writes."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

STEP = tl.constexpr(2)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def rows(X, sx, OUT, so, n, scale, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * sx
    columns = tl.arange(0, BLOCK)
    if EVEN:
        tl.store(OUT + row * so + columns, tl.load(X + columns) * scale)
    else:
        x = tl.load(X + columns, mask=columns < n, other=0.0)
        tl.store(OUT + row * so + columns, x * scale, mask=columns < n)


@triton.jit
def times(x_ptr, out_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=places < n) * FACTOR, mask=places < n)


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    chosen = tl.load(index_ptr + places, mask=places < n, other=0)
    tl.store(out_ptr + places, tl.load(x_ptr + chosen, mask=places < n), mask=places < n)


@triton.jit
def scatter_add(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.atomic_add(out_ptr + tl.load(index_ptr + places, mask=places < n, other=0), x, mask=places < n)


@triton.jit
def _write(pointers, value, mask):
    tl.store(pointers, value.to(pointers.dtype.element_ty), mask=mask)


@triton.jit
def _advanced(base, step):
    return base + step * 2


@triton.jit
def through_functions(x_ptr, out_ptr, other_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    _write(_advanced(out_ptr, 0) + places, x * STEP, places < n)
    first, second = other_ptr, x_ptr
    tl.store(first + places, tl.load(second + places, mask=places < n) + 1, mask=places < n)


@triton.jit
def blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(
        x_ptr, shape=(n,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    target = tl.make_block_ptr(
        out_ptr, shape=(n,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    for _ in range(0, n, BLOCK):
        x = tl.load(source, boundary_check=(0,))
        tl.store(target, x * 2, boundary_check=(0,))
        source = tl.advance(source, (BLOCK,))
        target = tl.advance(target, (BLOCK,))


@triton.jit
def either(a_ptr, b_ptr, out_ptr, n, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    if FIRST:  # noqa: SIM108
        target = a_ptr
    else:
        target = b_ptr
    tl.store(target + places, tl.load(out_ptr + places, mask=places < n, other=0.0), mask=places < n)


@triton.jit
def from_numbers(addresses_ptr, x_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    target = tl.load(addresses_ptr).to(tl.pointer_type(tl.float32))
    tl.store(target + places, tl.load(x_ptr + places, mask=places < n), mask=places < n)


#: the kernel → its tensors that it writes, in some branch
WRITTEN = {
    add: ("out_ptr",),
    rows: ("OUT",),
    gather: ("out_ptr",),
    scatter_add: ("out_ptr",),
    through_functions: ("out_ptr", "other_ptr"),
    blocks: ("out_ptr",),
    either: ("a_ptr", "b_ptr"),
}


with_heuristic = triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})(rows)
tuned = triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])(with_heuristic)


def added(x: torch.Tensor, y: torch.Tensor, kernel: Any = add) -> torch.Tensor:
    """Launch a kernel of elements with a grid of their number, and return the sum."""
    out = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=16)
    return out


def scaled(kernel: Any, x: torch.Tensor, factor: float = 2.0, **constants: Any) -> torch.Tensor:
    """Launch a kernel of rows, and return their product with a factor."""
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](x, x.stride(0), out, out.stride(0), x.shape[1], factor, **constants)
    return out


class Scale(torch.autograd.Function):
    """Rows times a factor, by a kernel in both directions."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return scaled(rows, x, factor, EVEN=False, BLOCK=16)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return scaled(rows, g.contiguous(), ctx.factor, EVEN=False, BLOCK=16), None
