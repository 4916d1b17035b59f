"""Floats that are computed from sizes are those of Python, in each bit, for all sizes of the entry."""

import math
import operator
import random

import pytest
import torch
import torch.nn.functional as F

import thunder
from sweeping import one_in
from thunder.base.float_expressions import FUNCTIONS, added
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_floats import SymbolicFloat, of_function
from thunder.ir.symbolic_sizes import SymbolicNumber, new_number, new_size

R = torch.randn
_OPERATIONS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.pow),
    *(operator.floordiv, operator.mod, lambda a, b: divmod(a, b)[1]),
    *(lambda a, b, f=f: _called(f, a, b) for f in (math.hypot, math.fmod, math.atan2, math.copysign)),
)
_OF_MATH = (
    *(math.sqrt, math.log, math.log2, math.log10, math.log1p, math.exp, math.expm1, float),
    *(math.sin, math.cos, math.tanh, math.atan, math.fabs, math.degrees, math.erf),
)
_FUNCTIONS = (*_OF_MATH, abs, operator.neg, lambda x: round(x, 2))
_NUMBERS = (0.5, 2.0, 1.5, 3, 0.1, 4, -1.25, 1e90, 7.0, -0.5, 2, -1, 0, math.inf)
_ENDS = (
    *(math.floor, math.ceil, math.trunc, round, bool, float, abs),
    *(lambda x: math.floor(x) // 2, lambda x: math.ceil(x) * 2 > 3, lambda x: (round(x) + 1) % 3),
    lambda x: x.is_integer() if isinstance(x, float | SymbolicFloat) else x,
    *(lambda x: x > 4.5, lambda x: x <= 3, lambda x: x == 2.5, lambda x: max(x, 2.5), lambda x: x > 1),
    *(lambda x: x != math.inf, lambda x: x < -math.inf, lambda x: x >= math.inf, lambda x: x != x),
    *(lambda x: 0.5 < x <= 3, lambda x: min(x, 1, 0.25), lambda x: _called(added, 0, x, 1.5, x)),
    *(lambda x: math.prod([x, 2.0]), lambda x: round(x, 1)),
)
#: floats of other calls than the one that is traced
_FLOATS = (0.0, -0.0, 0.5, 1.0, 1.5, 2.5, 3.0, -1.25, 4.75, -7.0, 1e90, 1e-300, math.inf, -math.inf, math.nan)
_UNDEFINED = (ArithmeticError, ValueError, TypeError)


def _called(function, *numbers):
    """Return a function of numbers, as the interpreter calls it for symbols."""
    is_rule = function in (*FUNCTIONS, added) and any(isinstance(x, SymbolicNumber) for x in numbers)
    is_rule = is_rule and all(isinstance(x, int | float | SymbolicNumber) for x in numbers)
    return of_function(function, *numbers) if is_rule else function(*numbers)


def _random_float(rng):
    """Return a function of two sizes."""
    steps = []
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.3:
            steps.append((rng.choice(_FUNCTIONS), None, False))
        else:
            operand = rng.choice([*_NUMBERS, "other", "other"])
            steps.append((rng.choice(_OPERATIONS), operand, rng.random() < 0.3))
    finish, place = rng.choice(_ENDS), rng.randrange(2)

    def compute(values):
        x = values[place]
        for operation, number, is_reflected in steps:
            if number is None:
                x = _called(operation, x)
                continue
            other = values[1 - place] if number == "other" else number
            x = operation(other, x) if is_reflected else operation(x, other)
        return _called(finish, x)

    return compute


def _same(a, b):
    """Return whether two results are equal, 0.0 and -0.0 apart."""
    if isinstance(a, float) and isinstance(b, float) and a == b:
        return math.copysign(1, a) == math.copysign(1, b)
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _result(compute, values):
    """Return what a function computes, or the type of the exception that it raises."""
    try:
        return compute(values)
    except _UNDEFINED as error:
        return type(error)


@pytest.mark.parametrize("seed", one_in(10, range(2000)))
def test_a_float_of_sizes_has_the_value_of_python_wherever_the_facts_hold(seed):
    rng = random.Random(seed)
    compute = _random_float(rng)
    facts = SizeFacts()
    low = rng.choice([0, 0, None])
    hints = [rng.randint(0 if low == 0 else -4, 6), rng.randint(0 if low == 0 else -4, 6)]
    sizes = [new_size(facts, hint, f"size {i}", low) for i, hint in enumerate(hints)]
    here = tuple(facts.hints)
    result = _result(compute, sizes)
    assert all(fact.holds(here.__getitem__) for fact in facts.facts), "the facts hold of the traced call"
    values = range(0 if low == 0 else -9, 9)
    _assert_pythons(compute, facts, result, values, values)


def _assert_pythons(compute, facts, result, first, second):
    """Compare a result with Python's for all values for which the facts hold."""
    for a in first:
        for b in second:
            if not all(fact.holds((a, b).__getitem__) for fact in facts.checked()):
                continue
            expected, found = _result(compute, (a, b)), result
            if isinstance(result, SymbolicNumber):
                values = dict(zip(facts.names, (a, b), strict=True))
                found = result.for_values(values)
                assert _same(eval(result.name, {"math": math, **values}), found)
            assert _same(found, expected), (a, b, found, expected)


@pytest.mark.parametrize("seed", one_in(10, range(3000)))
def test_a_number_of_a_float_argument_has_the_value_of_python_wherever_the_facts_hold(seed):
    rng = random.Random(seed)
    compute = _random_float(rng)
    facts = SizeFacts()
    second = rng.choice(["float", "size", "integer"])
    numbers = [new_number(facts, rng.choice([0.5, 1.5, -1.25, 3.0, 7.25]), "s")]
    if second == "float":
        numbers.append(new_number(facts, rng.choice([0.25, 2.0, -3.5]), "t"))
    else:
        numbers.append(new_size(facts, rng.randint(0, 5), "n", 0 if second == "size" else None))
    here = tuple(facts.hints)
    result = _result(compute, numbers)
    assert all(fact.holds(here.__getitem__) for fact in facts.facts), "the facts hold of the traced call"
    others = {"float": _FLOATS, "size": range(7), "integer": (*range(-5, 6), 2**60, -(2**1100))}[second]
    _assert_pythons(compute, facts, result, (*_FLOATS, here[0]), others)


def test_half_of_a_size_rounds_without_fixing_it():
    facts = SizeFacts()
    n = new_size(facts, 5, "size")
    assert math.floor(n * 1.5).text == "size0 + (size0 // 2)"
    assert math.ceil(n / 2).for_values({"size0": 7}) == 4
    assert math.floor(n / 3).text == "(size0 // 3)"
    assert [fact.text(facts.names.__getitem__) for fact in facts.checked()] == ["size0 <= 1099511627776"]


#: name → a rounding, and its text
ROUNDINGS = {
    "half of a half": (lambda n: math.floor((n // 2) * 1.0 * 0.5), "((size0 // 2) // 2)"),
    "remainder": (lambda n: math.floor((n % 3) * 0.5), "((size0 % 3) // 2)"),
    "factor": (lambda n: math.floor(1.7 * n), "math.floor(1.7 * size0)"),
    "ceiling": (lambda n: math.ceil(n * 0.3) + 1, "math.ceil(size0 * 0.3) + 1"),
    "towards 0": (lambda n: math.trunc(n * -0.3) * n, "size0 * math.trunc(size0 * (-0.3))"),
    "nearest": (lambda n: round(n / 3), "round(size0 / 3)"),
    "root": (lambda n: math.floor(_called(math.sqrt, n)), "math.floor(math.sqrt(size0))"),
    "of a rounding": (lambda n: round(math.floor(n * 0.7) / 3), "round(math.floor(size0 * 0.7) / 3)"),
}


@pytest.mark.parametrize("name", ROUNDINGS)
def test_the_rounding_of_a_float_is_an_expression(name):
    rounding, text = ROUNDINGS[name]
    facts = SizeFacts()
    found = rounding(new_size(facts, 7, "n"))
    assert found.text == text
    assert facts.values() == {"n": None}
    for value in (*range(2000), 10**6, 2**30):
        assert found.for_values({"size0": value}) == rounding(value)
        assert eval(found.text, {"math": math, "size0": value}) == rounding(value)


def test_a_number_that_is_not_finite_has_no_text_in_a_fact():
    facts = SizeFacts()
    n = new_size(facts, 5, "size")
    assert n < math.inf
    assert n != math.nan
    assert not facts.facts
    assert isinstance(n * 1e308, SymbolicFloat)
    assert n * 1e308 == math.inf
    texts = [fact.text(facts.names.__getitem__) for fact in facts.checked()]
    assert texts == ["size0 * 1e+308 > 1.7976931348623157e+308"]


def _attention(q, k, v):
    scale = q.shape[-1] ** -0.5
    return ((q @ k.transpose(-1, -2)) * scale).softmax(-1) @ v, scale


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scale, ctx.shape = 1 / math.sqrt(x.shape[-1]), x.shape
        return x.sum(-1) * ctx.scale

    @staticmethod
    def backward(ctx, g):
        return g.unsqueeze(-1).expand(ctx.shape) * ctx.scale


#: name → the program, and how many compiles it has for `SHAPES`
PROGRAMS = {
    "attention": (_attention, 1),
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1 / math.sqrt(q.size(-1))), 6),
    "division": (lambda q, k, v: (q / math.sqrt(q.shape[-1]) + k / q.shape[1], 1 / q.shape[2]), 1),
    "logarithm": (lambda q, k, v: q * math.log(k.shape[1] + 1) / math.log2(k.shape[1] + 2), 1),
    "decay": (lambda q, k, v: q * math.exp(-q.shape[1] / 10) + 0.9 ** q.shape[1], 1),
    "base": (lambda q, k, v: q * 10000 ** (-2 / q.shape[-1]), 1),
    "comparison": (lambda q, k, v: q * 2 if q.shape[-1] ** -0.5 > 0.35 else q * 3, 2),
    "half": (lambda q, k, v: q[..., : int(q.shape[-1] / 2)] * 2, 1),
    "ceiling": (lambda q, k, v: q.new_zeros(math.ceil(q.shape[1] / 3), 2), 1),
    "factor": (lambda q, k, v: F.interpolate(q, scale_factor=1.5), 1),
    "text": (lambda q, k, v: (q, f"{q.shape[1] / 2}"), 1),
    "tensor": (lambda q, k, v: q + torch.full((1,), q.shape[-1] ** 0.5), 1),
    "types": (lambda q, k, v: (q, type(q.shape[1] / 2), isinstance(q.shape[1] / 2, float)), 1),
    "float": (lambda q, k, v: q * float(q.shape[0]) + round(q.shape[0] / 2), 1),
    "rounded": (lambda q, k, v: q[..., : round(q.shape[2] / 3)] * round(q.shape[1] ** 0.5, 2), 2),
    "sine": (lambda q, k, v: q * math.sin(q.shape[1]) + math.hypot(q.shape[1], 2.5), 1),
    "clamp": (lambda q, k, v: q.clamp(min=-1 / q.shape[1], max=max(q.shape[1] / 4, 0.5)), 2),
    "dropped": (lambda q, k, v: F.dropout(q, 1 / q.shape[1], training=False), 1),
    "norm": (lambda q, k, v: F.layer_norm(q, q.shape[-1:], eps=1e-3 / q.shape[-1]), 1),
    "function": (lambda q, k, v: _Mean.apply(q), 1),
}
#: the programs that need the value of a size
FIXING = {"sdpa"}
SHAPES = ((2, 3, 4), (3, 5, 8), (4, 6, 9), (2, 3, 4), (5, 11, 12), (3, 4, 7), (3, 3, 16))


def _assert_same(actual, expected):
    if isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            _assert_same(a, e)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected)
    else:
        assert type(actual) is type(expected)
        assert actual == expected


def _leaves(shape):
    return [R(shape, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_floats_of_sizes_computes_what_eager_computes(name):
    fn, most = PROGRAMS[name]
    compiled = thunder.jit(fn, cache="symbolic values", executors=["torch"], recompile_limit=None)
    for shape in SHAPES:
        ours = _leaves(shape)
        eagers = [x.detach().requires_grad_() for x in ours]
        actual, expected = compiled(*ours), fn(*eagers)
        _assert_same(actual, expected)
        first = [y[0] if isinstance(y, tuple) else y for y in (actual, expected)]
        if first[1].requires_grad:
            for y in first:
                y.square().sum().backward()
            _assert_same(tuple(x.grad for x in ours), tuple(x.grad for x in eagers))
    assert thunder.cache_misses(compiled) <= most
    reason = thunder.compile_stats(compiled).last_static_reason
    assert (reason is not None) == (name in FIXING)
    assert reason is None or ("the program needs the value of" in str(reason) and __file__ in str(reason))


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_each_fact_about_a_float_that_is_broken_refuses_the_entry(name):
    fn, _ = PROGRAMS[name]
    compiled = thunder.jit(fn, cache="symbolic values", executors=["torch"], recompile_limit=None)
    for shape in SHAPES[:3]:
        compiled(*_leaves(shape))
    for entry in thunder.compile_stats(compiled).interpreter_cache:
        facts = [fact for fact in entry.guards if fact.sym.name in ("check_sizes", "check_tensor")]
        for shape in ((b, n, m) for b in range(1, 5) for n in range(1, 14) for m in range(1, 18, 2)):
            leaves = _leaves(shape)
            roots = {"args": tuple(leaves), "kwargs": {}}
            failures = [fact for fact in facts if fact.failure(roots) is not None]
            assert (entry.prologue_fn(*leaves) is None) == bool(failures)


def test_an_expression_is_printed_where_it_is_used_and_its_text_runs():
    compiled = thunder.jit(lambda x: x * math.sqrt(x.shape[0]), cache="symbolic values", executors=["torch"])
    compiled(R(3))
    trace = thunder.last_traces(compiled)[-1]
    text = str(trace)
    assert "torch.mul(x, math.sqrt(i0))" in text
    namespace = dict(trace.python_ctx())
    exec(text, namespace)
    x = R(5)
    assert torch.equal(namespace[trace.name](x, 5), x * math.sqrt(5))


def test_a_float_of_an_integer_argument_and_of_a_size():
    def program(x, n):
        return x * (n / x.shape[0]) + n**0.5, n * 0.5

    compiled = thunder.jit(program, cache="automatic", executors=["torch"])
    for rows, n in ((2, 3), (3, 5), (4, 8), (5, 1), (6, 0)):
        x = R(rows)
        _assert_same(compiled(x, n), program(x, n))
    assert thunder.cache_misses(compiled) == 2
    with pytest.raises(OverflowError, match="too large"):
        program(R(2), 10**400)
    with pytest.raises(OverflowError, match="too large"):
        compiled(R(2), 10**400)


_PARTS = (
    *(lambda n: 0.1 * n, lambda n: 1 / n, lambda n: n, lambda n: -n * 1e16, lambda n: n * 1e16),
    *(lambda n: 1e16, lambda n: -1e16, lambda n: 3, lambda n: True, lambda n: n**-0.5, lambda n: 1e-3),
)


@pytest.mark.parametrize("seed", range(12))
def test_a_sum_of_floats_is_rounded_as_pythons(seed: int) -> None:
    rng = random.Random(seed)
    parts = [rng.choice(_PARTS) for _ in range(rng.randint(2, 7))]
    start = rng.choice((0, 0.25, -0.0, 7))

    def program(x):
        n = x.shape[0]
        return x * 2, sum([p(n) for p in parts], start), sum(p(n) for p in parts)

    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"])
    for n in (3, 5, 7, 11):
        assert compiled(R(n))[1:] == program(R(n))[1:]
    assert thunder.cache_misses(compiled) == 1


def test_a_sum_of_floats_is_one_operation() -> None:
    compiled = thunder.jit(lambda x: x * sum([0.1, x.shape[0], 1e16]), cache="symbolic values")
    compiled(R(3))
    assert "sum((0.1, i0, 1e+16,), 0)" in str(thunder.last_traces(compiled)[-1])


def test_a_sum_of_numbers_of_a_tensor_is_rounded_as_pythons() -> None:
    def program(x):
        return sum(e.item() for e in x), sum([x[0].item(), 1e16, x.shape[0], x[1].item(), -1e16], 0.5)

    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"])
    for values in (
        (0.1, 0.2, 0.3, 1e16, -1e16),
        (1e16, 1.0, -1e16, math.inf, 3.0),
        (-0.0, -0.0, 0.0, 0.0, 0.0),
    ):
        x = torch.tensor(values, dtype=torch.float64)
        assert repr(compiled(x)) == repr(program(x))
    assert "compute_number('sum', 0, " in str(thunder.last_traces(compiled)[-1])
    assert thunder.cache_misses(compiled) == 1
