"""Random numbers of generated kernels, which the option `triton_random` allows: dropout and its relatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder
import thunder_triton
from sweeping import one_in
from thunder.plugins import get_manager
from thunder_triton.executor import ex
from thunder_triton.kernels import random

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
_MASK = (1 << 32) - 1


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, which declares the option."""
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        yield


def compiled(program: Callable[..., Any], **options: Any) -> Any:
    return thunder.jit(program, executors=[ex], **({"triton_random": True} | options))


def seeded(program: Callable[..., Any], *inputs: torch.Tensor, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return program(*inputs)


def claims(program: Any) -> set[str | None]:
    return {row.claimed_by for row in thunder.explain(program).rows}


def philox(key: tuple[int, int], counter: list[int]) -> list[int]:
    """Return four numbers of 32 bits: Philox 4x32-10 (Salmon et al., SC 2011, section 3.3)."""
    for i in range(10):
        keys = [(k + i * step) & _MASK for k, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)]
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [
            second >> 32 ^ counter[1] ^ keys[0],
            second & _MASK,
            first >> 32 ^ counter[3] ^ keys[1],
            first & _MASK,
        ]
    return counter


def test_the_reference_has_the_known_answer_of_its_authors():
    assert philox((0, 0), [0, 0, 0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**62 - 1), st.integers(1, 40))
def test_numbers_are_those_of_philox(seed: int, count: int):
    numbers = random.uniform((count,), torch.tensor(seed))
    for place, number in enumerate(numbers.tolist()):
        bits = philox((seed & _MASK, seed >> 32), [place, 0, 0, 0])[0]
        folded = bits if bits < 2**31 else 2**32 - 1 - bits
        assert number == pytest.approx(folded / 2**31, abs=2**-23)
        assert 0 <= number < 1


def test_without_the_option_draws_are_torchs():
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin() * 2, 0.3) + torch.rand_like(x) * torch.bernoulli(x, 0.4)

    plain = compiled(program, triton_random=False)
    x = torch.randn(50, 4)
    torch.testing.assert_close(seeded(plain, x), seeded(program, x))
    refusals = [r for row in thunder.explain(plain).rows if "dropout" in row.symbol for r in row.refusals]
    assert [r.code for r in refusals if r.executor == "triton"] == ["random"]


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alone": lambda x: F.dropout(x, 0.25),
    "between": lambda x: F.dropout(x.sin(), 0.25) * 2 + x,
    "softmax": lambda x: F.dropout(torch.softmax(x, -1), 0.25) + 1,
    "columns": lambda x: F.dropout(x - x.mean(0), 0.25).sum(0),
    "views": lambda x: F.dropout(x.reshape(-1).flip(0) * 2, 0.25).reshape(x.shape).mT * 3,
    "normalised": lambda x: F.layer_norm(F.dropout(x, 0.25) + x, x.shape[-1:]),
}


def masked(name: str, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Run a program with the mask in place of the dropout's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "dropout", lambda y, p: y * mask.reshape(y.shape) / (1 - p))
        return PROGRAMS[name](x)


@pytest.mark.parametrize(("name", "dtype"), one_in(4, [(n, d) for n in PROGRAMS for d in BOUNDS]))
def test_a_mask_depends_on_the_seed_and_the_place_alone(name: str, dtype: torch.dtype):
    x = torch.randn(12, 7).to(dtype)
    program = compiled(PROGRAMS[name])
    torch.manual_seed(5)
    seed = torch.randint(1 << 62, ())
    mask = random.uniform((12, 7), seed) < 0.75
    learnt, reference = x.clone().requires_grad_(), x.double().requires_grad_()
    result, expected = seeded(program, learnt, seed=5), masked(name, reference, mask)
    g = torch.randn(result.shape).to(dtype)
    (gradient,) = torch.autograd.grad(result, learnt, g)
    (right,) = torch.autograd.grad(expected, reference, g.double())
    bound = BOUNDS[dtype]
    torch.testing.assert_close(result.double(), expected, rtol=bound, atol=bound)
    torch.testing.assert_close(gradient.double(), right, rtol=bound, atol=bound)
    if name != "alone":
        assert "triton" in claims(program)


def test_the_backward_has_the_seed_and_not_the_mask():
    program = compiled(lambda x: F.dropout(x * 2, 0.5) + x)
    x = torch.randn(64, 8, requires_grad=True)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        program(x)
    assert set(sizes) <= {1}
    assert any(b.sym.name == "TritonFusion0" for b in thunder.last_backward_traces(program)[-1].bound_symbols)


def test_draws_follow_the_seed_and_differ_from_call_to_call():
    program = compiled(lambda x: F.dropout(x + 1, 0.5) * 2)
    x = torch.ones(1000)
    first, again = seeded(program, x), seeded(program, x)
    assert torch.equal(first, again)
    assert not torch.equal(program(x), again)
    assert not torch.equal(seeded(program, x, seed=1), first)


def test_two_draws_of_a_program_are_independent():
    program = compiled(lambda x: (F.dropout(x + 1, 0.5), F.dropout(x + 1, 0.5)))
    first, second = (y != 0 for y in seeded(program, torch.ones(20_000)))
    assert abs((first & second).double().mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 20_000)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_fraction_and_the_mean(p: float):
    count = 40_000
    kept = seeded(compiled(lambda x: F.dropout(x * 1.5 + 0.5, p)), torch.ones(count))
    assert abs((kept != 0).double().mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / count)
    torch.testing.assert_close(kept.unique(), torch.tensor([0.0, 2 / (1 - p)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_uniform_numbers_have_the_distribution(dtype: torch.dtype):
    numbers = seeded(compiled(lambda x: torch.rand_like(x) * 1.0), torch.ones(20_000, dtype=dtype)).double()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    places = torch.arange(1, 20_001) / 20_000
    # The bound of Kolmogorov and Smirnov for 1 in 10^6, and the spacing of numbers of 8 digits.
    assert (numbers.sort().values - places).abs().max() < 2.7 / math.sqrt(20_000) + 2**-8


def test_a_bernoulli_draw_has_its_probability():
    drawn = seeded(compiled(lambda x: torch.bernoulli(x, 0.2) + 1), torch.ones(20_000)) - 1
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert abs(drawn.mean() - 0.2) < 5 * math.sqrt(0.16 / 20_000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_normal_numbers_have_the_distribution(dtype: torch.dtype):
    count = 20_000
    numbers = seeded(compiled(lambda x: torch.randn_like(x) * 1.0), torch.ones(count, dtype=dtype)).double()
    places = torch.arange(1, count + 1) / count
    distribution = torch.special.ndtr(numbers.sort().values)
    # The bound of Kolmogorov and Smirnov for 1 in 10^6, and the spacing of numbers of 8 digits.
    assert (distribution - places).abs().max() < 2.7 / math.sqrt(count) + 2**-8
    for power, moment, spread in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        error = abs(numbers.pow(power).mean().item() - moment)
        assert error < 5 * math.sqrt(spread / count) + (2**-7 if dtype is torch.bfloat16 else 2**-10)
    halves = numbers.view(2, -1)
    assert abs((halves[0] * halves[1]).mean().item()) < 5 / math.sqrt(count / 2)


def test_normal_numbers_are_those_of_box_and_muller():
    torch.manual_seed(7)
    seed = torch.randint(1 << 62, ())
    first, second = random.uniform((2, 40, 3), seed).double()
    expected = (-2 * first.clamp(min=2**-32).log()).sqrt() * (2 * math.pi * second).cos()
    found = seeded(compiled(lambda x: torch.randn_like(x) * 1.0), torch.ones(40, 3), seed=7)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_the_least_number_has_a_finite_normal_number():
    zeros = torch.zeros(2, 5)
    radius = torch.sqrt(torch.log(torch.clamp(zeros[0], min=2.0**-32)) * -2)
    assert radius.isfinite().all()
    numbers = seeded(compiled(lambda x: torch.randn_like(x) * 1.0), torch.ones(40_000))
    assert numbers.abs().max() < 6.7


@pytest.mark.parametrize("shape", [(2, 2, 8, 4), (2, 1, 5, 4)], ids=str)
def test_attention_drops_weights_in_the_kernel_of_their_softmax(shape: tuple[int, ...]):
    def program(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)

    attention = compiled(program)
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    found = seeded(attention, *inputs, seed=3)
    (header,) = [b.header for b in thunder.last_traces(attention)[-1].bound_symbols if b.sym.is_fusion]
    assert "tl.rand" in header
    assert "libdevice.exp" in header
    torch.manual_seed(3)
    kept = random.uniform((*shape[:-1], shape[-2]), torch.randint(1 << 62, ())) < 0.75
    wide = [x.detach().double().requires_grad_() for x in inputs]
    q, k, v = wide
    expected = ((q @ k.mT / 2).softmax(-1) * kept / 0.75) @ v
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    g = torch.randn_like(found)
    gradients = torch.autograd.grad(found, inputs, g), torch.autograd.grad(expected, wide, g.double())
    for ours, right in zip(*gradients, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "draw", [torch.rand_like, torch.randn_like, lambda x: torch.bernoulli(x, 0.5), F.dropout]
)
def test_results_have_eagers_strides_and_dtypes(draw: Callable[[torch.Tensor], torch.Tensor]):
    def program(x: torch.Tensor) -> Any:
        return draw(x.mT), draw(x) + x

    for x in (
        torch.ones(3, 4, 5),
        torch.ones(3, 5, 4).mT,
        torch.ones(4, 5).expand(3, 4, 5),
        torch.ones(0, 5),
    ):
        for result, right in zip(compiled(program)(x), program(x), strict=True):
            assert (result.shape, result.stride(), result.dtype) == (right.shape, right.stride(), right.dtype)


def test_dropout_of_nan_is_nan_as_in_eager():
    result = compiled(lambda x: F.dropout(x * 2, 0.5))(torch.full((100,), math.nan))
    assert result.isnan().all()


def test_a_checkpointed_region_draws_once():
    def program(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: F.dropout(y.sin(), 0.5) * 3, x, use_reentrant=False)

    x = torch.rand(200).add(0.1).requires_grad_()
    result = compiled(program)(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient != 0, result != 0)
    assert 0 < (result != 0).sum() < 200


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x, 1.0),
        lambda x: F.dropout(x, 0.0),
        lambda x: F.dropout(x, training=False),
        lambda x: F.dropout(x.double()),
        lambda x: torch.rand_like(x, dtype=torch.float64),
        lambda x: torch.rand_like(x, generator=torch.Generator().manual_seed(3)),
        lambda x: torch.bernoulli(x.abs().clamp(max=1)),
        lambda x: torch.randn_like(x, dtype=torch.float64),
        lambda x: torch.normal(x, 1.0),
    ],
)
def test_other_draws_are_torchs(draw: Callable[[torch.Tensor], torch.Tensor]):
    program = compiled(lambda x: draw(x) * 2)
    x = torch.randn(40)
    torch.testing.assert_close(seeded(program, x), seeded(lambda x: draw(x) * 2, x))
