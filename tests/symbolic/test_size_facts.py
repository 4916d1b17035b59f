"""Facts about sizes: what was asked is checked, what follows is not asked again, no answer is wrong."""

import math
import random

import pytest

from sweeping import one_in
from thunder.base.errors import UnsupportedProgram
from thunder.base.integer_polynomials import Polynomial
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import new_number, new_size


def _sizes(*hints):
    facts = SizeFacts()
    return facts, *(new_size(facts, hint, f"size {i}") for i, hint in enumerate(hints))


def _texts(facts):
    return [fact.text(facts.names.__getitem__) for fact in facts.checked()]


def test_a_comparison_is_a_fact_with_the_answer_for_the_traced_call():
    facts, n, m = _sizes(3, 4)
    assert n > 2
    assert n != m
    assert (n * m) % 4 == 0
    assert _texts(facts) == ["size0 >= 3", "size0 != size1", "((size0 * size1) % 4) == 0"]


def test_what_follows_from_facts_is_not_asked_again():
    facts, n, m = _sizes(4, 4)
    assert n == m
    assert n * 2 == m + n
    assert n >= 2
    assert m > 0
    assert m != 1
    assert not n < 0
    assert _texts(facts) == ["size0 == size1", "size0 >= 2"]


def test_the_bounds_of_a_size_are_those_of_an_equal_one():
    facts, n, m = _sizes(5, 5)
    assert m >= 3
    assert m <= 9
    assert n == m
    assert n >= 3
    assert n <= 9
    assert n < 11
    assert n + 1 != 3
    assert _texts(facts) == ["size1 >= 3", "size1 <= 9", "size0 == size1"]


def test_an_upper_bound_answers_weaker_questions():
    facts, n, m = _sizes(3, 3)
    assert n <= 9
    assert n * 2 <= 7
    assert n <= 3
    assert n < 8
    assert not n > 4
    assert n + m >= 5
    assert n + m != 5
    assert n + m != 4
    assert _texts(facts) == ["size0 <= 9", "2 * size0 <= 7", "size0 + size1 >= 5", "size0 + size1 != 5"]


def test_questions_that_are_forgotten_are_asked_again():
    facts, n, m = _sizes(5, 5)
    s = new_number(facts, 1.5, "s")
    with facts.supposed():
        assert n >= 3
        assert n != m + 1
        assert s > 0.5
        assert s < math.inf
        assert n == m
        assert int(m) == 5
        assert float(s) == 1.5
    assert _texts(facts) == []
    assert facts.values() == {"size 0": None, "size 1": None, "s": None}
    assert n >= 2
    assert s > 0.25
    assert n == m
    assert _texts(facts) == ["size0 >= 2", "float2 > 0.25", "size0 == size1"]


def test_a_bound_of_a_float_implies_weaker_ones_only():
    facts = SizeFacts()
    s, t = new_number(facts, 1.5, "s"), new_number(facts, 1.5, "t")
    assert s > 1
    assert s > 0.5
    assert s != 1
    assert s >= 1.0
    assert not s < 1
    assert not s <= 1
    assert t >= 1
    assert t > 1
    assert s <= 2
    assert s < 2
    assert s != 2
    assert s < 3
    assert not s >= 2.5
    assert _texts(facts) == ["float0 > 1", "float1 > 1", "float0 < 2"]
    assert t != 0.5
    assert t != 1.75
    assert _texts(facts) == ["float0 > 1", "float1 > 1", "float0 < 2", "float1 != 1.75"]


def test_a_bound_says_nothing_of_another_float_and_does_not_exclude_itself():
    facts = SizeFacts()
    s, t = new_number(facts, 1.5, "s"), new_number(facts, 1.5, "t")
    assert s >= 1
    assert t > 0.5
    assert s != 1
    assert _texts(facts) == ["float0 >= 1", "float1 > 0.5", "float0 != 1"]


def test_a_float_that_is_fixed_answers_all_questions():
    facts = SizeFacts()
    s, n = new_number(facts, 1.5, "s"), new_size(facts, 4, "n")
    assert s < 2
    assert float(s) == 1.5
    assert s > 1
    assert s * 2 == 3.0
    assert s * n > 1
    assert facts.values() == {"s": 1.5, "n": None}
    assert _texts(facts) == ["float0 == 1.5", "float0 * size1 > 1"]
    facts.complete()
    assert s > 0.5
    with pytest.raises(UnsupportedProgram, match=r"after the program was compiled: float0 \* size1 > 2"):
        s * n > 2  # noqa: B015


def test_the_opposite_of_a_fact_is_no_other_fact():
    facts, n, m = _sizes(4, 4)
    assert n + m >= 5
    assert not n + m < 5
    assert not n + m <= 4
    assert n * 2 != m * 3
    assert m * 3 != n * 2
    assert n % 3 == 1
    assert 3 * (n // 3) == n - 1
    assert _texts(facts) == ["size0 + size1 >= 5", "2 * size0 != 3 * size1", "(size0 % 3) == 1"]


def test_a_size_that_is_not_its_bound_is_beyond_it():
    facts, n, m = _sizes(4, 4)
    assert n != 0
    assert n >= 1
    assert n != 1
    assert n > 1
    assert m != 2
    assert m != 0
    assert m >= 1
    assert _texts(facts) == ["size0 != 0", "size0 != 1", "size1 != 2", "size1 != 0"]


def test_a_number_fixes_a_size_and_the_other_facts_about_it_are_implied():
    facts, n = _sizes(5)
    assert n > 2
    assert int(n) == 5
    assert [0] * n == [0] * 5
    assert {n: 1} == {5: 1}
    assert _texts(facts) == ["size0 == 5"]
    assert float(n) == 5.0


def test_a_symbol_is_a_key_of_a_program_alone():
    facts, n = _sizes(5)
    for key in (n, n + 1, n * 0.5, (n, 1)):
        with pytest.raises(UnsupportedProgram, match="used as a key by code that compiles the program"):
            hash(key)
    assert not facts.facts
    assert int(n) == 5
    assert {n, n + 1} == {5, 6}


def test_a_question_after_the_compile_is_refused_unless_the_facts_answer_it():
    facts, n, m = _sizes(5, 6)
    assert n > 2
    facts.complete()
    assert n > 1
    with pytest.raises(UnsupportedProgram, match=r"after the program was compiled: size0 - 4 >= 0"):
        n > 3  # noqa: B015
    with pytest.raises(UnsupportedProgram, match=r"after the program was compiled"):
        int(m)


@pytest.mark.parametrize("seed", one_in(20, range(400)))
def test_answers_are_right_for_all_sizes_for_which_the_facts_hold(seed):
    """The judge is Python, which compares for other sizes of which the checked facts hold."""
    rng = random.Random(seed)
    facts, *_ = _sizes(*(rng.randint(0, 5) for _ in range(3)))
    asked = []
    for _ in range(12):
        terms = [
            (rng.randint(-2, 2), rng.sample(range(3), rng.choice([1, 1, 2])))
            for _ in range(rng.randint(1, 3))
        ]
        polynomial = Polynomial.of(rng.randint(-6, 6))
        for factor, variables in terms:
            product = Polynomial.of(factor)
            for v in variables:
                product = product * Polynomial.variable(v)
            polynomial = polynomial + product
        if rng.random() < 0.3:
            polynomial = polynomial.divided(Polynomial.of(rng.randint(2, 4)), rng.choice(["//", "%"]))
        relation = rng.choice(["==", "!=", ">="])
        asked.append((polynomial, relation, facts.ask(polynomial, relation)))
    for a in range(7):
        for b in range(7):
            for c in range(7):
                values = (a, b, c)
                if all(fact.holds(values.__getitem__) for fact in facts.checked()):
                    for polynomial, relation, answer in asked:
                        value = polynomial.value(values.__getitem__)
                        expected = {"==": value == 0, "!=": value != 0, ">=": value >= 0}[relation]
                        assert expected == answer
