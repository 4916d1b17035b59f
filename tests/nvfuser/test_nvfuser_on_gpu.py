"""nvFuser itself: programs, a model, sizes and options, compared with eager; on a GPU alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
import thunder_nvfuser.library
from llama import Llama, LlamaConfig
from nvfuser.test_nvfuser_attention import PROGRAMS as ATTENTION
from nvfuser.test_nvfuser_attention import with_gradients
from nvfuser.test_nvfuser_regions import PROGRAMS
from nvfuser.test_nvfuser_sizes import PROGRAMS as PROGRAMS_WITH_SIZES
from nvfuser.test_nvfuser_sizes import SHAPES
from nvfuser.test_nvfuser_sorts import ROWS, ordered, running
from thunder.executors.nvfuserex import nvfuser_ex

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        thunder_nvfuser.library.missing() is not None, reason=str(thunder_nvfuser.library.missing())
    ),
]
TOLERANCES: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 1e-2},
}


def is_fused(compiled: Any) -> bool:
    return any(row.via == "fusion" for row in thunder.explain(compiled).rows)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_eager(name: str, dtype: torch.dtype):
    program, arguments = PROGRAMS[name]
    arguments = tuple(a.to("cuda", dtype if a.is_floating_point() else None) for a in arguments)
    compiled = thunder.jit(program, executors=[nvfuser_ex])
    with torch.device("cuda"):
        torch.testing.assert_close(compiled(*arguments), program(*arguments), **TOLERANCES[dtype])
    assert is_fused(compiled)


@pytest.mark.parametrize("name", PROGRAMS_WITH_SIZES)
def test_one_definition_serves_many_shapes(name: str):
    program = PROGRAMS_WITH_SIZES[name]
    compiled = thunder.jit(program, executors=[nvfuser_ex], cache="symbolic values", recompile_limit=None)
    with torch.device("cuda"):
        for rows, columns in SHAPES:
            x, w = torch.randn(rows, columns), torch.randn(columns)
            torch.testing.assert_close(compiled(x, w), program(x, w), **TOLERANCES[torch.float32])
    assert is_fused(compiled)


def test_running_maxima_and_sorts_with_nan():
    for program, options in ((running, {}), (ordered, {"nvfuser_sorts": True})):
        compiled = thunder.jit(program, executors=[nvfuser_ex], **options)
        x = ROWS.cuda()
        torch.testing.assert_close(compiled(x), program(x), equal_nan=True, rtol=0, atol=0)


def test_attention_and_products_by_option():
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True) @ w * 2 + 1

    x = torch.randn(2, 4, 32, 64, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    compiled = thunder.jit(program, executors=[nvfuser_ex], nvfuser_products=True)
    torch.testing.assert_close(compiled(x, w), program(x, w), rtol=5e-2, atol=0.3)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_and_its_gradients_are_those_of_eager(name: str):
    shape = (2, 4, 64, 64)
    inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    compiled = thunder.jit(ATTENTION[name], executors=[nvfuser_ex], nvfuser_products=True)
    results = [with_gradients(f, inputs) for f in (compiled, ATTENTION[name])]
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)
    fused = {row.symbol for row in thunder.explain(compiled).rows if row.via == "fusion"}
    assert {"nvfuser_attention.attention", "nvfuser_attention.attention_backward"} <= fused


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_llama_is_trained_as_in_eager(dtype: torch.dtype):
    torch.manual_seed(0)
    model = Llama(LlamaConfig(layers=2, context=64, width=64, heads=4, hidden=128)).to("cuda", dtype)
    other = copy.deepcopy(model)
    compiled = thunder.jit(other, executors=[nvfuser_ex])
    tokens = torch.randint(0, 256, (2, 64), device="cuda")
    for forward in (model, compiled):
        F.cross_entropy(forward(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
    for expected, found in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=0.1, atol=2e-3)
    assert is_fused(compiled)


def test_lists_of_options_reach_the_library():
    x = torch.randn(64, 64, device="cuda")
    for options in ({"nvfuser_enable": "kernel_lineinfo"}, {"nvfuser_disable": "kernel_reuse, magic_zero"}):
        compiled = thunder.jit(lambda x: x.exp() + 1, executors=[nvfuser_ex], **options)
        torch.testing.assert_close(compiled(x), x.exp() + 1)
