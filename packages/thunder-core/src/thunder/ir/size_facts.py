"""The facts about sizes of a program that is compiled for many shapes, known and asked.

Note [Symbolic sizes]
Under ``cache="symbolic values"`` the sizes of a call's tensors are variables, each with its value in the call
that is traced. A comparison is answered for that call. If its answer does not follow from what is known, it
becomes a fact, which the prologue checks:

    def f(x):                          prologue: i0, i1 = x.shape
        if x.shape[0] > 2:               →       if not i0 >= 3: return None
            return x.reshape(-1)       computation: reshape(x, (i0 * i1,))

A part of thunder, or of a package, that needs a number takes it with ``int``. Then the size is a constant of
the entry: the fact is an equality.

Note [Computed sizes]
A size that depends on data is a variable too, whose value the computation finds (``u0``). A fact about it is
checked in the computation, right after the call that finds the last of the sizes in it:

    i = x.nonzero()                    (t1, u0) = nonzero_with_size(x, …)     # t1: "cpu i64[u0, 1]"
    if i.shape[0] > 2: …          →    check_decision(u0, 3, question=">=", answer=True)

Where the check fails, the call leaves the computation as after a decision with another answer. What runs
before the check may rely only on what is checked earlier. So nothing about sizes that are known earlier
follows from a fact about one that is known later: an equality replaces the last computed size in it or
nothing, and the answers about that size are not handed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from thunder.base.errors import UnsupportedProgram
from thunder.base.float_expressions import (
    NEGATED,
    FloatExpression,
    FloatVariable,
    Operand,
    compare,
    key_of,
    variables_of,
)
from thunder.base.integer_polynomials import Interval, Polynomial
from thunder.ir.size_relations import FloatFact, Relation, SizeFact, implies, implies_float, relates

__all__ = ["FloatFact", "Relation", "SizeFact", "SizeFacts"]

_Formula = TypeVar("_Formula", bound=Polynomial | FloatExpression)
_SMALL: Final = 2**31
_OPPOSITE: Final = {"==": "!=", "!=": "=="}


class _Supposed(Exception):
    """The end of questions that are forgotten."""


class SizeFacts:
    """The sizes of one compile, and the facts about them.

    Args:
        locate: returns the place in the user's program that is traced now, for messages.
    """

    def __init__(self, locate: Callable[[], str] | None = None) -> None:
        self.locate: Callable[[], str] = locate or (lambda: "")
        self.names: list[str] = []
        #: the values of the variables in the call that is traced
        self.hints: list[Any] = []
        self.sources: list[str] = []
        #: the sizes of inputs as objects of the trace, by their numbers
        self.symbols: list[Any] = []
        self.facts: list[SizeFact | FloatFact] = []
        self._answers: dict[tuple[Polynomial, Relation], bool] = {}
        self._comparisons: dict[tuple[str, str, str], bool] = {}
        self._bounds: list[Interval] = []
        self._are_sizes: list[bool] = []
        self._equal: dict[int, Polynomial] = {}
        #: the variables that are equal to numbers, and the floats among them
        self._constant: frozenset[int] = frozenset()
        self._constant_floats: frozenset[int] = frozenset()
        #: the variables whose values the computation finds, see Note [Computed sizes]
        self.computed: set[int] = set()
        self._is_complete = self._computed_are_complete = False
        #: the values in the call that was traced, when the compile has ended
        self._traced: list[Any] = []
        self._may_fix = True
        #: the variables about which a compile after the program's may ask
        self._later: frozenset[int] = frozenset()

    def add(self, hint: float, source: str, low: int | None = 0, *, computed: bool = False) -> int:
        """Return the number of a new variable: a size, which is not negative, or a float."""
        number = len(self.hints)
        kind = "found" if computed else "float" if isinstance(hint, float) else "size"
        # until the values of the program are named: a name that no other proxy takes
        self.names.append(f"{kind}{number}")
        if computed:
            self.computed.add(number)
        self.hints.append(hint)
        self.sources.append(source)
        self._bounds.append(Interval(low, None))
        self._are_sizes.append(low is not None)
        return number

    def leaf(self, variable: int) -> Polynomial | FloatVariable:
        """Return a variable as a formula."""
        is_float = isinstance(self.hints[variable], float)
        return FloatVariable(variable) if is_float else Polynomial.variable(variable)

    def is_size(self, variable: int) -> bool:
        """Return whether a variable is a size, and no number without a bound."""
        return self._are_sizes[variable]

    def bound(self, variable: int, low: int, high: int | None, origin: str) -> None:
        """Note bounds of a variable, which it keeps in the call that is traced, as facts."""
        size = Polynomial.variable(variable)
        polynomials = [size - Polynomial.of(low)] + ([] if high is None else [Polynomial.of(high) - size])
        for polynomial in polynomials:
            if self._implied(self._reduced(polynomial), ">=") is None:
                self._note(self._reduced(polynomial), ">=", True, origin)

    def values(self, *, computed: bool = False) -> dict[str, float | None]:
        """Return the values of the variables, by their sources, that the facts determine, else None.

        They are those of the sizes of inputs, or of the computed ones.
        """
        return {
            source: self.known(self.leaf(v))
            for v, source in enumerate(self.sources)
            if (v in self.computed) is computed
        }

    def all_values(self) -> dict[str, float | None]:
        """Return the values of all variables, as :meth:`values` does of some."""
        return {**self.values(), **self.values(computed=True)}

    def fixed_by(self, variable: int) -> SizeFact | FloatFact | None:
        """Return the fact after which the value of a variable was determined, or None if it is free."""
        size = Polynomial.variable(variable)
        if self.known(size) is None:
            return None
        replayed = SizeFacts()
        for v, (hint, source) in enumerate(zip(self.hints, self.sources, strict=True)):
            replayed.add(hint, source, computed=v in self.computed)
        for fact in self.facts:
            if isinstance(fact, FloatFact):  # from which no value is derived
                continue
            replayed.state(fact)
            if replayed.known(size) is not None:
                return fact
        raise AssertionError("a variable is determined by the facts")

    def hint(self, formula: Polynomial | FloatExpression) -> Any:
        """Return the value in the call that is traced; what depends on it needs a fact."""
        return formula.value(self.hints.__getitem__)

    def text(self, polynomial: Polynomial) -> str:
        """Return the expression of Python."""
        return polynomial.text(self.names.__getitem__)

    def known(self, formula: Polynomial | FloatExpression) -> Any:
        """Return the value that the facts determine, or None."""
        reduced = self._reduced(formula)
        if isinstance(reduced, Polynomial):
            return reduced.constant
        return reduced.value(self.hints.__getitem__) if self._are_constant(reduced.variables) else None

    def fix(self, formula: Polynomial | FloatExpression) -> Any:
        """Return the value, which the entry is compiled for from now on.

        Raises UnsupportedProgram within :meth:`without_fixing`.
        """
        value = self.hint(formula)
        if not self._may_fix and self.known(formula) is None:
            raise UnsupportedProgram("a size would be fixed")
        if isinstance(formula, Polynomial):
            self.ask(formula - Polynomial.of(value), "==")
        elif isinstance(formula, FloatVariable):
            if not self._are_constant(formula.variables):
                self._note_float(formula, "==", value)
                self._constant_floats |= formula.variables
        else:
            for variable in sorted(formula.variables):
                self.fix(self.leaf(variable))
        return value

    def ask(self, polynomial: Polynomial, relation: Relation) -> bool:
        """Return whether a relation holds in the call that is traced, a fact unless others imply it.

        Raises UnsupportedProgram for a question after the compile that the facts do not answer.
        """
        polynomial = self._reduced(polynomial).in_remainders()
        answer = self._implied(polynomial, relation)
        if answer is not None:
            return answer
        if self._are_complete(polynomial.variables):
            raise UnsupportedProgram(
                f"a size is asked for after the program was compiled: {self.text(polynomial)} {relation} 0",
                hint='Use cache="constant values" for this program.',
            )
        answer = relates(self.hint(polynomial), relation)
        self._note(polynomial, relation, answer, self.locate())
        return answer

    def fits_in_64_bits(self, polynomial: Polynomial) -> bool:
        """Return whether 64 bits do for a polynomial in all calls, since its numbers are below 2**31.

        Sizes and what the computation finds are taken to be; that numbers of the arguments are is a fact.
        """
        numbers = [v for v in polynomial.variables - self.computed if not self.is_size(v)]
        largest = polynomial.magnitude(_SMALL)
        if numbers and (largest is None or largest >= 2**63):
            return False
        bounds = [Polynomial.variable(v) for v in numbers]
        bounds = [Polynomial.of(_SMALL) + p for v in bounds for p in (v, -v)]
        if self._are_complete(polynomial.variables):
            return all(self._implied(self._reduced(bound), ">=") for bound in bounds)
        return all(self.ask(bound, ">=") for bound in bounds)

    def compare(self, left: Operand, relation: str, right: Operand) -> bool:
        """Return the answer to a comparison of numbers, one of which is a float, as :meth:`ask` does."""
        left, right = (x if isinstance(x, int | float) else self._reduced(x) for x in (left, right))
        hints = self.hints.__getitem__
        answer = compare(left, relation, right, hints)
        if self._are_constant(variables_of(left) | variables_of(right)):
            return answer
        key = key_of(left), relation, key_of(right)
        if key in self._comparisons:
            return self._comparisons[key]
        stated = relation if answer else NEGATED[relation]
        if self._is_float_implied(FloatFact(left, stated, right)):
            return answer
        if not compare(left, stated, right, hints):  # nan, of which a relation and its negation are false
            for variable in sorted(variables_of(left) | variables_of(right)):
                self.fix(self.leaf(variable))
            return answer
        self._note_float(left, stated, right)
        self._comparisons[key] = answer
        self._comparisons[key[0], NEGATED[relation], key[2]] = not answer
        return answer

    def _is_float_implied(self, fact: FloatFact) -> bool:
        """Return whether a bound of a float implies a comparison."""
        return any(isinstance(other, FloatFact) and implies_float(other, fact) for other in self.facts)

    def _is_float_checked(self, fact: FloatFact) -> bool:
        """Return whether neither equalities nor another bound imply a comparison of floats."""
        if fact.fixes_float:
            return True
        return not (self._are_constant(fact.variables) or self._is_float_implied(fact))

    def _note_float(self, left: Operand, relation: str, right: Operand) -> None:
        """Note a comparison of floats as a fact; raise UnsupportedProgram after the compile."""
        fact = FloatFact(left, relation, right, self.locate())
        if self._are_complete(fact.variables):
            raise UnsupportedProgram(
                "a number is asked for after the program was compiled: " + fact.text(self.names.__getitem__),
                hint='Use cache="constant values" for this program.',
            )
        self.facts.append(fact)

    @contextmanager
    def supposed(self) -> Iterator[None]:
        """Answer the questions within the context for the call that is traced, and forget them."""
        with suppress(_Supposed), self.attempt():
            yield
            raise _Supposed

    @contextmanager
    def without_fixing(self) -> Iterator[None]:
        """Within the context, code that needs the value of a size raises UnsupportedProgram."""
        might, self._may_fix = self._may_fix, False
        try:
            yield
        finally:
            self._may_fix = might

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Drop the facts that are noted within the context if that raises an error."""
        noted = len(self.facts)
        known = dict(self._answers), list(self._bounds), dict(self._equal), dict(self._comparisons)
        constant, floats = self._constant, self._constant_floats
        try:
            yield
        except BaseException:
            del self.facts[noted:]
            self._answers, self._bounds, self._equal, self._comparisons = known
            self._constant, self._constant_floats = constant, floats
            raise

    @contextmanager
    def later(self, values: Mapping[int, Any]) -> Iterator[list[SizeFact | FloatFact]]:
        """Within the context, which follows the compile, answer questions for a call with these values.

        The list that is yielded has, at the end, the facts on which the answers depend.
        """
        hints, answered, start = self.hints, self._later, len(self.facts)
        self.hints = [values.get(v, hint) for v, hint in enumerate(hints)]
        self._later = frozenset(values)
        noted: list[SizeFact | FloatFact] = []
        try:
            with self.supposed():
                yield noted
                noted += self.facts[start:]
        finally:
            self.hints, self._later = hints, answered

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within the context, in which the compile is done once more, answer as for the call of the first.

        What it asks was asked before: for each call that the facts admit the answers are the same.
        """
        hints, answered = self.hints, self._later
        self.hints, self._later = self._traced, frozenset(range(len(hints)))
        try:
            with self.supposed():
                yield
        finally:
            self.hints, self._later = hints, answered

    def complete(self) -> None:
        """End the compile: from now on only questions are answered that the facts answer."""
        self._is_complete, self._traced = True, self.hints

    def complete_computed(self) -> None:
        """Answer, from now on, only those questions about computed sizes that the facts answer."""
        self._computed_are_complete = True

    @property
    def has_unchecked(self) -> bool:
        """Whether there are computed sizes about which no facts are checked yet."""
        return bool(self.computed) and not self._computed_are_complete

    def _are_complete(self, variables: frozenset[int]) -> bool:
        """Return whether no more facts about these variables can be checked."""
        if variables <= self._later:
            return False
        return self._is_complete or (self._computed_are_complete and not self.computed.isdisjoint(variables))

    def checked(self) -> list[SizeFact | FloatFact]:
        """Return the facts that the prologue checks: those that no other one implies plainly."""
        facts = [f for f in self.facts if self.computed.isdisjoint(f.variables)]
        kept: list[SizeFact | FloatFact] = []
        about_integers = [f for f in facts if isinstance(f, SizeFact)]
        for fact in facts:
            if isinstance(fact, FloatFact):
                if self._is_float_checked(fact):
                    kept.append(fact)
                continue
            others = [f for f in about_integers if f is not fact]
            if fact.relation != "==" and self._reduced(fact.polynomial).constant is not None:
                continue  # the equalities imply it
            if not any(implies(other, fact) for other in others):
                kept.append(fact)
        return kept

    def checked_inside(self) -> dict[int, list[SizeFact | FloatFact]]:
        """Return the facts about computed sizes, by the size after which the computation checks them.

        It is the last of those that a fact is about. Facts about quotients and floats come last, in their
        order: earlier ones say that a divisor is not 0.
        """
        facts = [f for f in self.facts if not self.computed.isdisjoint(f.variables)]
        plain = [f for f in facts if isinstance(f, SizeFact) and f.polynomial.is_without_quotients]
        kept = [f for f in plain if not any(implies(other, f) for other in plain if other is not f)]
        found: dict[int, list[SizeFact | FloatFact]] = {}
        for fact in (*kept, *(f for f in facts if f not in plain)):
            found.setdefault(max(self.computed & fact.variables), []).append(fact)
        return found

    def _are_constant(self, variables: frozenset[int]) -> bool:
        """Return whether the facts determine the values of variables."""
        return variables <= self._constant | self._constant_floats

    def state(self, fact: SizeFact | FloatFact) -> None:
        """Note a fact that other facts about the same sizes have."""
        if isinstance(fact, SizeFact):
            self._note(fact.polynomial, fact.relation, True, fact.origin)
            return
        self.facts.append(fact)
        if fact.fixes_float:
            self._constant_floats |= fact.variables

    # -- reasoning -------------------------------------------------------------------------------------------

    def _reduced(self, formula: _Formula) -> _Formula:
        if not self._equal:
            return formula
        if isinstance(formula, Polynomial) and self._constant.issuperset(formula.variables):
            return Polynomial.of(self.hint(formula))  # type: ignore[return-value]
        return formula.substituted(self._equal)  # type: ignore[return-value]

    def _implied(self, polynomial: Polynomial, relation: Relation) -> bool | None:
        """Return the answer that follows from the facts, or None."""
        constant = polynomial.constant
        if constant is not None:
            return relates(constant, relation)
        known = self._answers.get((polynomial, relation))
        if known is None and relation in _OPPOSITE:
            negated = self._answers.get((-polynomial, relation))
            known = negated
        if known is not None:
            return known
        interval = polynomial.interval(self._bounds.__getitem__)
        if relation == ">=":
            if interval.low is not None and interval.low >= 0:
                return True
            return False if interval.high is not None and interval.high < 0 else None
        if (interval.low is not None and interval.low > 0) or (
            interval.high is not None and interval.high < 0
        ):
            return relation == "!="
        return None

    def _note(self, polynomial: Polynomial, relation: Relation, answer: bool, origin: str) -> None:
        """Note the answer to a question as a fact, and what follows from it."""
        if not answer:
            if relation == ">=":  # a < 0 means -a - 1 >= 0
                polynomial, relation = -polynomial - Polynomial.of(1), ">="
            else:
                relation = "!=" if relation == "==" else "=="
        self.facts.append(SizeFact(polynomial, relation, origin))
        if relation == "==":
            self._substitute(polynomial)
        elif relation == ">=":
            self._answers[polynomial, ">="] = True
            self._answers[-polynomial - Polynomial.of(1), ">="] = False
            self._bound(polynomial)
        else:
            for p in (polynomial, -polynomial):
                self._answers[p, "!="], self._answers[p, "=="] = True, False
            self._exclude(polynomial)

    def _substitute(self, polynomial: Polynomial) -> None:
        """Note that a polynomial is 0: the last variable that it determines is replaced from now on."""
        self._answers[polynomial, "=="], self._answers[polynomial, "!="] = True, False
        solutions = dict(polynomial.solved())
        computed = self.computed & polynomial.variables
        variable = max(computed or solutions, default=-1)
        if variable not in solutions:
            return
        solution, bound = solutions[variable], self._bounds[variable]
        self._equal = {v: p.substituted({variable: solution}) for v, p in self._equal.items()}
        self._equal[variable] = solution
        self._constant = frozenset(v for v, p in self._equal.items() if p.constant is not None)
        answers, self._answers = self._answers, {}
        if computed:  # what is known of it is checked later than what the solution consists of
            self._answers = {
                key: answer for key, answer in answers.items() if variable not in key[0].variables
            }
            return
        for (p, relation), answer in answers.items():
            self._answers[p.substituted({variable: solution}), relation] = answer
        if bound.low is not None:
            self._bound(solution - Polynomial.of(bound.low))
        if bound.high is not None:
            self._bound(Polynomial.of(bound.high) - solution)

    def _exclude(self, polynomial: Polynomial) -> None:
        """Note that a variable is not its bound, where a polynomial that is not 0 says so."""
        for variable, solution in polynomial.solved():
            number, bound = solution.constant, self._bounds[variable]
            if number is not None and number == bound.low:
                self._bounds[variable] = Interval(number + 1, bound.high)
            elif number is not None and number == bound.high:
                self._bounds[variable] = Interval(bound.low, number - 1)

    def _bound(self, polynomial: Polynomial) -> None:
        """Note that ``c * v + d`` is not negative, where the polynomial has that form."""
        constant = polynomial.terms.get((), 0)
        others = [(m, c) for m, c in polynomial.terms.items() if m]
        if len(others) != 1 or len(others[0][0]) != 1 or others[0][0][0].operation is not None:
            return
        ((atom,), coefficient) = others[0]
        old = self._bounds[atom.variable]
        if coefficient > 0:
            low = -(constant // coefficient)
            self._bounds[atom.variable] = Interval(low if old.low is None else max(old.low, low), old.high)
        else:
            high = constant // -coefficient
            self._bounds[atom.variable] = Interval(old.low, high if old.high is None else min(old.high, high))
