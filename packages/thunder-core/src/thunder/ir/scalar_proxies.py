"""Proxies of values other than tensors: inputs of the prologue, collections, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NoReturn, Self

from thunder.base.devices import Device
from thunder.base.errors import DataDependentControlFlow, InvalidArgument, OutsideTrace
from thunder.base.tags import OpenTag
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
    """Return the Python value of a number proxy; anything else unchanged."""
    return x.value if isinstance(x, NumberProxy) else x


def pytype(x: Any) -> type:
    """Return the Python type of a number or number proxy."""
    return x.python_type if isinstance(x, NumberProxy) else type(x)
