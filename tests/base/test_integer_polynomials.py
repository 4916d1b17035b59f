"""Polynomials of sizes compute what Python computes, and their text does."""

import math
import random

import pytest

from sweeping import one_in
from thunder.base.integer_operations import INTEGER_OPERATIONS
from thunder.base.integer_polynomials import Interval, Polynomial

NAMES = "abc"


def _random_expression(rng, depth):
    """Return a polynomial, and a function that computes it from values; None where it would divide by 0."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.4:
            number = rng.randint(-4, 6)
            return Polynomial.of(number), lambda values: number
        variable = rng.randrange(3)
        return Polynomial.variable(variable), lambda values: values[variable]
    p, f = _random_expression(rng, depth - 1)
    q, g = _random_expression(rng, depth - 1)
    match rng.randrange(5):
        case 0:
            return p + q, lambda values: f(values) + g(values)
        case 1:
            return p - q, lambda values: f(values) - g(values)
        case 2 | 3:
            return p * q, lambda values: f(values) * g(values)
    if rng.random() < 0.5:
        return _random_operation(rng, (p, q), (f, g))
    if q.constant == 0:
        return p, f
    sign = rng.choice(["//", "%"])
    if sign == "//":
        return p.divided(q, "//"), lambda values: f(values) // g(values)
    return p.divided(q, "%"), lambda values: f(values) % g(values)


def _random_operation(rng, operands, functions):
    """Return a random operation on polynomials, and the function that computes it from values."""
    name = rng.choice([name for name in INTEGER_OPERATIONS if name not in ("//", "%", "**", "perm")])
    compute = INTEGER_OPERATIONS[name].compute
    count = INTEGER_OPERATIONS[name].text.count("{}")
    polynomial = Polynomial.applied(name, *operands[:count])
    return polynomial, lambda values: compute(*(f(values) for f in functions[:count]))


@pytest.mark.parametrize("seed", one_in(20, range(2000)))
def test_a_polynomial_has_the_value_of_the_expression_and_lies_in_its_interval(seed):
    rng = random.Random(seed)
    polynomial, compute = _random_expression(rng, 4)
    interval = polynomial.interval(lambda variable: Interval(0, 9))
    text = polynomial.text(NAMES.__getitem__)
    for _ in range(10):
        values = [rng.randint(0, 9) for _ in NAMES]
        try:
            expected = compute(values)
        except (ArithmeticError, ValueError):  # an operation that is not defined for these values
            continue
        assert polynomial.value(values.__getitem__) == expected
        assert polynomial.in_remainders().value(values.__getitem__) == expected
        assert eval(text, {"math": math, **dict(zip(NAMES, values, strict=True))}) == expected
        assert interval.low is None or interval.low <= expected
        assert interval.high is None or expected <= interval.high
        replaced = polynomial.substituted({0: Polynomial.variable(1) + Polynomial.of(values[0] - values[1])})
        assert replaced.value(values.__getitem__) == expected


def test_equal_expressions_are_one_polynomial():
    n, m = Polynomial.variable(0), Polynomial.variable(1)
    four = Polynomial.of(4)
    assert n * four == four * n
    assert (n + m) * n - n * n == m * n
    assert (n * m * four).divided(n * four, "//") == m
    assert (n * m + n * four).divided(n, "%") == Polynomial.of(0)


@pytest.mark.parametrize("divisor", [2, 3, -4])
@pytest.mark.parametrize("factor", [1, -1, 5])
def test_a_number_without_its_quotient_is_a_remainder(divisor, factor):
    n, m = Polynomial.variable(0), Polynomial.variable(1)
    d, k, one = Polynomial.of(divisor), Polynomial.of(factor), Polynomial.of(1)
    for number in (n, n * m + one, n - m):
        rest = (number - d * number.divided(d, "//")) * k + one
        assert rest.in_remainders() == number.divided(d, "%") * k + one
        other = rest + n.divided(Polynomial.of(7), "//")
        assert other.in_remainders() == other
