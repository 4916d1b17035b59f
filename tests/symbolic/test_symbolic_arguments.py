"""Floats and integers of the arguments are inputs of the program, and what it decides on them are facts."""

import math
import random

import pytest
import torch
import torch.nn.functional as F

import thunder
from comparison.derivatives import compare, ran
from comparison.inputs import leaf
from sweeping import in_turn, one_in
from symbolic.broken_facts import Subject
from symbolic.fact_outcomes import sources_of
from symbolic.static_reasons import failure_of

MODES = ("automatic", "symbolic values")
SPECIAL = (0.0, -0.0, math.nan, math.inf, -math.inf, 3, True, None, 1e300, -1.0)
FLOATS = (0.75, 1.5, 0.3, 2.25, 0.11, 1e-3)


def _clipped(x, s):
    """Return a step of an optimiser with a clipped gradient."""
    norm = x.norm()
    return torch.where(norm > s, x * (s / (norm + 1e-6)), x).add(x, alpha=-s)


def _scheduled(x, s):
    warm = s * 0.1 if s < 0.5 else s
    return x * warm + (1 - s) * x.mean()


#: name → a program of a tensor and a number, and the most compiles for `FLOATS` in the automatic mode
PROGRAMS = {
    "factor": (lambda x, s: x * s, 2),
    "quotient": (lambda x, s: x / s + s / (x.abs() + 1), 2),
    "sum and difference": (lambda x, s: (s - x) + s, 2),
    "power": (lambda x, s: (x.abs() + 0.1) ** s, 3),
    "base": (lambda x, s: torch.pow(s, x), 3),
    "alpha": (lambda x, s: x.add(x.cos(), alpha=s).sub(x, alpha=2 * s), 2),
    "clamp": (lambda x, s: x.clamp(min=-s, max=s), 3),
    "full": (lambda x, s: x + torch.full((4,), s) + x.new_full((1,), s), 2),
    "filled": (lambda x, s: x.masked_fill(x > 0, s), 2),
    "in place": (lambda x, s: x.clone().mul_(s).add_(s).fill_diagonal_(s), 2),
    "threshold": (lambda x, s: F.threshold(x, s, -s) + F.leaky_relu(x, s), 2),
    "softplus": (lambda x, s: F.softplus(x, beta=s) + F.gelu(x) * s, 3),
    "temperature": (lambda x, s: (x / s).softmax(-1), 2),
    "norm": (lambda x, s: F.layer_norm(x, (4,), eps=s), 2),
    "dropout": (lambda x, s: F.dropout(x, min(s, 1.0), training=False), 3),
    "smoothed": (lambda x, s: F.huber_loss(x, x.detach() * 2, delta=s), 7),
    "lerp": (lambda x, s: torch.lerp(x, x * 2, s), 2),
    "addcmul": (lambda x, s: torch.addcmul(x, x, x, value=s), 2),
    "clipped": (_clipped, 2),
    "scheduled": (_scheduled, 3),
    "arithmetic": (
        lambda x, s: (x * ((1 - s) ** 2 / (s + 2)), s % 0.7, s // 0.2, divmod(s, 0.3), -s, abs(s)),
        2,
    ),
    "functions": (lambda x, s: x * math.exp(-s) + math.log(s + 2, 3) + math.sqrt(s + 1), 2),
    "with a size": (lambda x, s: x * (s * x.shape[0]) + x.shape[1] // s, 2),
    "branch": (lambda x, s: x * s if s > 0.5 else x + s, 4),
    "chain": (lambda x, s: x * 2 if 0.2 < s <= 1 else x * s, 5),
    "kinds": (lambda x, s: x * 2 if math.isnan(s) else x - 1 if math.isinf(s) else x * s, 2),
    "truth": (lambda x, s: x * s if s else x, 2),
    "rounded": (lambda x, s: x * int(s) + round(s, 1), 2),
    "slice": (lambda x, s: x[: math.ceil(s)], 4),
    "text": (lambda x, s: (x, f"{s:.2f}", str(s)), 7),
    "key": (lambda x, s: x * {0.75: 2.0}.get(s, s), 7),
    "nested": (lambda x, s: x * {"k": [s]}["k"][0], 2),
    "type": (lambda x, s: (x, type(s), isinstance(s, float), s), 2),
}


def _outcome(fn, x, s, order):
    kept = []

    def called(t):
        kept.append(fn(t, s))
        return kept[0]

    try:
        run = ran(called, lambda: [x.detach().clone().requires_grad_(x.requires_grad)], order)
    except (RuntimeError, ValueError, TypeError, ArithmeticError, IndexError) as error:
        return None, error
    others = kept[0][1:] if isinstance(kept[0], tuple) else ()
    return run, others


def _assert_eagers(program, compiled, x, s, order=2):
    expected, others = _outcome(program, x, s, order)
    run, found = _outcome(compiled, x, s, order)
    if expected is None:
        assert run is None, others
        assert isinstance(found, type(others)), (found, others)
        return
    assert run is not None, found
    if expected.error is not None:  # torch's backward of pow(True, x) raises
        return
    compare(expected, run, f"the call with {s}")
    assert [(type(a), repr(a)) for a in found] == [(type(a), repr(a)) for a in others]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "mode"), in_turn(PROGRAMS, MODES))
def test_a_program_of_a_float_computes_what_eager_computes(name, mode):
    program, most = PROGRAMS[name]
    compiled = thunder.jit(program, cache=mode, executors=["torch"], recompile_limit=None)
    x = leaf(3, 4)
    # a backward that is compiled later may ask no more about sizes
    order = 1 if mode == "symbolic values" and name in ("temperature", "norm") else 2
    for s in FLOATS:
        _assert_eagers(program, compiled, x, s, order)
    assert thunder.cache_misses(compiled) <= most
    assert failure_of(compiled) is None
    for s in (*SPECIAL, 0.75, 0.9):
        _assert_eagers(program, compiled, x, s, order=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_a_float_is_a_number_of_python_in_promotion(dtype):
    def program(x, s):
        return x * s, s + x, torch.where(x != 0, x, s), torch.full_like(x, s, dtype=torch.float16) * s

    x = torch.arange(-2, 3).to(dtype)
    compiled = thunder.jit(program, executors=["torch"])
    for s in FLOATS:
        for ours, theirs in zip(compiled(x, s), program(x, s), strict=True):
            assert ours.dtype is theirs.dtype
            assert torch.equal(ours, theirs)
    assert thunder.cache_misses(compiled) == 2


def test_a_float_is_a_named_input_whose_second_value_makes_it_free():
    compiled = thunder.jit(lambda x, s: x * s if s > 0.5 else x, executors=["torch"])
    x = torch.ones(3)
    compiled(x, 0.75)
    compiled(x, 1.5)
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert reason.now_free == ("args[1]",)
    assert "f0 > 0.5" in str(thunder.last_prologue_traces(compiled)[-1])
    text = str(thunder.last_traces(compiled)[-1])
    assert 'f0: "float 1.5"' in text
    assert "torch.mul(x, f0)" in text
    context = thunder.last_traces(compiled)[-1].python_ctx()
    exec(text, context)
    assert torch.equal(torch.utils._pytree.tree_leaves(context["computation"](x, 7.0))[0], x * 7)


def test_numbers_of_configurations_and_keywords_are_inputs():
    class Settings:
        def __init__(self, scale, steps):
            self.scale, self.steps = scale, steps

    def program(x, settings, *, shift=0.5):
        return x * settings.scale + settings.steps - shift

    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"])
    for i in range(1, 6):
        x, settings = torch.randn(i + 1), Settings(i / 2 + 0.1, i)
        torch.testing.assert_close(compiled(x, settings, shift=i / 3), program(x, settings, shift=i / 3))
    assert thunder.cache_misses(compiled) == 1


def test_under_symbolic_values_integers_are_inputs_and_flags_are_facts():
    def program(x, dim, scale, flag, mode):
        y = x.sum(dim) * scale
        return y if flag and mode is None else -y

    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"], recompile_limit=None)
    x = torch.randn(3, 4)
    calls = [
        (0, 2, True, None),
        (0, 5, True, None),
        (1, 5, True, None),
        (1, 7, False, None),
        (0, -3, True, "m"),
    ]
    for call in calls:
        torch.testing.assert_close(compiled(x, *call), program(x, *call))
    # another dimension, another flag, and another type
    assert thunder.cache_misses(compiled) == 4
    assert failure_of(compiled) is None


@pytest.mark.parametrize("name", one_in(4, [n for n in PROGRAMS if n not in ("text", "type", "key")]))
def test_each_fact_about_a_float_that_is_broken_refuses_the_entry(name):
    program, _ = PROGRAMS[name]
    subject = Subject(program, [[3, 4], 0.75], cache="symbolic values")
    for verdict in subject.verdicts(random.Random(0)):
        assert not verdict.faults, (verdict.fact, verdict.faults)


@pytest.mark.parametrize("name", ["branch", "chain", "truth", "kinds", "key"])
def test_without_a_fact_about_a_float_a_result_is_wrong(name):
    program, _ = PROGRAMS[name]
    calls = [[3, 4], 0.75], [[3, 4], 1.5]
    subject = Subject(program, calls[1], [sources_of(calls[0])], cache="automatic")
    verdicts = list(subject.verdicts(random.Random(0)))
    assert not [verdict.faults for verdict in verdicts if verdict.faults]
    kinds = [verdict.kind for verdict in verdicts]
    assert "needed" in kinds
    assert {*kinds} <= {"needed", "implied"}


def test_a_program_that_needs_a_number_keeps_its_free_sizes():
    def program(x, n, s):
        return x * memoryview(bytes(8))[n : n + 1].nbytes * s

    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"], recompile_limit=None)
    for rows in (2, 3, 4):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x, 3, 2.0), program(x, 3, 2.0))
    assert thunder.cache_misses(compiled) == 1


def test_a_schedule_of_learning_rates_costs_two_compiles_with_all_executors():
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))

    def loss(module, x, rate):
        return (module(x).sin() * rate).square().mean() / rate

    compiled = thunder.jit(loss)
    x = torch.randn(5, 8)
    for step in range(8):
        rate = 0.1 * 0.9**step
        ours = torch.autograd.grad(compiled(module, x, rate), list(module.parameters()))
        theirs = torch.autograd.grad(loss(module, x, rate), list(module.parameters()))
        torch.testing.assert_close(ours, theirs)
    assert thunder.cache_misses(compiled) == 2


#: name → a program of a tensor and an integer, whose expressions exceed 64 bits for some of `LARGE`
WIDE = {
    "square": lambda x, k: (x.sin() + (k * k) // 3 % 1000).cos(),
    "cube": lambda x, k: (x.sin() + k**3 % 1013).cos(),
    "sum": lambda x, k: (x.sin() + (k + 2**63) % 1009).cos(),
    "negative": lambda x, k: (x.sin() + (-k) % 1013 + (-k) // 7 % 11).cos(),
    "with a size": lambda x, k: (x.sin() + (k * x.shape[0] * 2**20) % 999).cos(),
    "number": lambda x, k: (x > k).long() * 2,
    "result": lambda x, k: (x, k * 10**20, k // 2**61, k / 3),
}
LARGE = (3, 4, 2**31 + 7, 2**40 + 11, -(2**62) - 5, 2**63 - 1, 2**63, 2**64 + 3, -(2**63) - 1, 10**30, 7)


@pytest.mark.parametrize("executors", [["torch"], None])
@pytest.mark.parametrize("name", WIDE)
def test_integers_of_any_length_are_those_of_python(name, executors):
    options = {} if executors is None else {"executors": executors}
    compiled = thunder.jit(WIDE[name], recompile_limit=None, **options)
    x = torch.arange(1.0, 4.0, dtype=torch.float64)
    for k in LARGE:
        try:
            expected = WIDE[name](x, k)
        except (OverflowError, RuntimeError) as error:
            with pytest.raises(type(error), match=r"(?i)overflow|too (big|large)|to unsigned"):
                compiled(x, k)
            continue
        torch.testing.assert_close(compiled(x, k), expected, rtol=1e-12, atol=1e-9)


def test_floats_beyond_32_bits_are_those_of_python():
    def program(x, s):
        return x * s, x + s, (s * s, s / 3)

    compiled = thunder.jit(program, recompile_limit=None)
    for dtype in (torch.float64, torch.float32):
        x = torch.arange(1.0, 4.0, dtype=dtype)
        for s in (1.5, 1e300, -1e300, 1e-320, 1e39, 2.0**24 + 1, 0.1 + 0.2):
            torch.testing.assert_close(compiled(x, s), program(x, s), rtol=0, atol=0)


#: a program of ``x: (6, 6, 6)`` and an integer, and numbers for it
INTEGERS = {
    "norm": (lambda x, n: torch.linalg.norm(x, dim=n), (0, 2, -1)),
    "transform": (lambda x, n: torch.fft.rfft(x, dim=n).abs(), (0, 2, -1)),
    "transform back": (lambda x, n: torch.fft.hfft(x, dim=n), (0, 2, -1)),
    "contraction": (lambda x, n: torch.tensordot(x, x, n), (1, 2, 0, 3)),
    "pieces": (lambda x, n: torch.tensor_split(x, n)[-1], (2, 3, 4)),
    "columns": (lambda x, n: x.hsplit(n)[0], (2, 3, 6)),
    "planes": (lambda x, n: torch.dsplit(x, n)[0], (2, 3, 6)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_an_integer_argument_of_an_operator_may_be_a_symbol(name):
    program, numbers = INTEGERS[name]
    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"])
    for n in numbers:
        found = []
        for call in (program, compiled):
            x = torch.linspace(-1, 2, 216, dtype=torch.float64).reshape(6, 6, 6).requires_grad_()
            y = call(x, n)
            found.append((y, *torch.autograd.grad(y.square().sum(), x)))
        torch.testing.assert_close(*found)


def test_a_number_of_columns_that_is_a_symbol_divides_their_length():
    compiled = thunder.jit(torch.hsplit, cache="symbolic values")
    compiled(torch.ones(6, 6), 3)
    with pytest.raises(RuntimeError, match="not divisible by the split_size 4"):
        compiled(torch.ones(6, 6), 4)


def test_elements_that_are_repeated_as_often_as_a_symbol_says_can_be_written():
    compiled = thunder.jit(torch.repeat_interleave, cache="symbolic values", executors=["torch"])
    for n in (2, 3, 1):
        x = torch.ones(3, requires_grad=True)
        compiled(x, n).mul_(2).sum().backward()
        assert x.grad.tolist() == [2 * n] * 3
