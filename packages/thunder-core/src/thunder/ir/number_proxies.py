"""Proxies of numbers, and Python's operations on them."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final

import torch

from thunder.base.errors import DataDependentControlFlow
from thunder.base.langctx import current_language
from thunder.ir.recorder import UNDECIDED, Recorder
from thunder.ir.scalar_proxies import Proxy, ProxyTag
from thunder.ir.trace_context import get_tracectx


class CONSTRAINT(Enum):
    """The degree to which the value of a number is fixed.

    DYNAMIC: it may differ from call to call. CONSTRAINABLE: it may differ until the program depends on it.
    STATIC: it is a constant of the program.
    """

    DYNAMIC = auto()
    CONSTRAINABLE = auto()
    STATIC = auto()


class NumberProxy(Proxy):
    """A number; ``value`` is None unless it is known while the program is traced."""

    prefix = "n"
    default_type: type | None = None
    #: the hash of a number that a program has used as a key
    hash_of_value: int | None = None

    def __init__(
        self,
        name: str | None = None,
        value: complex | None = None,
        *,
        python_type: type | None = None,
        constraint: CONSTRAINT = CONSTRAINT.DYNAMIC,
        prefix: str | None = None,
        history: Any = None,
        tags: Iterable[ProxyTag] = (),
    ) -> None:
        python_type = python_type or self.default_type or type(value)
        super().__init__(name, prefix="b" if python_type is bool else prefix, history=history, tags=tags)
        self.value, self.python_type, self.constraint = value, python_type, constraint

    def known_value(self) -> bool:
        """Return whether the value is known while the program is traced."""
        return self.value is not None

    @property
    def stand_in(self) -> complex:
        """The value, or a one of its type if it is not known: for what depends on the type alone."""
        one: complex = self.python_type(1)
        return one if self.value is None else self.value

    def is_static_constrained(self) -> bool:
        """Return whether the value is fixed."""
        return self.constraint is CONSTRAINT.STATIC

    def is_dynamic(self) -> bool:
        """Return whether the value may differ from call to call."""
        return self.constraint is CONSTRAINT.DYNAMIC

    def fixed(self, operation: str) -> Any:
        """Return the value, on which the program depends from now on: a decision.

        Whatever cannot take the number itself asks so. Raises DataDependentControlFlow, which names the
        operation, where the trace decides on nothing.
        """
        return _decided(operation, "value", self)

    def make_static_constrained(self) -> None:
        """Make the value a constant of the program."""
        self.constraint = CONSTRAINT.STATIC

    def make_constrainable(self) -> None:
        """Make the value a constant as soon as the program depends on it."""
        self.constraint = CONSTRAINT.CONSTRAINABLE

    def type_string(self) -> str:
        return f"{self.python_type.__name__} {'?' if self.value is None else self.value}"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def _refusal(operation: str, proxy: NumberProxy) -> DataDependentControlFlow:
    return DataDependentControlFlow(
        f"{operation} asks for the value of a number that comes out of a tensor",
        found=f'{proxy.name}: "{proxy.type_string()}"',
        hint="Compute with tensors (torch.where for a choice); returning the number is fine.",
    )


def decided_by(recorder: Recorder | None, operation: str, question: str, *operands: Any) -> Any:
    """Return the recorder's answer to a question about numbers.

    Raises DataDependentControlFlow, which names the operation, if there is none.
    """
    answer = UNDECIDED if recorder is None else recorder.decide(question, operands)
    if answer is UNDECIDED:
        raise _refusal(operation, operands[0])
    return answer


def _decided(operation: str, question: str, *operands: Any) -> Any:
    trace = get_tracectx()
    return decided_by(None if trace is None else trace.recorder, operation, question, *operands)


def _are_numbers(operands: Iterable[Any]) -> bool:
    return all(isinstance(x, int | float | complex | NumberProxy) for x in operands)


def _plain(x: Any) -> Any:
    """Return the number of an object of a subclass of ``int`` or ``float``, such as a member of an enum."""
    if type(x) in _PYTHON or not isinstance(x, int | float) or _is_of_numpy(x):
        return x
    return int.__index__(x) if isinstance(x, int) else float.__float__(x)


def _is_of_numpy(x: Any) -> bool:
    return type(x).__module__ == "numpy"


def overrides(x: Any, number: NumberProxy, method: str) -> bool:
    """Return whether Python calls a method, written in Python, of the class of a number ``x`` first."""
    cls = type(x)
    is_first = cls is not number.python_type and issubclass(cls, number.python_type)
    return is_first and isinstance(getattr(cls, method, None), types.FunctionType)


_PYTHON: Final = frozenset({int, bool, float, complex})


#: comparison → the same with its operands exchanged
SWAPPED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _on_tensor(operation: str, tensor: Any, number: NumberProxy) -> Any:
    """Record a method of a tensor, with a number out of a tensor as its argument."""
    symbol = current_language().resolve(getattr(torch.Tensor, f"__{operation}__"))
    if symbol is None:
        raise _refusal(operation, number)
    return symbol(tensor, number)


def _converting(operation: str) -> Callable[..., Any]:
    """Return the method of a conversion: its result is a decision."""
    return lambda self: _decided(operation, operation, self)


def _comparing(operation: str) -> Callable[..., Any]:
    """Return the method of a comparison of two numbers: its result is a decision."""

    def compare(self: NumberProxy, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return _on_tensor(SWAPPED.get(operation, operation), other, self)
        if not _are_numbers((other,)) or overrides(other, self, f"__{SWAPPED.get(operation, operation)}__"):
            return NotImplemented
        return _decided(operation, operation, self, _plain(other))

    return compare


def _computing(operation: str, reflected: bool = False) -> Callable[..., Any]:
    """Return the method of an operation on numbers: its result is a number of the trace."""
    name = operation.rstrip("_")
    swapped = f"__{name}__" if reflected else f"__r{name}__"

    def compute(self: NumberProxy, *others: Any) -> Any:
        if others and isinstance(others[0], torch.Tensor):
            return _on_tensor(operation if reflected else f"r{operation}", others[0], self)
        if not _are_numbers(others) or (others and overrides(others[0], self, swapped)):
            return NotImplemented
        others = tuple(map(_plain, others))
        if len(others) == 2:  # pow with a modulus
            return pow(*(decided_value(x, "pow") for x in (self, *others)))
        return computed(operation, *((*others, self) if reflected else (self, *others)))

    return compute


def computed(operation: str, *operands: Any) -> Any:
    """Return the number of the trace that ``sum``, or a function of ``operator``, computes from numbers.

    Raises DataDependentControlFlow where the trace has none.
    """
    trace = get_tracectx()
    number = UNDECIDED if trace is None else trace.recorder.compute_number(operation, operands)
    if number is UNDECIDED:
        raise _refusal(operation, next(x for x in operands if isinstance(x, NumberProxy)))
    return number


def _combining(operation: str, reflected: bool = False) -> Callable[..., Any]:
    """Return the method of an operation on the bits of integers."""
    compute, name = _computing(operation, reflected), operation.rstrip("_")

    def combine(self: NumberProxy, *others: Any) -> Any:
        if others and isinstance(others[0], torch.Tensor):
            return _on_tensor(name if reflected else f"r{name}", others[0], decided_value(self, name))
        if not all(issubclass(pytype(x), int) for x in (self, *others)):
            return NotImplemented
        return compute(self, *others)

    return combine


def decided_value(x: Any, operation: str) -> Any:
    """Return the value of a number, :meth:`NumberProxy.fixed`; anything else unchanged."""
    return x.fixed(operation) if isinstance(x, NumberProxy) else x


def _rounded(self: NumberProxy, digits: int | None = None) -> Any:
    return round(self.fixed("round"), digits)


def quotient_and_rest(a: Any, b: Any) -> Any:
    """Return ``divmod`` of two numbers; a divisor of the trace is a decision, for it may be zero."""
    if not _are_numbers((a, b)):
        return NotImplemented
    divisor = decided_value(b, "divmod")
    if divisor and isinstance(a, NumberProxy) and a.python_type is not complex:
        return a // divisor, a % divisor
    return divmod(decided_value(a, "divmod"), divisor)


def _by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of a function of Python that is called with the value."""
    return lambda self: function(decided_value(self, function.__name__))


for _operation in ("bool", "int", "float", "complex", "index"):
    setattr(NumberProxy, f"__{_operation}__", _converting(_operation))
for _operation in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(NumberProxy, f"__{_operation}__", _comparing(_operation))
for _operation in ("neg", "pos", "abs"):
    setattr(NumberProxy, f"__{_operation}__", _computing(_operation))
for _operation in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(NumberProxy, f"__{_operation}__", _computing(_operation))
    setattr(NumberProxy, f"__r{_operation}__", _computing(_operation, reflected=True))
for _operation in ("and_", "or_", "xor", "lshift", "rshift"):
    _method = _operation.rstrip("_")
    setattr(NumberProxy, f"__{_method}__", _combining(_operation))
    setattr(NumberProxy, f"__r{_method}__", _combining(_operation, reflected=True))
setattr(NumberProxy, "__invert__", _combining("invert"))  # noqa: B010
setattr(NumberProxy, "__divmod__", quotient_and_rest)  # noqa: B010
setattr(NumberProxy, "__rdivmod__", lambda self, other: quotient_and_rest(other, self))  # noqa: B010
setattr(NumberProxy, "__round__", _rounded)  # noqa: B010
for _function in (math.trunc, math.floor, math.ceil):
    setattr(NumberProxy, f"__{_function.__name__}__", _by_value(_function))


def _hash(self: NumberProxy) -> int:
    """Return the hash of the value where a program uses a number as a key; elsewhere that of the proxy.

    It stays that of the value, by which the keys of the program's dictionaries are found.
    """
    if self.hash_of_value is None:
        trace = get_tracectx()
        if trace is None or not trace.recorder.hashes_numbers:
            return object.__hash__(self)
        self.hash_of_value = hash(decided_value(self, "a key"))
    return self.hash_of_value


NumberProxy.__hash__ = _hash  # type: ignore[method-assign, assignment]


class IntegerProxy(NumberProxy):
    """An ``int`` or ``bool``."""

    prefix, default_type = "i", int


class FloatProxy(NumberProxy):
    """A ``float``."""

    prefix, default_type = "f", float


class ComplexProxy(NumberProxy):
    """A ``complex``."""

    prefix, default_type = "c", complex


def pyval(x: Any) -> Any:
    """Return the Python value of a number proxy; anything else unchanged."""
    return x.value if isinstance(x, NumberProxy) else x


def pytype(x: Any) -> type:
    """Return the Python type of a number or number proxy."""
    return x.python_type if isinstance(x, NumberProxy) else type(x)
