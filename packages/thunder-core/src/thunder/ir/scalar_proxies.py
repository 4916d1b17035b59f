"""Proxies of values that are no tensors: inputs of the prologue, collections, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, NoReturn, Self

from thunder.base.devices import Device
from thunder.base.errors import DataDependentControlFlow, InvalidArgument, OutsideTrace
from thunder.base.tags import OpenTag
from thunder.ir.trace_context import get_tracectx


class ProxyTag(OpenTag):
    """What a proxy is; :meth:`register_tag` adds kinds."""


for _tag in ("RECOMPUTE_IN_BACKWARD", "DETACHED_AUTOGRAD_GRAPH", "STATIC_MEMORY_LOCATION"):
    ProxyTag.register_tag(_tag)


class CONSTRAINT(Enum):
    """What is known of a number: free, free until somebody asks, or fixed."""

    DYNAMIC = auto()
    CONSTRAINABLE = auto()
    STATIC = auto()


def take_name(name: str | None, prefix: str) -> str:
    """Takes a name from the current trace: the one given, or a fresh one with the prefix."""
    trace = get_tracectx()
    if trace is not None:
        return trace.make_name(name, prefix=prefix)
    if name is None:
        raise OutsideTrace(
            "a proxy without a name was made where no trace is current", hint="Give it a name."
        )
    return name


class Proxy:
    """A named value of a trace that is no tensor: an input of the prologue, a collection, a number."""

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
        """The text of the type comment."""
        return "Any"

    def replace_name(self, name: str, *, disambiguate: bool = False) -> Self:
        """A copy under another name."""
        trace = get_tracectx()
        if disambiguate and trace is not None:
            name = trace.make_derived_name(name)
        elif trace is not None:
            trace.add_name(name)
        return self.replace(name=name)

    def replace(self, **changes: Any) -> Self:
        """A copy with other attributes. A new name must have been taken from the trace already."""
        new = object.__new__(type(self))
        for key, value in {**vars(self), "tags": set(self.tags), **changes}.items():
            if not hasattr(self, key):
                raise InvalidArgument(f"{type(self).__name__} has no attribute {key!r}")
            setattr(new, key, value)
        return new

    def __repr__(self) -> str:
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
    """A ``torch.Generator``. What stands in the trace is which one is drawn from; its state is the object's
    own, and moves when the program runs.
    """

    prefix = "g"

    def __init__(self, name: str | None = None, *, device: Device, prefix: str | None = None) -> None:
        super().__init__(name, prefix=prefix)
        self.device = device

    def type_string(self) -> str:
        return f"Generator {self.device.device_str()}"


class NumberProxy(Proxy):
    """A number whose value may or may not be known."""

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
        """Whether the value is known."""
        return self.value is not None

    def is_static_constrained(self) -> bool:
        """Whether the value is fixed."""
        return self.constraint is CONSTRAINT.STATIC

    def is_dynamic(self) -> bool:
        """Whether the value may differ from call to call."""
        return self.constraint is CONSTRAINT.DYNAMIC

    def make_static_constrained(self) -> None:
        """Fixes the value."""
        self.constraint = CONSTRAINT.STATIC

    def make_constrainable(self) -> None:
        """Lets the first question fix the value."""
        self.constraint = CONSTRAINT.CONSTRAINABLE

    def type_string(self) -> str:
        return f"{self.python_type.__name__} {'?' if self.value is None else self.value}"


def _refuse_number(operation: str) -> Callable[..., NoReturn]:
    def refuse(self: NumberProxy, *others: Any) -> NoReturn:
        raise DataDependentControlFlow(
            f"{operation} asks for the value of a number that comes out of a tensor",
            found=f'{self.name}: "{self.type_string()}"',
            hint="Compute with tensors (torch.where for a choice); returning the number is fine.",
        )

    return refuse


for _operation in (
    *("bool", "int", "float", "complex", "index", "round", "trunc"),
    *("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs"),
    *(side + op for op in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow") for side in ("", "r")),
    *("format", "str"),
):
    setattr(NumberProxy, f"__{_operation}__", _refuse_number(_operation))
NumberProxy.__hash__ = object.__hash__  # type: ignore[method-assign]


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
    """The Python value of a number proxy; anything else as it is."""
    return x.value if isinstance(x, NumberProxy) else x


def pytype(x: Any) -> type:
    """The Python type of a number or number proxy."""
    return x.python_type if isinstance(x, NumberProxy) else type(x)
