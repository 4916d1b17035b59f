"""Regions with symbolic sizes: one code serves many shapes, and its conditions are facts of the program."""

import gc
import math
import random
import warnings

import pytest
import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F
from torch.utils._sympy import functions

import thunder
from sweeping import one_in
from thunder.core.errors import PluginWarning
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import new_size
from thunder_inductor import symbolic_regions
from thunder_inductor.symbolic_graphs import is_true

pytestmark = pytest.mark.xdist_group("inductor")


def _softmax_of_sum(x, w):
    y = torch.softmax(x * 2 + w, -1).sin()
    return (y.reshape(-1) * 3).exp(), y.sum(0)


def _gated(x, w):
    return F.gelu(x) * (x @ torch.diag(w)).sigmoid() + x.mean(-1, keepdim=True)


def _shifted(x, w):
    y = (x[1:] - x[:-1]).cos() * w
    return torch.cat([y, x * 2]).tanh() + 1


def _transposed(x, w):
    return (x.t() * 2).exp().sum(1) * w + x.amax(0), (x.t() + w[:, None]).relu()


def _normed(x, w):
    return F.layer_norm(x, x.shape[-1:], w).relu() * x.shape[0]


def _halved(x, w):
    half = x.shape[1] // 2
    return (x[:, :half] * 2).exp() + 1, (x * w)[:, half:].sin() * 3


PROGRAMS = {f.__name__: f for f in (_softmax_of_sum, _gated, _shifted, _transposed, _normed, _halved)}


def _fused(compiled):
    return [row for row in thunder.explain(compiled).rows if row.via == "fusion"]


#: what a program computes with an integer, which may be negative
_NUMBERS = {
    "rest": lambda x, n: x * (n % 1000),
    "rest by a negative number": lambda x, n: x * (n % -3),
    "quotient": lambda x, n: x * (n // 7),
    "quotient and rest": lambda x, n: x + (n % 3) * (n // 3),
    "magnitude": lambda x, n: x * abs(n),
    "greatest": lambda x, n: torch.where(x > n, x, -x) * max(n, 3),
}


@pytest.mark.parametrize(("name", "first"), one_in(12, [(n, first) for n in _NUMBERS for first in (2, -3)]))
def test_a_number_of_either_sign_is_no_size(name, first):
    """TorchInductor's code divides as C does where it knows that a symbol is not negative."""

    def program(x, n):
        return x + 1.5, _NUMBERS[name](x, n) * 2, x.sin()

    compiled, x = thunder.jit(program), torch.randn(5)
    for n in (first, first + 1, -4, 7, 0, -1000, 5000):
        torch.testing.assert_close(compiled(x, n), program(x, n))
    assert _fused(compiled)
    assert thunder.cache_misses(compiled) <= 3


#: what is broadcast where its length, a difference of numbers, is 1
_LENGTHS = {
    "of a slice": lambda x, n, m: x[n:m].cos() + x * 2,
    "of two slices": lambda x, n, m: torch.maximum(x[n:m], x[1:2]) * x,
    "of an input": lambda x, n, m: torch.arange(n, m).to(x.dtype) + x / (n + 1000.5),
    "of other strides": lambda x, n, m: x[: x.shape[0]] / (min(n, 3) + 1000.5) + x.roll(1).sin().flip(0),
}


@pytest.mark.parametrize("name", one_in(4, _LENGTHS))
def test_a_length_that_is_1_by_a_fact_is_broadcast(name):
    def program(x, n, m):
        return x.exp() + 1, _LENGTHS[name](x, n, m)

    compiled = thunder.jit(program)
    for length, n, m in ((4, 1, 2), (4, 2, 3), (6, 2, 3), (7, 3, 4), (4, 0, 4), (5, 0, 5), (8, 1, 2)):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x, n, m), program(x, n, m))


def test_one_region_serves_many_shapes_and_its_questions_are_facts():
    compiled = thunder.jit(_softmax_of_sum, cache="symbolic values")
    for rows, columns in ((3, 5), (4, 7), (6, 2), (9, 33), (17, 16)):
        x, w = torch.randn(rows, columns), torch.randn(columns)
        for actual, expected in zip(compiled(x, w), _softmax_of_sum(x, w), strict=True):
            torch.testing.assert_close(actual, expected)
            assert actual.stride() == expected.stride()
    assert thunder.cache_misses(compiled) == 1
    assert _fused(compiled)
    (entry,) = thunder.compile_stats(compiled).interpreter_cache
    facts = [str(fact) for fact in entry.guards if fact.sym.name == "check_sizes"]
    assert "args[0].shape[1] <= 4096" in facts  # TorchInductor chose code for short rows


OPERATIONS = {
    "or": lambda n: n | 1,
    "xor": lambda n: n ^ 5,
    "and": lambda n: (n & 3) + 2,
    "shift": lambda n: (n << 1) + (n >> 1),
    "round": lambda n: round(n / 3),
    "root": math.isqrt,
    "divisor": lambda n: math.gcd(n, 12),
    "quotient": lambda n: n // 3 + n % 4,
}


@pytest.mark.parametrize("operation", one_in(8, OPERATIONS))
def test_an_operation_that_torchs_symbols_lack_runs_beside_regions_and_fixes_no_size(operation):
    def program(x):
        n = OPERATIONS[operation](x.shape[0])
        return (x.sin() + 1).cos().sum() * n, torch.ones(n + 1).mul(2).exp()

    compiled = thunder.jit(program, cache="symbolic values")
    for n in (5, 7, 8, 11, 18):
        x = torch.linspace(0, 1, n)
        for actual, expected in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(actual, expected)
    assert thunder.cache_misses(compiled) == 1
    assert _fused(compiled)


@pytest.mark.parametrize("operation", [sympy.Max, functions.Max, sympy.Min, functions.Min])
def test_a_condition_on_an_extremum_is_a_fact_and_fixes_no_size(operation):
    facts = SizeFacts()
    size, symbol = new_size(facts, 7, "n"), sympy.Symbol("s", integer=True, positive=True)
    condition = sympy.Ne(operation(3, symbol - 1, evaluate=False), 2)
    assert is_true(condition, {symbol: size}) is bool(condition.subs({symbol: 7}))
    assert facts.values() == {"n": None}
    assert len(facts.facts) in (1, 2)


def test_the_bounds_of_a_slice_are_those_of_each_call():
    compiled = thunder.jit(_halved, cache="symbolic values")
    for columns in (4, 6, 8, 11):
        x, w = torch.randn(3, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, w), _halved(x, w))
    assert _fused(compiled)


@pytest.mark.parametrize(("name", "grad"), one_in(100, [(n, g) for n in PROGRAMS for g in (False, True)], 99))
def test_a_region_computes_what_eager_computes_for_random_shapes(name, grad):
    program, rng = PROGRAMS[name], random.Random(name)
    compiled = thunder.jit(program, cache="symbolic values", recompile_limit=None)
    for _ in range(6):
        rows, columns = rng.choice([1, 2, 3, 5, 9, 17, 40]), rng.choice([1, 2, 4, 7, 16, 33])
        x, w = torch.randn(rows, columns), torch.randn(columns)
        leaves = [x.requires_grad_(grad), w.requires_grad_(grad)]
        results = [r if isinstance(r, tuple) else (r,) for r in (compiled(x, w), program(x, w))]
        torch.testing.assert_close(*results)
        assert [r.stride() for r in results[0]] == [r.stride() for r in results[1]]
        if grad:
            ours, theirs = (torch.autograd.grad(sum(r.sin().sum() for r in rs), leaves) for rs in results)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert _fused(compiled)


def _scaled_exponential(x, w):
    return (torch.softmax(x * 2 + w, -1).sin() * 3).exp()


#: cotangents of a matrix in layouts that differ from those of what a program returns
COTANGENTS = {
    "expanded": lambda n, m: torch.ones(()).expand(n, m),
    "expanded row": lambda n, m: torch.linspace(0, 1, m).expand(n, m),
    "expanded column": lambda n, m: torch.linspace(0, 1, n)[:, None].expand(n, m),
    "transposed": lambda n, m: torch.linspace(0, 1, n * m).reshape(m, n).t(),
}


def test_cotangents_in_other_layouts_have_code_of_their_own():
    compiled = thunder.jit(_scaled_exponential, cache="symbolic values")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        for shape in ((3, 5), (4, 7), (6, 2), (9, 33)):
            x, w = torch.randn(shape, requires_grad=True), torch.randn(shape[1])
            for cotangent in COTANGENTS.values():
                ours, theirs = (
                    torch.autograd.grad(f(x, w), x, cotangent(*shape))
                    for f in (compiled, _scaled_exponential)
                )
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
                assert ours[0].stride() == theirs[0].stride()
    assert thunder.cache_misses(compiled) == 1


def test_strides_of_results_for_inputs_in_other_layouts_are_expressions_of_sizes(monkeypatch):
    of_each_call, of_layouts = [], []
    strides, output_layouts = symbolic_regions._OtherLayouts.strides, symbolic_regions.output_layouts
    monkeypatch.setattr(
        symbolic_regions._OtherLayouts, "strides", lambda *args: of_each_call.append(args) or strides(*args)
    )
    monkeypatch.setattr(
        symbolic_regions, "output_layouts", lambda *args: of_layouts.append(args) or output_layouts(*args)
    )
    compiled = thunder.jit(_scaled_exponential, cache="symbolic values")
    numbers = []
    for shape in ((3, 5), (4, 7), (6, 2), (9, 33)):
        x, w = torch.randn(shape, requires_grad=True), torch.randn(shape[1])
        for name in (n for n in COTANGENTS if n != "transposed"):  # whose results need the order of strides
            ours, theirs = (
                torch.autograd.grad(f(x, w), x, COTANGENTS[name](*shape))
                for f in (compiled, _scaled_exponential)
            )
            assert ours[0].stride() == theirs[0].stride()
        numbers.append(len(of_layouts))
    assert len(of_each_call) == 0
    assert numbers[0] > 1, "some layouts are not those expected"
    assert len(set(numbers)) == 1, "none is derived for further sizes"


def test_a_region_has_code_for_a_few_layouts_and_torch_runs_the_others(monkeypatch):
    monkeypatch.setattr(symbolic_regions, "_MOST_LAYOUTS", 1)
    compiled = thunder.jit(_scaled_exponential, cache="symbolic values")
    x, w = torch.randn(3, 5, requires_grad=True), torch.randn(5)
    for name, is_told in (("expanded", False), ("transposed", True), ("expanded", False)):
        cotangent = COTANGENTS[name](3, 5)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            ours = torch.autograd.grad(compiled(x, w), x, cotangent)
        assert any("runs in torch's kernels" in str(each.message) for each in told) is is_told
        theirs = torch.autograd.grad(_scaled_exponential(x, w), x, cotangent)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_strides_that_address_nothing_need_no_code(monkeypatch):
    monkeypatch.setattr(symbolic_regions, "_MOST_LAYOUTS", 0)
    compiled = thunder.jit(_scaled_exponential, cache="symbolic values")
    x, w = torch.randn(1, 5, requires_grad=True), torch.randn(5)
    cotangent = torch.linspace(0, 1, 5).as_strided((1, 5), (77, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        ours = torch.autograd.grad(compiled(x, w), x, cotangent)
    torch.testing.assert_close(ours, torch.autograd.grad(_scaled_exponential(x, w), x, cotangent))


def test_a_program_that_is_compiled_for_an_empty_batch_runs_in_torchs_kernels():
    compiled = thunder.jit(_scaled_exponential, cache="symbolic values")
    for rows, is_fused in ((0, False), (3, True)):
        x, w = torch.randn(rows, 4), torch.randn(4)
        torch.testing.assert_close(compiled(x, w), _scaled_exponential(x, w))
        assert bool(_fused(compiled)) is is_fused
    assert thunder.cache_misses(compiled) == 2


def test_sizes_that_depend_on_data_are_inputs_of_regions():
    def program(x, w):
        n = (x > 0).sum().item()
        first = x[:n]
        return (torch.arange(n) * first.cos() * w).sum() + (first * 2 + 1).tanh().sum()

    compiled = thunder.jit(program, cache="symbolic values")
    for count in (5, 3, 8, 2):
        data = torch.where(torch.arange(12) < count, torch.linspace(0.2, 1, 12), -1.0)
        ours, theirs = (
            [data.clone().requires_grad_(), torch.tensor(1.5, requires_grad=True)] for _ in range(2)
        )
        result, expected = compiled(*ours), program(*theirs)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(
            torch.autograd.grad(result, ours), torch.autograd.grad(expected, theirs), rtol=1e-5, atol=1e-5
        )
    assert thunder.cache_misses(compiled) <= 2  # TorchInductor may ask which of two sizes is larger
    assert "InductorFusion" in str(thunder.last_backward_traces(compiled)[-1])


def test_copies_beside_moved_elements_have_eagers_strides():
    def program(x):
        return x.clone(), x.roll(1, 0), torch.zeros_like(x)

    compiled = thunder.jit(program, executors=["inductor"], cache="symbolic values")
    for shape in ((4, 3), (5, 6)):
        for x in (torch.randn(shape).t(), torch.randn(1, *shape).transpose(0, 2)):
            for actual, expected in zip(compiled(x), program(x), strict=True):
                assert actual.stride() == expected.stride()
                assert torch.equal(actual, expected)


def test_the_symbols_of_a_region_end_with_it() -> None:
    def symbols() -> int:
        gc.collect()
        return sum(type(x) is ShapeEnv for x in gc.get_objects())

    before = symbols()
    compiled = thunder.jit(_softmax_of_sum, cache="symbolic values", executors=["inductor", "torch"])
    for rows in (3, 5):
        compiled(torch.randn(rows, 4), torch.randn(4))
    del compiled
    assert symbols() <= before
