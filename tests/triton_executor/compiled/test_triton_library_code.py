"""The code that Triton generates for GPUs of the kernels of the library; no GPU is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from sweeping import one_in
from thunder_triton.kernels import adamw, attention, embedding, linear
from triton_executor.compiled.launches import compiled_launches
from triton_executor.compiled.machine_code import stack_bytes

CAPABILITIES = (90, 80, 100)

#: capability → the instruction that multiplies matrices of 16 bits
PRODUCTS = {80: r"\bmma\.sync", 90: r"\b(wgmma\.mma_async|mma\.sync)", 100: r"\b(tcgen05\.mma|mma\.sync)"}

#: a vector load into registers, or a copy of 16 bytes into shared memory
VECTORS = r"ld\.global\S*\.v[248]|cp\.async\.c[ag]\S* .*0x10"

#: bytes of a stack that holds a few loop variables, as that of tiles that are masked
SMALL_STACK = 32

#: the shared memory of a program on the smallest GPUs of capability 8 (8.6, 8.9)
SHARED_MEMORY = 99 * 1024


def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def differentiated_attention(dtype: torch.dtype, size: int, kind: str) -> None:
    """Launch attention, and its gradients, of tensors (batch, length, heads, size), transposed."""
    query, key, value = (empty(2, 1000, heads, size, dtype=dtype).transpose(1, 2) for heads in (8, 2, 2))
    mask = empty(2, 1, 1000, 1000, dtype=torch.bool) if kind == "mask" else None
    settings = (kind != "mask", 256 if kind == "window" else 0, 0.125)
    out, sums = attention.forward(query, key, value, mask, *settings)
    g = torch.empty_like(out)
    _, products = attention.gradient_of_queries(g, query, key, value, mask, out, sums, *settings)
    attention.gradient_of_keys(g, query, key, value, mask, sums, products, *settings)


def cases() -> list[Any]:
    return [
        (dtype, size, kind, capability)
        for dtype in (torch.bfloat16, torch.float16)
        for size in (64, 128, 256, 80)
        for kind in ("causal", "window", "mask")
        for capability in CAPABILITIES
    ]


@pytest.mark.parametrize(("dtype", "size", "kind", "capability"), one_in(72, cases()))
def test_attention_compiles_to_products_of_tensor_cores_without_spills(
    dtype: torch.dtype, size: int, kind: str, capability: int
):
    results = compiled_launches(attention, lambda: differentiated_attention(dtype, size, kind), capability)
    assert len(results) == 3
    for name, result in results.items():
        ptx = result.asm["ptx"]
        assert re.search(PRODUCTS[capability], ptx), name
        assert re.search(VECTORS, ptx), name
        is_plain = size in (64, 128) and kind == "causal"
        assert max(stack_bytes(result.asm["cubin"])) <= (0 if is_plain else SMALL_STACK), name
        assert result.metadata.shared <= SHARED_MEMORY, name


@pytest.mark.sweep
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("kind", ["causal", "window", "mask"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_attention_in_float32_compiles_without_spills(size: int, kind: str, capability: int):
    results = compiled_launches(
        attention, lambda: differentiated_attention(torch.float32, size, kind), capability
    )
    for name, result in results.items():
        assert max(stack_bytes(result.asm["cubin"])) <= SMALL_STACK, name
        assert result.metadata.shared <= SHARED_MEMORY, name


def test_attention_multiplies_by_groups_of_warps_on_hopper():
    results = compiled_launches(
        attention, lambda: differentiated_attention(torch.bfloat16, 128, "causal"), 90
    )
    assert all("wgmma.mma_async" in result.asm["ptx"] for result in results.values())


@pytest.mark.parametrize(
    ("dtype", "rows", "saves", "capability"),
    one_in(
        6,
        [
            (dtype, rows, saves, capability)
            for dtype in (torch.bfloat16, torch.float16)
            for rows in (4096, 64)
            for saves in (True, False)
            for capability in CAPABILITIES
        ],
    ),
)
def test_a_linear_layer_compiles_to_products_of_tensor_cores_without_spills(
    dtype: torch.dtype, rows: int, saves: bool, capability: int
):
    x, weight, bias = (empty(*shape, dtype=dtype) for shape in ((rows, 512), (2048, 512), (2048,)))
    (result,) = compiled_launches(
        linear, lambda: linear.forward(x, weight, bias, "gelu", saves), capability
    ).values()
    ptx = result.asm["ptx"]
    wanted = PRODUCTS[capability] if capability != 90 else r"wgmma\.mma_async"
    assert re.search(wanted, ptx)
    assert re.search(VECTORS, ptx)
    assert max(stack_bytes(result.asm["cubin"])) == 0
    assert result.metadata.shared <= SHARED_MEMORY


@pytest.mark.parametrize(
    ("dtype", "capability"),
    one_in(5, [(d, c) for d in (torch.bfloat16, torch.float32) for c in CAPABILITIES]),
)
def test_the_gradient_of_an_embedding_compiles_without_spills(dtype: torch.dtype, capability: int):
    g, indices = empty(8, 1024, 4096, dtype=dtype), empty(8, 1024, dtype=torch.int64)
    results = compiled_launches(
        embedding, lambda: embedding.backward(g, indices, 50_000, -1, False), capability
    )
    assert len(results) == 2
    for name, result in results.items():
        assert re.search(VECTORS, result.asm["ptx"]), name
        assert max(stack_bytes(result.asm["cubin"])) == 0, name


@pytest.mark.parametrize(
    ("dtype", "capability"),
    one_in(5, [(d, c) for d in (torch.bfloat16, torch.float32) for c in CAPABILITIES]),
)
def test_a_step_of_adamw_compiles_to_vector_loads_without_spills(dtype: torch.dtype, capability: int):
    group = [[empty(*shape, dtype=dtype) for shape in ((4096, 512), (512,))] for _ in range(4)]
    steps = [empty(dtype=torch.float32) for _ in range(2)]
    (result,) = compiled_launches(
        adamw, lambda: adamw.step(*group, [], steps, 0.1, 0.9, 0.999, 0.1, 1e-8, False), capability
    ).values()
    assert re.search(VECTORS, result.asm["ptx"])
    assert max(stack_bytes(result.asm["cubin"])) == 0
