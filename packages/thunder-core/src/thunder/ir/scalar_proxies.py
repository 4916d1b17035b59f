"""Proxies of values other than tensors: inputs of the prologue, collections, numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Self

import torch

from thunder.base.devices import Device
from thunder.base.errors import DataDependentControlFlow, InvalidArgument, OutsideTrace
from thunder.base.langctx import current_language
from thunder.base.tags import OpenTag
from thunder.ir.recorder import UNDECIDED
from thunder.ir.trace_context import get_tracectx

if TYPE_CHECKING:
    from thunder.ir.proxies import TensorProxy


class ProxyTag(OpenTag):
    """A property of a proxy; :meth:`register_tag` adds one."""


for _tag in ("RECOMPUTE_IN_BACKWARD", "DETACHED_AUTOGRAD_GRAPH", "STATIC_MEMORY_LOCATION"):
    ProxyTag.register_tag(_tag)


class CONSTRAINT(Enum):
    """The degree to which the value of a number is fixed.

    DYNAMIC: it may differ from call to call. CONSTRAINABLE: it may differ until the program depends on it.
    STATIC: it is a constant of the program.
    """

    DYNAMIC = auto()
    CONSTRAINABLE = auto()
    STATIC = auto()


def take_name(name: str | None, prefix: str) -> str:
    """Take ``name``, or a fresh name with the prefix, from the current trace."""
    trace = get_tracectx()
    if trace is not None:
        return trace.make_name(name, prefix=prefix)
    if name is None:
        raise OutsideTrace(
            "a proxy without a name was created where no trace is current", hint="Pass a name."
        )
    return name


def note_text(proxy: Proxy | TensorProxy) -> None:
    """Report to the recorder of the current trace that the text of a proxy was made."""
    trace = get_tracectx()
    if trace is not None:
        trace.recorder.note_text(proxy)


class Proxy:
    """A named value of a trace other than a tensor."""

    prefix = "p"

    def __init__(
        self,
        name: str | None = None,
        *,
        prefix: str | None = None,
        history: Any = None,
        tags: Iterable[ProxyTag] = (),
    ) -> None:
        self.name = take_name(name, prefix or self.prefix)
        self.history = history
        self.tags = set(tags or ())

    def type_string(self) -> str:
        """Return the text of the type comment."""
        return "Any"

    def replace_name(self, name: str, *, disambiguate: bool = False) -> Self:
        """Return a copy under another name."""
        trace = get_tracectx()
        if disambiguate and trace is not None:
            name = trace.make_derived_name(name)
        elif trace is not None:
            trace.add_name(name)
        return self.replace(name=name)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other attributes.

        A new name must have been taken from the trace already. Raises InvalidArgument for an attribute that
        the proxy does not have.
        """
        new = object.__new__(type(self))
        for key, value in {**vars(self), "tags": set(self.tags), **changes}.items():
            if not hasattr(self, key):
                raise InvalidArgument(f"{type(self).__name__} has no attribute {key!r}")
            setattr(new, key, value)
        return new

    def __repr__(self) -> str:
        note_text(self)
        return f'<{type(self).__name__}(name="{self.name}")>'


class AnyProxy(Proxy):
    """A Python object of any type."""


class CollectionProxy(Proxy):
    """A collection that a backward trace unpacks."""

    prefix = "C"

    def type_string(self) -> str:
        return "Collection"


class StringProxy(Proxy):
    """A string input."""

    prefix = "s"

    def type_string(self) -> str:
        return "str"


class TupleProxy(Proxy):
    """A tuple input."""

    prefix = "tup"

    def type_string(self) -> str:
        return "tuple"


class ListProxy(Proxy):
    """A list input."""

    prefix = "lst"

    def type_string(self) -> str:
        return "list"


class DictProxy(Proxy):
    """A dict input."""

    prefix = "d"

    def type_string(self) -> str:
        return "dict"


class GeneratorProxy(Proxy):
    """A ``torch.Generator``.

    The trace states which generator is drawn from. Its state is that of the object, and changes when the
    program runs.
    """

    prefix = "g"

    def __init__(self, name: str | None = None, *, device: Device, prefix: str | None = None) -> None:
        super().__init__(name, prefix=prefix)
        self.device = device

    def type_string(self) -> str:
        return f"Generator {self.device.device_str()}"


class NumberProxy(Proxy):
    """A number; ``value`` is None unless it is known while the program is traced."""

    prefix = "n"
    default_type: type | None = None

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


def _decided(operation: str, question: str, *operands: Any) -> Any:
    """Return the answer to a question about numbers; raise DataDependentControlFlow if there is none."""
    trace = get_tracectx()
    answer = UNDECIDED if trace is None else trace.recorder.decide(question, operands)
    if answer is UNDECIDED:
        raise _refusal(operation, operands[0])
    return answer


def _are_numbers(operands: Iterable[Any]) -> bool:
    return all(isinstance(x, int | float | complex | NumberProxy) for x in operands)


#: comparison → the same with its operands exchanged
_REFLECTED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


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
            return _on_tensor(_REFLECTED.get(operation, operation), other, self)
        return _decided(operation, operation, self, other) if _are_numbers((other,)) else NotImplemented

    return compare


def _computing(operation: str, reflected: bool = False) -> Callable[..., Any]:
    """Return the method of an operation on numbers: its result is a number of the trace."""

    def compute(self: NumberProxy, *others: Any) -> Any:
        if others and isinstance(others[0], torch.Tensor):
            return _on_tensor(operation if reflected else f"r{operation}", others[0], self)
        if not _are_numbers(others):
            return NotImplemented
        trace = get_tracectx()
        operands = (*others, self) if reflected else (self, *others)
        number = UNDECIDED if trace is None else trace.recorder.compute_number(operation, operands)
        if number is UNDECIDED:
            raise _refusal(f"r{operation}" if reflected else operation, self)
        return number

    return compute


def _rounded(self: NumberProxy, digits: int | None = None) -> Any:
    return round(_decided("round", "value", self), digits)


def _quotient_and_rest(a: Any, b: Any) -> Any:
    """Return ``divmod`` of two numbers; a divisor of the trace is a decision, for it may be zero."""
    if not _are_numbers((a, b)):
        return NotImplemented
    divisor = _decided("divmod", "value", b) if isinstance(b, NumberProxy) else b
    if divisor and isinstance(a, NumberProxy) and a.python_type is not complex:
        return a // divisor, a % divisor
    return divmod(_decided("divmod", "value", a) if isinstance(a, NumberProxy) else a, divisor)


def _truncated(self: NumberProxy) -> Any:
    return math.trunc(_decided("trunc", "value", self))


for _operation in ("bool", "int", "float", "complex", "index"):
    setattr(NumberProxy, f"__{_operation}__", _converting(_operation))
for _operation in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(NumberProxy, f"__{_operation}__", _comparing(_operation))
for _operation in ("neg", "pos", "abs"):
    setattr(NumberProxy, f"__{_operation}__", _computing(_operation))
for _operation in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(NumberProxy, f"__{_operation}__", _computing(_operation))
    setattr(NumberProxy, f"__r{_operation}__", _computing(_operation, reflected=True))
setattr(NumberProxy, "__divmod__", _quotient_and_rest)  # noqa: B010
setattr(NumberProxy, "__rdivmod__", lambda self, other: _quotient_and_rest(other, self))  # noqa: B010
setattr(NumberProxy, "__round__", _rounded)  # noqa: B010
setattr(NumberProxy, "__trunc__", _truncated)  # noqa: B010


def _hash(self: NumberProxy) -> int:
    """Return the hash of the value where a program uses a number as a key; elsewhere that of the proxy."""
    trace = get_tracectx()
    value = UNDECIDED if trace is None else trace.recorder.decide("value", (self,))
    return object.__hash__(self) if value is UNDECIDED else hash(value)


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
