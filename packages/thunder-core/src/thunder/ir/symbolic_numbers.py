"""Numbers that sizes of inputs determine: what is common to integers and floats."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from thunder.base.errors import UnsupportedProgram
from thunder.base.float_expressions import FloatExpression
from thunder.base.integer_polynomials import Polynomial
from thunder.ir.number_proxies import CONSTRAINT, NumberProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.trace_context import get_tracectx

__all__ = ["SymbolicNumber"]


class SymbolicNumber(NumberProxy):
    """A number that sizes of inputs determine, an expression in the text of a statement.

    ``formula`` is the expression, and ``variable`` its number if it is an input itself. Code that asks for
    the value fixes the sizes in it.
    """

    #: returns the number that a polynomial is; set by the module of integers, which imports that of floats
    integer: ClassVar[Callable[[SizeFacts, Polynomial], Any]]

    def __init__(
        self,
        facts: SizeFacts,
        formula: Polynomial | FloatExpression,
        python_type: type,
        variable: int | None = None,
    ) -> None:
        # no name of the trace is taken: that of an input is taken when all inputs are named
        self.facts, self.formula, self.variable = facts, formula, variable
        self.python_type, self.constraint = python_type, CONSTRAINT.CONSTRAINABLE
        self.tags, self.history = set(), None

    @property
    def name(self) -> str:
        """The name of an input, or the text of an expression in parentheses where that needs them."""
        if self.variable is not None:
            return self.facts.names[self.variable]
        return self.text if self.formula.is_one_word else f"({self.text})"

    @name.setter
    def name(self, name: str) -> None:
        if self.variable is None:
            raise UnsupportedProgram("an expression of sizes has no name of its own")
        self.facts.names[self.variable] = name

    @property
    def modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """The modules that the text names."""
        return ("math",) if self.formula.reads_math else ()

    @property
    def text(self) -> str:
        """The text of the expression."""
        return self.formula.text(self.facts.names.__getitem__)

    @property
    def is_arithmetic(self) -> bool:
        """Whether it is an expression of integers with ``+ - * // %`` alone, which torch's symbols have."""
        return isinstance(self.formula, Polynomial) and self.formula.is_arithmetic

    @property
    def value(self) -> Any:  # type: ignore[override]
        """The number, which is fixed by this."""
        return self.facts.fix(self.formula)

    def fixed(self, operation: str) -> Any:
        """Return the number, which is fixed by this: a fact."""
        return self.value

    @property
    def stand_in(self) -> Any:
        """The number, which is fixed by this."""
        return self.value

    @property
    def hint(self) -> Any:
        """The number in the call that is traced; nothing may depend on it."""
        return self.facts.hint(self.formula)

    @property
    def is_input(self) -> bool:
        """Whether it is one size or number of the inputs, and no expression."""
        return self.variable is not None

    @property
    def roots(self) -> tuple[Any, ...]:
        """The sizes and numbers of inputs in the expression, each as one object."""
        if self.variable is not None:
            return (self,)
        return tuple(self.facts.symbols[v] for v in sorted(self.formula.variables))

    def for_values(self, values: Mapping[str, Any]) -> Any:
        """Return the number for these sizes of inputs, by name."""
        return self.formula.value(lambda variable: values[self.facts.names[variable]])

    def refuse_other_sizes(self, values: Mapping[str, Any]) -> None:
        """Raise UnsupportedProgram if a size in the expression is to become another value.

        Shapes of tensors contain sizes too, which no substitution reaches.
        """
        for size in self.roots:
            if values.get(size.name, size) is not size:
                raise UnsupportedProgram(f"the size {size.name} cannot be replaced by another value")

    def known_value(self) -> bool:
        """Return whether the facts determine the value."""
        return self.facts.known(self.formula) is not None

    def replace(self, **changes: Any) -> Self:
        """Return itself; raise UnsupportedProgram for another name, since a size has one in a program."""
        if changes == {"name": self.name}:
            return self
        raise UnsupportedProgram(f"the size {self.name} cannot be replaced by another value")

    def type_string(self) -> str:
        return f"{self.python_type.__name__} {self.hint}"

    @abstractmethod
    def __trunc__(self) -> Any:
        """Return the integer towards 0."""

    def __complex__(self) -> complex:
        return complex(self.value)

    def __hash__(self) -> int:
        """Return the hash of the number, which is fixed by this where a program uses it as a key.

        Raises UnsupportedProgram elsewhere: in keys of a compiler, expressions (``formula``) take its place.
        """
        trace = get_tracectx()
        if not self.known_value() and (trace is None or not trace.recorder.hashes_numbers):
            raise UnsupportedProgram(
                "a symbolic size or number is used as a key by code that compiles the program",
                found={"number": self.text},
                hint="Use its formula, or numbers of the traced call (hint), as the key.",
            )
        return hash(self.value)
