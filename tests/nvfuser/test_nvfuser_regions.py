"""Regions, whose definitions torch computes, give what eager gives; and what is not put into one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
import thunder_nvfuser.library
from llama import Llama, LlamaConfig
from thunder.core import devices, prims
from thunder.executors.nvfuserex import nvfuser_ex
from thunder.extend import OperatorExecutor
from thunder_nvfuser.executor import replaying_executor

X, Y = torch.linspace(-3, 3, 24).view(4, 6), torch.linspace(2, -1, 24).view(4, 6)
P = X.abs() + 1.5
N = torch.arange(24).view(4, 6) - 5

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "unary": (lambda x: (x.sin().cos().tanh(), x.exp().log1p(), x.erf().sigmoid().sqrt()), (X,)),
    "of positive": (lambda p: (p.log().rsqrt(), p.lgamma().exp2(), p.reciprocal().log2()), (P,)),
    "rounding": (lambda x: (x.round().abs(), x.floor() - x.ceil(), x.trunc().sign(), x.neg().expm1()), (X,)),
    "binary": (lambda x, y: (x * y - x / (y + 4), torch.atan2(x, y), x.fmod(y), x.remainder(y)), (X, Y)),
    "bools": (
        lambda x, y: [
            f(x > 0, y > 0) for f in (torch.minimum, torch.maximum, torch.add, torch.mul, torch.ne, torch.eq)
        ],
        (X, Y),
    ),
    "numbers": (lambda x: (2 - x, x * 0.1 + 3, x**2, 1 / (x + 10), x > 0.5), (X,)),
    "comparisons": (lambda x, y: (x > y) & (x <= 1) | ~(y != 0) ^ (x == y), (X, Y)),
    "integers": (lambda n: ((n * 3 + 2) & 7, n << 1, (n >> 1) - n, n.abs() > 2, n.sum(0), n.amax(1)), (N,)),
    "where": (lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, x, 0.0), x.lerp(y, 0.3)), (X, Y)),
    "clamps": (lambda x: (x.clamp(-1, 2), x.clamp(min=0) + 1, F.relu(x) * 2, F.hardtanh(x).sin()), (X,)),
    "activations": (lambda x: (F.silu(x), F.gelu(x), F.softplus(x), F.mish(x), F.elu(x)), (X,)),
    "sums": (lambda x: (x.sum(), x.mean(0), x.amax(1), x.amin(), x.prod(1), x.std(0), x.var(1)), (X,)),
    "truth": (lambda x: ((x > 0).any(), (x > -9).all(1), (x > 2).sum(), x.any(0), (x > 0).all()), (X,)),
    "moments": (lambda x: torch.var_mean(x * 2, dim=1, correction=0), (X,)),
    "softmax": (lambda x: (x.softmax(-1), x.log_softmax(0), x.logsumexp(1)), (X,)),
    "norms": (lambda x: (F.layer_norm(x, (6,)), F.rms_norm(x, (6,)), F.normalize(x)), (X,)),
    "moves": (lambda x: ((x + 1).t().exp(), (x * 2).reshape(6, 4).sin(), (x - 1)[1:, 2:].cos()), (X,)),
    "pieces": (lambda x, y: (torch.cat((x * 2, y), 1).exp(), F.pad(x * 2, (1, 2)).exp()), (X, Y)),
    "scans": (lambda x: ((x * 2).cumsum(1), (x * 0.5).cumprod(0), (x * 3).triu(), (x / 0).tril(-1)), (X,)),
    "conversions": (lambda x: (x.bfloat16() * 2).double() + x.int().float() + x.bool().float(), (X,)),
    "masks": (lambda x: ((x > 0).tril(1) & (x < 2), torch.where(torch.ones(4, 6).bool().tril(), x, 0)), (X,)),
    "created": (
        lambda x: (
            torch.arange(6) * 2 + torch.arange(3, 20, 3) + x,
            torch.full((4, 6), 2.0) * x,
            torch.ones_like(x),
        ),
        (X,),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_eager(name: str, dtype: torch.dtype):
    program, arguments = PROGRAMS[name]
    arguments = tuple(a.to(dtype) if a.is_floating_point() else a for a in arguments)
    compiled = thunder.jit(program, executors=[replaying_executor()])
    torch.testing.assert_close(compiled(*arguments), program(*arguments))
    claimed = [row for row in thunder.explain(compiled).rows if row.via == "fusion"]
    assert claimed, str(thunder.explain(compiled))


def test_indices_and_products_are_left_to_torch_unless_options_say_otherwise():
    def program(x: torch.Tensor, index: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        chosen = x.index_select(0, index[0]).sum() + x.index_select(1, index[1] + 2) * 3
        return F.linear(x.gather(1, index) * 2 + chosen[:, :6], (w * 2).t(), w[0] + 1)

    x, index, w = torch.randn(4, 6), torch.randint(0, 4, (4, 6)), torch.randn(6, 3)
    plain = thunder.jit(program, executors=[replaying_executor()])
    options: dict[str, Any] = {"nvfuser_unchecked_indices": True, "nvfuser_products": True}
    whole = thunder.jit(program, executors=[replaying_executor()], **options)
    for compiled in (plain, whole):
        torch.testing.assert_close(compiled(x, index, w), program(x, index, w))
    refusals = str(thunder.explain(plain))
    assert "torch checks indices, and nvFuser does not" in refusals
    assert "leaves products to torch" in refusals
    assert {row.via for row in thunder.explain(whole).rows} == {"fusion"}


def test_attention_and_embeddings_by_options():
    def program(tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        x = F.embedding(tokens, table).view(2, 4, 2, 8).transpose(1, 2)
        return F.scaled_dot_product_attention(x, x, x, is_causal=True) * 2

    tokens, table = torch.randint(0, 9, (2, 4)), torch.randn(9, 16, dtype=torch.bfloat16)
    options: dict[str, Any] = {"nvfuser_unchecked_indices": True, "nvfuser_products": True}
    compiled = thunder.jit(program, executors=[replaying_executor()], **options)
    torch.testing.assert_close(compiled(tokens, table), program(tokens, table))
    assert {row.claimed_by for row in thunder.explain(compiled).rows} == {"nvfuser_replayed"}
    (fusion,) = (b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion)
    text = fusion.sym.python_impl.definition(tokens, table)
    assert "fd.ops.embedding_fwd(t0, t1)" in text
    assert "fd.ops.sdpfa_fwd(" in text


def test_random_numbers_by_seed_and_offset():
    def noise(seed: int, offset: int) -> Any:
        return prims.uniform_philox(
            (4, 6), 1.0, 3.0, device=devices.Device("cpu"), dtype=thunder.bfloat16, seed=seed, offset=offset
        )

    def noisy(x: torch.Tensor) -> Any:
        first, *others = noise(7, 4), noise(7, 5), noise(8, 4), noise(7, 4)
        return [thunder.torch.mul(n, x) for n in (first, *others)]

    ex = OperatorExecutor("noises")
    operator = ex.register_operator("noisy", like=noisy, replaces=torch.sinc)
    assert operator is not None
    x = torch.ones(4, 6, dtype=torch.bfloat16)
    for allowed in (True, False):
        compiled = thunder.jit(torch.sinc, executors=[ex, replaying_executor()], nvfuser_random=allowed)
        first, *others = compiled(x)
        assert torch.equal(first, compiled(x)[0])
        assert [torch.equal(first, other) for other in others] == [False, False, True]
        assert 1 <= first.min() < 1.5
        assert 2.5 < first.max() <= 3
        assert first.unique().numel() > 6
        draws = [row for row in thunder.explain(compiled).rows if row.symbol == "prims.uniform_philox"]
        assert {row.via == "fusion" for row in draws} == {allowed}


def test_what_nvfuser_cannot_do_has_its_reason():
    def program(x: torch.Tensor, n: torch.Tensor) -> Any:
        return (
            x.exp().flip(0) + torch.rand(4, 6),
            x[::2].exp() * 2,
            n % 3 + n.to(torch.int8),
            x.cfloat().abs() * 2,
        )

    compiled = thunder.jit(program, executors=[replaying_executor()])
    torch.manual_seed(0)
    results = compiled(X, N)
    torch.manual_seed(0)
    torch.testing.assert_close(results, program(X, N))
    text = str(thunder.explain(compiled))
    for reason in (
        "no implementation of prims.flip",
        "random numbers are drawn by torch",
        "slices with steps of 1",
        "floating-point numbers",
        "not used for this dtype",
    ):
        assert reason in text


def test_one_kernel_gains_nothing():
    compiled = thunder.jit(lambda x: x.exp().t(), executors=[replaying_executor()])
    compiled(X)
    assert "a region of one kernel gains nothing" in str(thunder.explain(compiled))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_llama_is_trained_as_in_eager(dtype: torch.dtype):
    torch.manual_seed(0)
    model = Llama(LlamaConfig(layers=1, context=16, width=32, heads=4, hidden=64)).to(dtype)
    other = copy.deepcopy(model)
    compiled = thunder.jit(other, executors=[replaying_executor()])
    tokens = torch.randint(0, 256, (2, 16))
    for forward in (model, compiled):
        F.cross_entropy(forward(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
    tolerance = {} if dtype is torch.float32 else {"rtol": 0.05, "atol": 2e-3}
    for expected, found in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, **tolerance)
    fused = [row for row in thunder.explain(compiled).rows if row.via == "fusion"]
    assert {row.trace for row in fused} == {"forward", "backward"}


def test_a_plan_shows_what_would_be_fused():
    with torch.device("meta"):
        x = torch.empty(64, 64)
    for device, fused in (("h100", True), ("cpu", False)):
        plan = thunder.plan(lambda x: x.exp() + 1, x, device=device, executors=[nvfuser_ex])
        assert ("nvFusion0" in str(plan.traces[-1])) is fused
    assert "nvFuser computes on CUDA devices" in str(plan.explain())


def test_without_the_library_the_executor_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    library = thunder_nvfuser.library
    if library.missing() is None:
        pytest.skip("nvFuser can be used here")
    with pytest.raises(thunder.ExecutorUnavailable, match="nvFuser is not installed"):
        thunder.get_executor("nvfuser")
    with pytest.raises(thunder.ExecutorUnavailable, match="cannot be used here"):
        library.library()
    if torch.version.cuda is None:
        assert "none for" in str(library.missing())
        assert "a torch without CUDA" in str(library.missing())
    monkeypatch.setattr(library.sys, "version_info", (3, 12, 3))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    assert str(library.missing()).endswith(
        "none for torch 2.13 with CUDA 13.0. With CPython 3.12 and CUDA: "
        "pip install 'torch==2.10.*' 'nvfuser-cu130-torch210>=0.2.36.dev20260301'"
    )
    monkeypatch.setattr(torch, "__version__", "2.10.1")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert str(library.missing()).endswith("pip install 'nvfuser-cu128-torch210>=0.2.36.dev20260301'")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert library.missing() == (
        "nvFuser is not installed. Install it: pip install 'nvfuser-cu130-torch210>=0.2.36.dev20260301'"
    )
    monkeypatch.setattr(library, "find_spec", lambda name: object())
    monkeypatch.setattr(library, "installed_version", lambda: "0.2.28")
    assert str(library.missing()).startswith("nvFuser 0.2.28 is installed, and 0.2.36 is required")
    monkeypatch.setattr(library, "installed_version", lambda: "0.2.36.dev20260301")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "finds no CUDA device" in str(library.missing())
