"""Attention by torch's fused kernels for a GPU: their statements, gradients and memory, against eager.

Without a GPU torch's kernel for the CPU takes the place of each, with the results that it would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import thunder
from thunder.torch.attention_kernels import FLASH, KERNELS_ON_CUDA

EFFICIENT, CUDNN = 2, 3
_aten = torch.ops.aten


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, **kwargs)


def leaves(*shapes: tuple[int, ...], device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]


def with_gradients(fn: Callable[..., torch.Tensor], tensors: list[torch.Tensor], **kwargs: Any) -> list[Any]:
    out = fn(*tensors, **kwargs)
    torch.manual_seed(1)
    return [out, *torch.autograd.grad(out, tensors, torch.randn(out.shape, device=out.device).to(out.dtype))]


# -- the rows, on a CPU --------------------------------------------------------------------------------------


def shaped(sums: torch.Tensor, kernel: int, q: torch.Tensor) -> torch.Tensor:
    """Return the logarithms of sums as a kernel for a GPU does: as many as it says, the others zeros."""
    new = q.new_zeros(KERNELS_ON_CUDA[kernel].sums(tuple(q.shape)), dtype=torch.float32)
    new.reshape(*q.shape[:2], -1)[..., : q.shape[-2]].copy_(sums)
    return new


@contextmanager
def on_the_cpu(kernel: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch's kernel for the CPU take the place of one for a GPU."""
    flash = _aten._scaled_dot_product_flash_attention_for_cpu

    def forward(q: Any, k: Any, v: Any, added: Any, is_causal: bool, scale: float | None) -> Any:
        out, sums = flash(q, k, v, 0.0, is_causal, attn_mask=added, scale=scale)
        return out, shaped(sums, kernel, q)

    def backward(
        g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, added: Any, is_causal: bool, scale: float | None
    ) -> Any:
        given = sums.reshape(*q.shape[:2], -1)[..., : q.shape[-2]]
        kernel = _aten._scaled_dot_product_flash_attention_for_cpu_backward
        return kernel(g, q, k, v, out, given, 0.0, is_causal, attn_mask=added, scale=scale)

    mine = replace(KERNELS_ON_CUDA[kernel], forward=forward, backward=backward)
    with monkeypatch.context() as patch:
        patch.setitem(KERNELS_ON_CUDA, kernel, mine)
        yield


@pytest.mark.parametrize("kernel", KERNELS_ON_CUDA)
@pytest.mark.parametrize("form", ["plain", "causal", "scaled", "masked"])
def test_a_fused_kernel_and_its_backward_are_statements(
    kernel: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = torch.ones(5, 7, dtype=torch.bool).tril(2) if form == "masked" else None
    is_causal, scale = form == "causal", 0.3 if form == "scaled" else None

    def program(q: Any, k: Any, v: Any) -> Any:
        return thunder.torch.fused_attention(q, k, v, is_causal, attn_mask=mask, scale=scale, kernel=kernel)[
            0
        ]

    compiled, tensors = thunder.jit(program), leaves((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    with on_the_cpu(kernel, monkeypatch):
        found = with_gradients(compiled, tensors)
        expected = with_gradients(attend, tensors, attn_mask=mask, is_causal=is_causal, scale=scale)
    torch.testing.assert_close(found, expected)
    names = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    assert any("fused_attention_backward" in name for name in names)


@pytest.mark.parametrize("kernel", KERNELS_ON_CUDA)
def test_its_gradient_has_a_gradient(kernel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def penalty(attention: Callable[..., Any], q: Any, k: Any, v: Any) -> Any:
        (g,) = torch.autograd.grad(attention(q, k, v).square().sum(), q, create_graph=True)
        return g.square().sum()

    def fused(q: Any, k: Any, v: Any) -> Any:
        return thunder.torch.fused_attention(q, k, v, True, attn_mask=None, scale=None, kernel=kernel)[0]

    tensors = leaves(*[(1, 2, 5, 8)] * 3)
    compiled = thunder.jit(lambda q, k, v: penalty(fused, q, k, v))
    with on_the_cpu(kernel, monkeypatch):
        found = torch.autograd.grad(compiled(*tensors), tensors)
    with sdpa_kernel(SDPBackend.MATH):
        of_eager = penalty(lambda q, k, v: attend(q, k, v, is_causal=True), *tensors)
    torch.testing.assert_close(found, torch.autograd.grad(of_eager, tensors), rtol=1e-4, atol=1e-5)


# -- on a GPU ------------------------------------------------------------------------------------------------

#: name → shapes of query, key and value; arguments
CALLS: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "plain": ([(2, 4, 96, 64)] * 3, {}),
    "causal": ([(2, 4, 96, 64)] * 3, {"is_causal": True}),
    "scaled": ([(2, 4, 96, 128)] * 3, {"scale": 0.3}),
    "of two lengths": ([(2, 4, 33, 64), (2, 4, 70, 64), (2, 4, 70, 64)], {}),
    "grouped": ([(2, 8, 40, 64), (2, 2, 40, 64), (2, 2, 40, 64)], {"is_causal": True, "enable_gqa": True}),
    "of odd vectors": ([(2, 4, 40, 20)] * 3, {}),
    "of three dimensions": ([(4, 40, 32)] * 3, {}),
    "masked": ([(2, 4, 30, 64), (2, 4, 45, 64), (2, 4, 45, 64)], {"attn_mask": "bool"}),
    "biased": ([(2, 4, 30, 64), (2, 4, 45, 64), (2, 4, 45, 64)], {"attn_mask": "float"}),
}


def arguments_of(name: str, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    shapes, kwargs = CALLS[name]
    tensors = leaves(*shapes, device="cuda", dtype=dtype)
    mask = kwargs.get("attn_mask")
    if mask is not None:
        lengths = shapes[0][-2], shapes[1][-2]
        allowed = torch.ones(lengths, dtype=torch.bool, device="cuda").tril(20)
        added = torch.linspace(-1, 1, lengths[1], device="cuda").to(dtype).expand(2, 4, *lengths)
        kwargs = {**kwargs, "attn_mask": allowed if mask == "bool" else added}
    return tensors, kwargs


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_attention_is_trained_with_eagers_numbers_and_strides(name: str, dtype: torch.dtype) -> None:
    tensors, kwargs = arguments_of(name, dtype)
    compiled = thunder.jit(attend)
    found = with_gradients(compiled, tensors, **kwargs)
    mask = kwargs.get("attn_mask")
    exact = {**kwargs, "attn_mask": mask.double()} if mask is not None and mask.dtype == dtype else kwargs
    with sdpa_kernel(SDPBackend.MATH):
        expected = with_gradients(attend, [t.detach().double().requires_grad_() for t in tensors], **exact)
    bound = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]
    for result, value in zip(found, expected, strict=True):
        assert (result.double() - value).norm() <= bound * value.norm()
    chosen = torch._fused_sdp_choice(
        *tensors,
        kwargs.get("attn_mask"),
        0.0,
        kwargs.get("is_causal", False),
        scale=kwargs.get("scale"),
        enable_gqa=kwargs.get("enable_gqa", False),
    )
    names = {b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols}
    is_fused = any("fused_attention" in each for each in names)
    kernel = KERNELS_ON_CUDA.get(chosen)
    taken = kernel is not None and name not in ("of odd vectors", "of three dimensions")
    taken = taken and (mask is None or kernel.takes_mask) and (name != "grouped" or kernel.takes_groups)
    assert is_fused == taken
    if is_fused:
        assert found[0].stride() == attend(*tensors, **kwargs).stride()


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [FLASH, EFFICIENT, CUDNN])
def test_each_kernel_that_a_program_chooses_runs(kernel: int) -> None:
    backend = {FLASH: SDPBackend.FLASH_ATTENTION, EFFICIENT: SDPBackend.EFFICIENT_ATTENTION}
    chosen = backend.get(kernel, SDPBackend.CUDNN_ATTENTION)
    tensors, kwargs = arguments_of("causal", torch.bfloat16)
    compiled = thunder.jit(attend)
    with sdpa_kernel(chosen):
        found, expected = (with_gradients(fn, tensors, **kwargs) for fn in (compiled, attend))
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)
    text = str(thunder.last_traces(compiled)[-1])
    assert f"kernel={kernel}" in text


@pytest.mark.gpu
def test_the_weights_of_attention_are_not_kept() -> None:
    tensors = leaves(*[(1, 8, 4096, 64)] * 3, device="cuda", dtype=torch.bfloat16)
    compiled = thunder.jit(attend)
    with_gradients(compiled, tensors, is_causal=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with_gradients(compiled, tensors, is_causal=True)
    weights = 8 * 4096 * 4096 * 2
    assert torch.cuda.max_memory_allocated() - before < weights
