"""Arguments for which torch wants numbers: tensors, and objects of classes of the program.

    y = leaky_relu(x, x.max())         →   t0 = max(x); f0 = item(t0); y = leaky_relu(x, f0)
    y = x.reshape(Size(3), -1)         →   Size.__index__ is interpreted; y = reshape(x, 3, -1)
    y = masked_fill(x, m, Color.RED)   →   y = masked_fill(x, m, 1), for a member of an IntEnum

Which parameters are numbers is read from the schemas of torch's operators; where an integer may be an object
that defines ``__index__``, torch's parser knows. Of an object of a class derived from ``int``, ``float`` or
``complex`` torch reads the number itself.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.objects.class_kinds import extended_container
from thunder.frontend.session import TracingSession
from thunder.interpreter.lookup import interpreted_special
from thunder.interpreter.operator_protocols import index
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicInt
from thunder.torch.argument_parser import ask_torch, parse

__all__ = ["with_numbers", "with_plain_arguments"]

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: types of schemas that are numbers
_NUMBERS: Final = frozenset({"number", "float", "Optional[number]", "Optional[float]"})


def with_numbers(
    session: TracingSession, symbol: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with the values of floating-point tensors that it takes as numbers."""
    if not any(map(_may_be_number, args[1:])) and not (kwargs and any(map(_may_be_number, kwargs.values()))):
        return args, kwargs
    places = _number_places(getattr(symbol, "id", ""))

    def value(place: int | str, x: Any) -> Any:
        is_number = place in places and _may_be_number(x)
        return session.call(torch.Tensor.item, (x,), {}) if is_number else x

    return tuple(value(i, x) for i, x in enumerate(args)), {k: value(k, x) for k, x in kwargs.items()}


def _may_be_number(x: Any) -> bool:
    return type(x) is TensorProxy and not x.shape and x.dtype.is_floating_point and not x.requires_grad


@cache
def _number_places(operator_id: str) -> frozenset[int | str]:
    """Return the positions and names of parameters that are numbers in each overload that has them."""
    path = operator_id.removeprefix("torch.").removeprefix("nn.functional.").removeprefix("Tensor.")
    return frozenset(place for place, kinds in _kinds(path.replace(".", "_")).items() if kinds <= _NUMBERS)


@cache
def _kinds(name: str) -> dict[int | str, set[str]]:
    """Return the types that the overloads of an operator give the parameters, by positions and names."""
    packet = getattr(torch.ops.aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return {}
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    kinds: dict[int | str, set[str]] = {}
    for schema in schemas:
        for position, parameter in enumerate(schema.arguments):
            kinds.setdefault(parameter.name, set()).add(str(parameter.type))
            if not parameter.kwarg_only:
                kinds.setdefault(position, set()).add(str(parameter.type))
    return kinds


# -- objects that are numbers --------------------------------------------------------------------------------

#: builtin classes of numbers → what returns the number of an object of a derived class
_BASES: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__index__,
    float: float.__float__,
    complex: complex.__pos__,
}
_READING_DATA: Final = (torch.tensor, torch.as_tensor, torch.asarray)
#: types of arguments that are no such objects and hold none
_WITHOUT_OBJECTS: Final = frozenset(
    {TensorProxy, SymbolicInt, SizeTuple, int, float, complex, bool, str, type(None), torch.dtype}
    | {torch.device, torch.layout, torch.memory_format, torch.Size}
)


def with_plain_arguments(
    session: TracingSession,
    fn: Any,
    args: Args,
    kwargs: Kwargs,
    *,
    is_operator: bool = True,
    takes_objects: bool = False,
) -> tuple[Args, Kwargs]:
    """Return the arguments of a function of torch with Python's numbers in place of objects that are numbers.

    A list or tuple of a Python class is a plain one, of the items that torch reads. Where ``fn`` takes
    objects, that is all. Torch judges a call with objects that define ``__index__``, since it takes them for
    sizes and positions and not for other numbers: by its parser, and by a call on small tensors where ``fn``
    is an operator, which has no effect. Raises the error of torch where it does not take them.
    """
    if not _may_hold_objects(args) and not (kwargs and _may_hold_objects(kwargs.values())):
        return args, kwargs
    args, kwargs = _with_floats(fn, args, kwargs)
    objects = _Objects(session, fn)
    if takes_objects:
        return objects.converted(args, kwargs, lambda x: x)
    judged = objects.converted(args, kwargs, objects.judged)
    if not objects.numbers:
        return judged
    if parse(fn, *judged) is not None:
        return objects.converted(args, kwargs, lambda x: x)
    if is_operator:
        objects.calls.clear()
        ask_torch(fn, *judged)
        objects.call_again(fn)
    return objects.converted(args, kwargs, objects.number)


def _with_floats(fn: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Return the arguments of a call with the floats that torch reads of truth values and numbers of NumPy.

    Where a parameter is a number, torch's parser takes a scalar of NumPy that is neither an integer nor a
    ``float`` or ``complex`` of Python for a float (``PythonArgs::scalar_slow``).
    """
    if not any(is_numpy_scalar(x) for x in (*args, *kwargs.values())):
        return args, kwargs
    kinds = _kinds(getattr(fn, "__name__", ""))

    def value(place: int | str, x: Any) -> Any:
        is_scalar = is_numpy_scalar(x) and not isinstance(x, complex) and x.dtype.kind in "bc"
        return float(x) if is_scalar and _is_number(kinds.get(place, ())) else x

    return tuple(value(i, x) for i, x in enumerate(args)), {k: value(k, x) for k, x in kwargs.items()}


def _is_number(kinds: Iterable[str]) -> bool:
    """Return whether a parameter is a number in an overload, and a truth value in none."""
    return not _NUMBERS.isdisjoint(kinds) and "bool" not in kinds


class _Objects:
    """The objects of a call that define ``__index__``, their numbers, and how often torch asks each."""

    def __init__(self, session: TracingSession, fn: Any) -> None:
        self.session, self.fn = session, fn
        self.items: dict[int, tuple[Any, Any]] = {}  # of lists and tuples, by their ids, with these
        self.numbers: dict[int, tuple[Any, int]] = {}  # with the objects, by their ids
        self.calls: Counter[int] = Counter()

    def converted(self, args: Args, kwargs: Kwargs, convert: Callable[[Any], Any]) -> tuple[Args, Kwargs]:
        """Return the arguments of the call with plain lists and tuples, and their parts converted."""
        named = {name: _converted(self.plain(x), convert) for name, x in kwargs.items()}
        return tuple(_converted(self.plain(x), convert) for x in args), named

    def plain(self, x: Any) -> Any:
        """Return a list or tuple of a Python class as a plain one, of the items that torch reads.

        Torch iterates over data for a new tensor; it reads other arguments without the methods of their
        class.
        """
        base = list if extended_container(type(x)) is list else tuple if isinstance(x, tuple) else None
        if base is None or type(x) is SizeTuple:
            return x
        if not isinstance(type(x).__iter__, types.FunctionType):
            return list.copy(x) if base is list else x
        if id(x) not in self.items:
            reads_data = self.fn in _READING_DATA
            items = self.session.call(base, (x,), {}) if reads_data else base(base.__iter__(x))
            self.items[id(x)] = x, items
        return self.items[id(x)][1]

    def judged(self, x: Any) -> Any:
        """Return what torch judges in the place of an argument: its number, or an object that has it."""
        base = next((base for base in _BASES if isinstance(x, base)), None)
        if base is not None:
            return x if is_numpy_scalar(x) else _BASES[base](x)
        if interpreted_special(self.session.machine, type(x), "__index__") is MISSING:
            return x
        if id(x) not in self.numbers:
            self.numbers[id(x)] = x, index(self.session.machine, x)

        def answer(_: Any) -> int:
            self.calls[id(x)] += 1
            return self.numbers[id(x)][1]

        return type(type(x).__name__, (), {"__index__": answer})()

    def number(self, x: Any) -> Any:
        """Return the number in the place of an argument."""
        return self.numbers[id(x)][1] if id(x) in self.numbers else self.judged(x)

    def call_again(self, fn: Any) -> None:
        """Interpret ``__index__`` as often as torch calls it, which may write.

        Raises UnsupportedProgram where its answers differ.
        """
        for x, number in list(self.numbers.values()):
            for _ in range(self.calls[id(x)] - 1):
                if index(self.session.machine, x) != number:
                    raise UnsupportedProgram(
                        f"{fn.__name__} calls the __index__ of {type(x).__qualname__} several times, which "
                        "returns different numbers",
                        hint="Pass operator.index(object).",
                    )


def _may_hold_objects(values: Iterable[Any]) -> bool:
    for x in values:
        kind = type(x)
        if kind not in _WITHOUT_OBJECTS and not (kind in (tuple, list) and not _may_hold_objects(x)):
            return True
    return False


def _converted(x: Any, convert: Callable[[Any], Any]) -> Any:
    """Return an argument with its parts converted; one in which none changes as it is."""
    kind = type(x)
    if kind in _WITHOUT_OBJECTS:
        return x
    if kind is not tuple and kind is not list and kind is not slice:
        return convert(x)
    parts = [x.start, x.stop, x.step] if kind is slice else x
    converted = [_converted(part, convert) for part in parts]
    if all(a is b for a, b in zip(parts, converted, strict=True)):
        return x
    return slice(*converted) if kind is slice else kind(converted)
