"""Floats that are computed from sizes without an error are those of Python, for all sizes of the entry."""

import math
import operator
import random

import pytest
from tests.sweeping import one_in

from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicInt, new_size
from thunder.ops.exact_ratios import Ratio, ratio_of

_OPERATIONS = (operator.add, operator.sub, operator.mul, operator.truediv)
_NUMBERS = (0.5, 2.0, 1.5, 3, 0.1, 4, -1.25, 1e90, 7.0)


def _random_float(rng, sizes):
    """Return a function of sizes, which computes a float."""
    steps = [(rng.choice(_OPERATIONS), rng.choice(_NUMBERS), rng.random() < 0.2) for _ in range(3)]
    finish = rng.choice([math.floor, math.ceil, math.trunc, lambda x: x > 4.5, lambda x: x <= 3])
    place = rng.randrange(sizes)

    def compute(values, to_float):
        x = to_float(values[place])
        for operation, number, is_reflected in steps:
            x = operation(number, x) if is_reflected else operation(x, number)
        return finish(x)

    return compute


@pytest.mark.parametrize("seed", one_in(20, range(400)))
def test_a_float_of_sizes_has_the_value_of_python_wherever_the_facts_hold(seed):
    rng = random.Random(seed)
    facts = SizeFacts()
    sizes = [new_size(facts, rng.randint(1, 6), f"size {i}") for i in range(2)]
    compute = _random_float(rng, 2)
    result = compute(sizes, ratio_of)
    held = 0
    for a in range(1, 9):
        for b in range(1, 9):
            if all(fact.holds((a, b).__getitem__) for fact in facts.checked()):
                held += 1
                expected = compute((a, b), float)
                found = result.for_values({"i0": a, "i1": b}) if isinstance(result, SymbolicInt) else result
                assert found == expected, (a, b)
    assert held


def test_half_of_a_size_rounds_without_fixing_it():
    facts = SizeFacts()
    n = new_size(facts, 5, "size")
    assert isinstance(ratio_of(n) * 1.5, Ratio)
    assert math.floor(ratio_of(n) * 1.5).text == "i0 + (i0 // 2)"
    assert math.ceil(ratio_of(n) / 2).for_values({"i0": 7}) == 4
    assert not facts.facts


def test_a_product_with_a_long_float_fixes_the_size():
    facts = SizeFacts()
    n = new_size(facts, 5, "size")
    assert ratio_of(n) * 0.1 == 0.5
    assert [fact.text(facts.names.__getitem__) for fact in facts.checked()] == ["i0 == 5"]
