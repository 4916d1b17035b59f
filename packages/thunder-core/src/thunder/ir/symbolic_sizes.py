"""Sizes that may differ from call to call, as the numbers that a program and meta functions compute with.

See Note [Symbolic sizes]. A size is no ``int`` of Python: C code that needs a number asks for it, by
``__index__`` and ``__int__``, and then the size is fixed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

import torch

from thunder.base.float_expressions import FloatExpression, FloatVariable, Operand
from thunder.base.integer_operations import INTEGER_OPERATIONS, result_of
from thunder.base.integer_polynomials import Polynomial
from thunder.ir.number_proxies import SWAPPED, IntegerProxy, overrides
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_floats import SymbolicFloat, compared, divided, float_of
from thunder.ir.symbolic_numbers import SymbolicNumber

__all__ = [
    "SizeTuple",
    "SymbolicFloat",
    "SymbolicInt",
    "SymbolicNumber",
    "are_same",
    "as_lengths",
    "expression",
    "has_symbols",
    "hint_of",
    "new_number",
    "new_size",
    "number_of",
    "of_integers",
    "shape_of",
    "size_text",
    "strides_as_products",
]


class SymbolicInt(SymbolicNumber, IntegerProxy):
    """An integer that sizes determine: one of them, an input or a value of the trace, or an expression.

    ``name`` is the text of the expression, which is a statement's argument in the text of a trace.
    """

    def __init__(self, facts: SizeFacts, polynomial: Polynomial, variable: int | None = None) -> None:
        super().__init__(facts, polynomial, int, variable)
        self.polynomial = polynomial

    @property
    def prefix(self) -> str:  # type: ignore[override]
        """The first letter of its name, which says whether the computation finds it."""
        return "u" if self.variable in self.facts.computed else "i"

    def __call__(self) -> SymbolicInt:
        """Return itself, as the result of ``t.numel()``."""
        return self

    def __index__(self) -> int:
        return int(self.value)

    __int__ = __index__

    def __trunc__(self) -> SymbolicInt:
        return self

    __ceil__ = __floor__ = __trunc__

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self.facts.ask(self.polynomial, "!=")

    __hash__ = SymbolicNumber.__hash__

    def __round__(self, digits: int | None = None) -> Any:
        return self if digits is None or digits >= 0 else round(self.value, digits)

    def __pos__(self) -> SymbolicInt:
        return self

    def __neg__(self) -> Any:
        return expression(self.facts, -self.polynomial)

    def __invert__(self) -> Any:
        return -self - 1

    def bit_length(self) -> Any:
        """Return how many bits it has."""
        return of_integers("bit_length", self)

    def bit_count(self) -> Any:
        """Return how many of its bits are 1."""
        return of_integers("bit_count", self)

    def __abs__(self) -> Any:
        return self if self.facts.ask(self.polynomial, ">=") else -self


def new_size(
    facts: SizeFacts, hint: int, source: str, low: int | None = 0, *, computed: bool = False
) -> SymbolicInt:
    """Return a new size of an input, or a number with another bound, with its value in the call.

    With ``computed`` it is one that the computation finds (Note [Computed sizes]).
    """
    variable = facts.add(hint, source, low, computed=computed)
    symbol = SymbolicInt(facts, Polynomial.variable(variable), variable)
    facts.symbols.append(symbol)
    return symbol


def new_number(facts: SizeFacts, hint: float, source: str) -> SymbolicInt | SymbolicFloat:
    """Return a new integer or float of the arguments, with its value in the call."""
    if isinstance(hint, int):
        return new_size(facts, hint, source, low=None)
    variable = facts.add(hint, source, None)
    symbol = SymbolicFloat(facts, FloatVariable(variable), variable)
    facts.symbols.append(symbol)
    return symbol


def expression(facts: SizeFacts, polynomial: Polynomial) -> Any:
    """Return a number of Python, or the expression that a polynomial is."""
    constant = polynomial.constant
    if constant is not None:
        return constant
    if len(polynomial.terms) == 1 and len(polynomial.variables) == 1:
        symbol = facts.symbols[next(iter(polynomial.variables))]
        if symbol.formula == polynomial:
            return symbol
    return SymbolicInt(facts, polynomial)


SymbolicNumber.integer = staticmethod(expression)


def number_of(facts: SizeFacts, formula: Operand) -> Any:
    """Return the number that a side of a fact is."""
    if isinstance(formula, FloatVariable):
        return facts.symbols[formula.number]
    if isinstance(formula, FloatExpression):
        return SymbolicFloat(facts, formula)
    return expression(facts, formula) if isinstance(formula, Polynomial) else formula


def _polynomial(x: Any) -> Polynomial | None:
    if isinstance(x, SymbolicInt):
        return x.polynomial
    return Polynomial.of(int(x)) if isinstance(x, int) else None


def _by_value(operation: Callable[..., Any], operands: Iterable[Any]) -> Any:
    """Return the result of an operation that is not one of integers: sizes among its operands are fixed."""
    return operation(*(x.value if isinstance(x, SymbolicInt) else x for x in operands))


def _combined(
    operation: Callable[..., Any],
    combine: Callable[[SizeFacts, Polynomial, Polynomial], Any],
    reflected: bool,
) -> Callable[..., Any]:
    """Return the method of an operation on integers."""
    name = operation.__name__.rstrip("_")
    parent = getattr(IntegerProxy, f"__{'r' if reflected else ''}{name}__")
    swapped = f"__{'' if reflected else 'r'}{name}__"

    def compute(self: SymbolicInt, other: Any) -> Any:
        if type(other) is not int and overrides(other, self, swapped):
            return NotImplemented
        p = _polynomial(other)
        if p is None:
            if type(other) is float or isinstance(other, SymbolicFloat):
                return float_of(self.facts, operation, *((other, self) if reflected else (self, other)))
            if isinstance(other, float | complex):
                return _by_value(operation, (other, self) if reflected else (self, other))
            return parent(self, other)
        return combine(self.facts, *((p, self.polynomial) if reflected else (self.polynomial, p)))

    return compute


def of_integers(operation: str, *operands: Any) -> Any:
    """Return the result of an operation of ``INTEGER_OPERATIONS`` on integers, one of which sizes determine.

    Raises the error of Python where it is not defined, which is a fact.
    """
    facts = next(x.facts for x in operands if isinstance(x, SymbolicInt))
    return _operated(operation)(
        facts, *(x.polynomial if isinstance(x, SymbolicInt) else Polynomial.of(int(x)) for x in operands)
    )


def _operated(operation: str) -> Callable[..., Any]:
    """Return the function that applies an operation to integers, if the facts say that it is defined."""
    least = INTEGER_OPERATIONS[operation].least

    def operate(facts: SizeFacts, *operands: Polynomial) -> Any:
        for p, low in zip(operands, least, strict=False):
            if low is not None and not facts.ask(p - Polynomial.of(low), ">="):
                return result_of(operation, tuple(map(facts.fix, operands)))
        return expression(facts, _simplified(operation, *operands))

    return operate


def _simplified(operation: str, *operands: Polynomial) -> Polynomial:
    """Return the result of an operation, where it takes bits of a number a product or a rest."""
    match operation, operands:
        case "<<", (number, Polynomial(constant=int() as bits)):
            return number * Polynomial.of(1 << bits)
        case ">>", (number, Polynomial(constant=int() as bits)):
            return number.divided(Polynomial.of(1 << bits), "//")
        case "&", (number, Polynomial(constant=int() as mask)) if mask >= 0 and not mask & (mask + 1):
            return number.divided(Polynomial.of(mask + 1), "%")
        case "&", (number, Polynomial(constant=int() as mask)) if mask < 0 and not ~mask & -mask:
            return number - number.divided(Polynomial.of(-mask), "%")
    return Polynomial.applied(operation, *operands)


_DIVISIONS: Final = {"//": operator.floordiv, "%": operator.mod}


def _dividing(operation: Literal["//", "%"]) -> Callable[[SizeFacts, Polynomial, Polynomial], Any]:
    def divide(facts: SizeFacts, a: Polynomial, b: Polynomial) -> Any:
        if facts.ask(b, "=="):
            _DIVISIONS[operation](1, 0)  # raises, with the text of this CPython
        return expression(facts, a.divided(b, operation))

    return divide


def _comparing(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of a comparison with a number."""
    name, parent = operation.__name__, getattr(IntegerProxy, f"__{operation.__name__}__")
    swapped = f"__{SWAPPED.get(name, name)}__"

    def compare(self: SymbolicInt, other: Any) -> Any:
        if type(other) is not int and overrides(other, self, swapped):
            return NotImplemented
        p = _polynomial(other)
        if p is None:
            if type(other) is float or isinstance(other, SymbolicFloat):
                return compared(self.facts, name, self, other)
            if isinstance(other, float):
                return _by_value(operation, (self, other))
            return parent(self, other)
        return _asked(self.facts, self.polynomial, name, p)

    return compare


def _asked(facts: SizeFacts, a: Polynomial, operation: str, b: Polynomial) -> bool:
    one = Polynomial.of(1)
    match operation:
        case "eq":
            return facts.ask(a - b, "==")
        case "ne":
            return facts.ask(a - b, "!=")
        case "ge":
            return facts.ask(a - b, ">=")
        case "gt":
            return facts.ask(a - b - one, ">=")
        case "le":
            return facts.ask(b - a, ">=")
    return facts.ask(b - a - one, ">=")


_COMBINED: dict[Callable[..., Any], Callable[[SizeFacts, Polynomial, Polynomial], Any]] = {
    operator.add: lambda facts, a, b: expression(facts, a + b),
    operator.sub: lambda facts, a, b: expression(facts, a - b),
    operator.mul: lambda facts, a, b: expression(facts, a * b),
    operator.floordiv: _dividing("//"),
    operator.mod: _dividing("%"),
    operator.truediv: lambda facts, a, b: _quotient(facts, a, b),
    operator.pow: lambda facts, a, b: _power(facts, a, b),
    operator.and_: _operated("&"),
    operator.or_: _operated("|"),
    operator.xor: _operated("^"),
    operator.lshift: _operated("<<"),
    operator.rshift: _operated(">>"),
}


def _quotient(facts: SizeFacts, a: Polynomial, b: Polynomial) -> Any:
    if facts.ask(b, "=="):
        operator.truediv(1, 0)  # raises
    return float_of(facts, operator.truediv, a, b)


def _power(facts: SizeFacts, a: Polynomial, b: Polynomial) -> Any:
    exponent = facts.known(b)
    if exponent is None:
        if facts.ask(b, ">="):
            return _operated("**")(facts, a, b)
        exponent = facts.fix(b)
    if exponent < 0:
        if facts.ask(a, "=="):
            operator.pow(0, -1)  # raises
        return float_of(facts, operator.pow, a, exponent)
    power = Polynomial.of(1)
    for _ in range(exponent):
        power = power * a
    return expression(facts, power)


for _operation, _combine in _COMBINED.items():
    for _reflected in (False, True):
        _name = f"__{'r' if _reflected else ''}{_operation.__name__.rstrip('_')}__"
        setattr(SymbolicInt, _name, _combined(_operation, _combine, _reflected))
for _operation in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
    setattr(SymbolicInt, f"__{_operation.__name__}__", _comparing(_operation))
setattr(SymbolicInt, "__divmod__", divided)  # noqa: B010
setattr(SymbolicInt, "__rdivmod__", lambda self, other: divided(other, self))  # noqa: B010


class SizeTuple(tuple[Any, ...]):
    """The shape of a tensor with symbolic sizes, in the place of ``torch.Size``, which takes numbers only."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        item = tuple.__getitem__(self, key)
        return shape_of(item) if type(key) is slice else item

    def __eq__(self, other: object) -> bool:
        # tuples of Python compare their first elements though their lengths differ
        return isinstance(other, tuple) and len(self) == len(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __add__(self, other: Any) -> Any:
        return shape_of((*self, *other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return shape_of((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        return shape_of(tuple(self) * count)

    __rmul__ = __mul__

    def numel(self) -> Any:
        """Return the number of elements."""
        total: Any = 1
        for size in self:
            total = total * size
        return total


def has_symbols(sizes: Sequence[Any]) -> bool:
    """Return whether a size may differ from call to call."""
    return not _NUMBERS.issuperset(map(type, sizes)) and any(isinstance(n, SymbolicInt) for n in sizes)


def hint_of(size: Any) -> int:
    """Return a size, or its value in the call that is traced."""
    return int(size.hint) if isinstance(size, SymbolicInt) else size


def hints_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return sizes in the call that is traced."""
    return sizes if _NUMBERS.issuperset(map(type, sizes)) else tuple(map(hint_of, sizes))


def strides_as_products(
    symbols: Sequence[Any],
    shape: Sequence[int],
    strides: Sequence[int],
    other: Callable[[int], Any] | None = None,
) -> tuple[Any, ...]:
    """Return strides (elements) as products of sizes and strides, from the innermost dimension on.

    ``symbols`` are the sizes that have the lengths of ``shape``. One of 0 counts as 1, as it does for torch.
    A stride that is no product is a number, or ``other(dimension)`` where it is greater than 1: strides of 0
    and 1 are layouts of their own.
    """
    found: list[Any] = list(strides)
    step: Any = 1
    value = 1
    for d in sorted(range(len(shape)), key=lambda d: (strides[d], shape[d] > 1, -d)):
        if strides[d] == 0:
            continue
        if value == strides[d]:
            found[d] = step
        elif other is not None and strides[d] > 1:
            found[d] = other(d)
        if shape[d] == 0:
            step, value = found[d], strides[d]
        else:
            step = symbols[d] * found[d] if isinstance(symbols[d], SymbolicInt) else found[d] * symbols[d]
            value = shape[d] * strides[d]
    return tuple(found)


def size_text(size: Any) -> str:
    """Return the text of a size in the type of a tensor."""
    return size.text if isinstance(size, SymbolicInt) else str(size)


def are_same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Return whether two shapes are equal in all calls of the entry, without asking for this one."""
    if _NUMBERS.issuperset(map(type, a)) and _NUMBERS.issuperset(map(type, b)):
        return a == b
    return len(a) == len(b) and all(_is_same(m, n) for m, n in zip(a, b, strict=True))


def _is_same(m: Any, n: Any) -> bool:
    if m is n:
        return True
    if isinstance(m, SymbolicInt) or isinstance(n, SymbolicInt):
        facts = m.facts if isinstance(m, SymbolicInt) else n.facts
        p, q = _polynomial(m), _polynomial(n)
        return p is not None and q is not None and (p == q or facts.known(p - q) == 0)
    return bool(m == n)


def as_lengths(sizes: Iterable[Any]) -> tuple[Any, ...]:
    """Return sizes as integers of Python; symbolic ones as they are."""
    lengths = tuple(sizes)
    if _NUMBERS.issuperset(map(type, lengths)):
        return lengths
    return tuple([n if isinstance(n, SymbolicInt) else int(n) for n in lengths])


_NUMBERS = frozenset({int})


def shape_of(sizes: tuple[Any, ...]) -> Any:
    """Return the shape of a tensor as a program sees it."""
    return SizeTuple(sizes) if has_symbols(sizes) else torch.Size(sizes)
