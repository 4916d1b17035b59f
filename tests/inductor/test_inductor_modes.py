"""Which products and windows are compiled in the mode `auto`, the default. Only the last tests run g++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import thunder
from thunder.core.symbol import BoundSymbol
from thunder_inductor.operators import PRODUCTS
from thunder_inductor.products import LARGEST_PRODUCT, left_to_torch, multiplications


def product_of(program: Callable[..., Any], *args: torch.Tensor) -> BoundSymbol:
    """Return the product in a program, which is acquired and not compiled."""
    return next(filter(None, map(_product_in, thunder.trace()(program, *args).bound_symbols)))


def _product_in(bsym: BoundSymbol) -> BoundSymbol | None:
    """Return the first product of a call, or None."""
    return bsym if bsym.sym.id in PRODUCTS else next(filter(None, map(_product_in, bsym.subsymbols)), None)


def test_multiplications_of_products() -> None:
    ones = torch.ones
    assert multiplications(product_of(torch.matmul, ones(5, 2, 3), ones(5, 3, 4))) == 5 * 2 * 3 * 4
    assert multiplications(product_of(torch.mv, ones(2, 3), ones(3))) == 2 * 3
    assert multiplications(product_of(F.linear, ones(7, 2, 3), ones(4, 3))) == 7 * 2 * 3 * 4
    attention = product_of(F.scaled_dot_product_attention, ones(2, 8, 4), ones(2, 6, 4), ones(2, 6, 4))
    assert multiplications(attention) == 2 * (2 * 8 * 4) * 6


def test_a_large_product_is_left_to_torch() -> None:
    n = LARGEST_PRODUCT // 64
    assert left_to_torch(product_of(torch.mm, torch.ones(8, 8), torch.ones(8, n))) is None
    refusal = left_to_torch(product_of(torch.mm, torch.ones(8, 8), torch.ones(8, n + 1)))
    assert refusal is not None
    assert refusal.message == "a product of more than 8388608 multiplications runs in torch's kernels"


def test_a_convolution_is_compiled_unless_it_is_differentiated() -> None:
    x, w = torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3)
    assert left_to_torch(product_of(F.conv2d, x, w)) is None
    refusal = left_to_torch(product_of(F.conv2d, x, w.requires_grad_()))
    assert refusal is not None
    assert refusal.message == "convolutions that are differentiated run in torch's kernels"


def claimed(compiled: Any) -> dict[str, str | None]:
    return {row.symbol: row.claimed_by for row in thunder.explain(compiled).rows}


def test_windows_and_repeated_pixels_are_in_regions() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        pooled = F.max_pool2d(x.relu(), 3, stride=2, padding=1) + F.avg_pool2d(x, 3, stride=2, padding=1)
        return F.interpolate(pooled, scale_factor=1.5) * 2

    x = torch.randn(2, 3, 9, 8)
    x[0, 0, 4, 4] = float("nan")
    compiled = thunder.jit(program)
    torch.testing.assert_close(compiled(x), program(x), equal_nan=True)
    assert set(claimed(compiled).values()) == {"inductor"}


def test_interpolation_between_pixels_is_left_to_torch() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2, mode="bilinear")

    x = torch.randn(1, 1, 3, 3)
    compiled = thunder.jit(program)
    torch.testing.assert_close(compiled(x), program(x))
    (refusal,) = (
        r for row in thunder.explain(compiled).rows for r in row.refusals if r.executor == "inductor"
    )
    assert refusal.message == "only the nearest pixels of images are copied by compiled code"


def test_windows_of_integers_and_indices_are_left_to_torch() -> None:
    def program(x: torch.Tensor) -> Any:
        return F.max_pool2d(x * 2, 3, return_indices=True), F.max_pool2d((x * 9).int(), 2)

    x = torch.randn(1, 6, 6)
    compiled = thunder.jit(program)
    torch.testing.assert_close(compiled(x), program(x))
    pools = {name: executor for name, executor in claimed(compiled).items() if "pool" in name}
    assert set(pools.values()) == {"torch"}


def test_an_option_leaves_roundings_of_intermediate_results_out() -> None:
    """In bfloat16 256 + 1 is 256; the same program is compiled in both ways in one process."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) + 1

    x = torch.full((20,), 256.0, dtype=torch.bfloat16)
    as_eager = thunder.jit(program)
    assert torch.equal(as_eager(x), program(x))
    assert as_eager(x)[0] == 256
    assert thunder.jit(program, inductor_rounding="float32")(x)[0] == 258
