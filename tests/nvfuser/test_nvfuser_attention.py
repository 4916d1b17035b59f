"""Attention in regions, forward and backward, and where it is left to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder.executors.nvfuserex import nvfuser_ex
from thunder.extend import Refusal
from thunder_nvfuser.data_types import DataType
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.recorder import RecordedDefinition

PROGRAMS: dict[str, Callable[..., Any]] = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v) * 3,
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k * 2, v, is_causal=True).sin() + 1,
    "scaled": lambda q, k, v: F.scaled_dot_product_attention(q, k, v * 2, scale=0.3).transpose(1, 2) * 2,
    "twice": lambda q, k, v: F.scaled_dot_product_attention(
        F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2, k, v
    ),
}


def tensors(dtype: torch.dtype = torch.bfloat16, keys: int = 5) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (2, 3, 5, 16), (2, 3, keys, 16), (2, 3, keys, 16)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def with_gradients(program: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    result = program(*inputs)
    return [result, *torch.autograd.grad(result.float().cos().sum(), inputs)]


def compiled(program: Callable[..., Any], **options: Any) -> Any:
    return thunder.jit(program, executors=[replaying_executor()], nvfuser_products=True, **options)


def fused(function: Any) -> set[tuple[str, str]]:
    return {(row.trace, row.symbol) for row in thunder.explain(function).rows if row.via == "fusion"}


BOTH = {("forward", "nvfuser_attention.attention"), ("backward", "nvfuser_attention.attention_backward")}


def test_attention_of_tensors_on_another_device_is_refused():
    function = compiled(PROGRAMS["plain"])
    function(*tensors())
    (region,) = (b for b in thunder.last_traces(function)[-1].bound_symbols if b.sym.is_fusion)
    (attention,) = (b for b in region.subsymbols if b.sym.id == "nvfuser_attention.attention")
    assert replaying_executor().can_fuse(attention) is True
    refusal = Refusal("device", "nvFuser computes on CUDA devices", device="cpu")
    assert nvfuser_ex.can_fuse(attention) == refusal


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_those_of_eager(name: str, dtype: torch.dtype):
    function = compiled(PROGRAMS[name])
    ours, theirs = (with_gradients(f, tensors(dtype)) for f in (function, PROGRAMS[name]))
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    assert fused(function) >= BOTH


def test_gradients_are_those_of_the_formula_in_float64():
    inputs = tensors()
    ours = with_gradients(compiled(PROGRAMS["causal"]), inputs)
    wide = [x.detach().double().requires_grad_() for x in inputs]

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ (k * 2).mT / 4).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        return (scores.softmax(-1) @ v).sin() + 1

    for found, expected in zip(ours, with_gradients(formula, wide), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=0.03, atol=0.03)


def test_a_definition_has_the_library_s_operations_with_their_arguments():
    function = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5) * 2)
    inputs = tensors()
    with_gradients(function, inputs)
    (forward,) = (b for b in thunder.last_traces(function)[-1].bound_symbols if b.sym.is_fusion)
    (backward,) = (b for b in thunder.last_backward_traces(function)[-1].bound_symbols if b.sym.is_fusion)
    assert (
        "    t6, t7, t8, t9 = fd.ops.sdpfa_fwd(t0, t1, t2, dropout_p=c3, is_causal=c4, scale=c5)"
        in forward.sym.python_impl.definition(*inputs).splitlines()
    )
    assert [p.dtype for p in backward.args[-2:]] == [thunder.uint64] * 2
    given = [torch.zeros(p.shape, dtype=p.dtype.torch_dtype) for p in backward.args]
    text = backward.sym.python_impl.definition(*given)
    assert "dtype=DataType.UInt64" in text
    assert "fd.ops.sdpfa_bwd(" in text
    assert "philox_seed=t6, philox_offset=t7, scale=c" in text


def test_symbolic_sizes_have_one_definition():
    function = compiled(PROGRAMS["plain"], cache="symbolic values")
    for rows in (5, 7, 9):
        inputs = [torch.randn(2, 3, rows, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        ours, theirs = (with_gradients(f, inputs) for f in (function, PROGRAMS["plain"]))
        torch.testing.assert_close(ours, theirs)
    assert thunder.cache_misses(function) == 1
    assert fused(function) >= BOTH


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "masks": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, q[..., :1]), "masks, dropout"),
    "grouped queries": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
        "masks, dropout",
    ),
    "broadcast heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k[:1], v[:1]),
        "does not broadcast",
    ),
    "values of another size": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v[..., :8]),
        "does not broadcast",
    ),
    "sizes of heads": (
        lambda q, k, v: F.scaled_dot_product_attention(q[..., :12], k[..., :12], v[..., :12]),
        "multiples of 8",
    ),
    "causal with other lengths": (
        lambda q, k, v: F.scaled_dot_product_attention(q[:, :, :3], k, v, is_causal=True),
        "aligns the last query",
    ),
    "32 bits": (lambda q, k, v: F.scaled_dot_product_attention(*(x.float() for x in (q, k, v))), "16 bits"),
    "three dimensions": (lambda q, k, v: F.scaled_dot_product_attention(q[0], k[0], v[0]), "four dimensions"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_flash_attention_computes_in_another_way_is_left_to_torch(name: str):
    program, reason = REFUSED[name]
    function = compiled(lambda *inputs: program(*inputs) * 2 + 1)
    inputs = [x.detach() for x in tensors()]
    torch.testing.assert_close(function(*inputs), program(*inputs) * 2 + 1)
    assert reason in str(thunder.explain(function))
    assert not fused(function) & BOTH


def test_where_no_region_contains_it_torch_s_kernel_runs_it():
    executor = replaying_executor()
    executor.set_fuel(0)
    function = thunder.jit(PROGRAMS["causal"], executors=[executor], nvfuser_products=True)
    ours, theirs = (with_gradients(f, tensors()) for f in (function, PROGRAMS["causal"]))
    torch.testing.assert_close(ours, theirs)
    assert not fused(function)
    assert "= flash_attention(" in str(thunder.last_traces(function)[-1])
    assert "= flash_attention_backward(" in str(thunder.last_backward_traces(function)[-1])


def test_second_derivatives_are_those_of_the_formula():
    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q * 2 @ k.mT / 4).softmax(-1) @ v * 3

    def second(f: Callable[..., Any], inputs: list[torch.Tensor]) -> torch.Tensor:
        (first,) = torch.autograd.grad(f(*inputs).sin().sum(), inputs[0], create_graph=True)
        return torch.autograd.grad(first.sin().sum(), inputs[0])[0]

    inputs = tensors()
    expected = second(formula, [x.detach().double().requires_grad_() for x in inputs])
    error = second(compiled(PROGRAMS["plain"]), inputs).double() - expected
    assert error.abs().max() < 0.04 * expected.abs().max()


def test_a_plan_has_attention_in_both_directions():
    with torch.device("meta"):
        inputs = [torch.empty(2, 3, 16, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    plan = thunder.plan(
        PROGRAMS["plain"], *inputs, device="h100", executors=[nvfuser_ex], nvfuser_products=True
    )
    assert {(r.trace, r.symbol) for r in plan.explain().rows if r.claimed_by == "nvfuser"} >= BOTH


def test_the_recorder_computes_no_dropout():
    fd = RecordedDefinition()
    q = fd.define_tensor([-1] * 4, [True] * 4, DataType.BFloat16)
    rate, causal = fd.define_scalar(0.5, DataType.Double), fd.define_scalar(False, DataType.Bool)
    fd.add_output(fd.ops.sdpfa_fwd(q, q, q, dropout_p=rate, is_causal=causal)[0])
    with pytest.raises(TypeError, match=r"dropout_p=0\.5"):
        fd.execute([torch.randn(2, 3, 5, 16, dtype=torch.bfloat16)])
