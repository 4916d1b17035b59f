"""Builtins that call one special method, conversions, and the module ``operator``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter import operator_protocols, operator_tables, string_protocols
from thunder.interpreter.calls import arguments_of_partial
from thunder.interpreter.lookup import (
    NATIVE_TYPES,
    call_special,
    interpreted_special,
    is_a,
    python_special,
    stand_in,
)
from thunder.interpreter.native_registry import Args, Entries, Kwargs, Native, by_method
from thunder.interpreter.operator_protocols import truth
from thunder.interpreter.operator_tables import COMPARISON_OPERATORS
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import POW_HAS_REFLECTED, READ_BY_INT

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

ENTRIES: Final = Entries()
"""What the interpreter does in place of these builtins."""


def _to_absolute(machine: Machine, value: Any) -> Any:
    return operator_protocols.unary(machine, operator_tables.ABSOLUTE, value)


for _operator, _convert in [
    (len, operator_protocols.length),
    (bool, truth),
    (repr, string_protocols.to_repr),
    (str, string_protocols.to_str),
    (ascii, string_protocols.to_ascii),
    (hash, string_protocols.to_hash),
    (abs, _to_absolute),
    (operator.index, operator_protocols.index),
    (operator.truth, truth),
    *string_protocols.text_methods(),
]:
    ENTRIES.one_operand(_operator, _convert)
ENTRIES.one_operand(operator.not_, lambda machine, value: not truth(machine, value))


ENTRIES[id(str.format)] = string_protocols.format_fields
ENTRIES[id(str.format_map)] = string_protocols.format_mapping


@ENTRIES.entry(format)
def _format(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or not 1 <= len(args) <= 2:
        return machine.policy.call_native(format, args, kwargs)
    return string_protocols.to_format(machine, *args)


def _number(native: Any, *methods: str) -> Native:
    """``int(x)`` and the like: the first of ``methods`` that the class has decides."""

    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        cls = type(args[0]) if len(args) == 1 and not kwargs else int
        for name in () if cls in NATIVE_TYPES else methods:
            method = machine.policy.type_attr(cls, name)
            if method is not MISSING:
                if python_special(machine, cls, name) is interpreted_special(machine, cls, name):
                    break
                result = call_special(machine, method, args[0])  # of the host
                return result if type(result) is native else machine.policy.call_native(native, args, {})
        read = {name: stand_in(machine, value) for name, value in kwargs.items()}
        return machine.policy.call_native(native, tuple(stand_in(machine, value) for value in args), read)

    return call


ENTRIES[id(int)] = _number(int, *READ_BY_INT)
ENTRIES[id(float)] = _number(float, "__float__", "__index__")
ENTRIES[id(complex)] = _number(complex, "__complex__", "__float__", "__index__")


def _rounding(native: Any, name: str) -> Native:
    """``round(x, n)`` and the like: by the special method of ``x``, else natively by its number."""

    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if args and not kwargs and python_special(machine, type(args[0]), name) is not MISSING:
            return by_method(machine, native, name, args, kwargs)
        read = {key: stand_in(machine, value) for key, value in kwargs.items()}
        return machine.policy.call_native(native, tuple(stand_in(machine, value) for value in args), read)

    return call


for _native, _name in (
    (round, "__round__"),
    (math.floor, "__floor__"),
    (math.ceil, "__ceil__"),
    (math.trunc, "__trunc__"),
):
    ENTRIES[id(_native)] = _rounding(_native, _name)


@ENTRIES.entry(divmod)
def _divmod(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2:
        return machine.policy.call_native(divmod, args, kwargs)
    return operator_protocols.binary(machine, operator_tables.DIVMOD, *args)


@ENTRIES.entry(pow)
def _pow(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return operator_protocols.binary(machine, operator_tables.BINARY_OPERATORS["**"], *args)
    given = dict(zip(_OPERANDS_OF_POW, args, strict=False)) | kwargs
    if given.keys() == set(_OPERANDS_OF_POW) and len(args) + len(kwargs) == 3:
        result = _power(machine, *(given[name] for name in _OPERANDS_OF_POW))
        if result is not MISSING:
            return result
    read = {key: stand_in(machine, value) for key, value in kwargs.items()}
    return machine.policy.call_native(pow, tuple(stand_in(machine, value) for value in args), read)


_OPERANDS_OF_POW: Final = ("base", "exp", "mod")


def _power(machine: Machine, base: Any, exponent: Any, modulus: Any) -> Any:
    """``pow(base, exponent, modulus)`` by methods in Python (``slot_nb_power``); MISSING if there is none."""
    if modulus is None:
        return operator_protocols.binary(machine, operator_tables.BINARY_OPERATORS["**"], base, exponent)
    left, right = type(base), type(exponent)
    forward = python_special(machine, left, "__pow__")
    backward = (
        python_special(machine, right, "__rpow__") if POW_HAS_REFLECTED and left is not right else MISSING
    )
    if forward is MISSING and backward is MISSING:
        return MISSING
    attempts = [(forward, base, exponent), (backward, exponent, base)]
    if issubclass(right, left):
        attempts.reverse()
    for method, obj, other in attempts:
        if method is not MISSING:
            result = call_special(machine, method, obj, other, modulus)
            if result is not NotImplemented:
                return result
    names = ", ".join(f"'{type(value).__name__}'" for value in (base, exponent, modulus))
    raise TypeError(f"unsupported operand type(s) for ** or pow(): {names}")


# -- functions of module operator ----------------------------------------------------------------------------


def _operate(apply: Callable[..., Any], row: Any, machine: Machine, *operands: Any) -> Any:
    return apply(machine, row, *operands)


def _is(machine: Machine, a: Any, b: Any) -> bool:
    return machine.policy.is_same(a, b)


for _row in operator_tables.BINARY_OPERATORS.values():
    ENTRIES.two_operands(_row.native, partial(_operate, operator_protocols.binary, _row))
for _comparison in COMPARISON_OPERATORS.values():
    ENTRIES.two_operands(_comparison.native, partial(_operate, operator_protocols.compare, _comparison))
for _unary in (
    operator_tables.UNARY_NEGATIVE,
    operator_tables.UNARY_POSITIVE,
    operator_tables.UNARY_INVERT,
):
    ENTRIES.one_operand(_unary.native, partial(_operate, operator_protocols.unary, _unary))
ENTRIES.two_operands(operator.getitem, operator_protocols.load_item)
ENTRIES.two_operands(operator.delitem, operator_protocols.delete_item)
ENTRIES.two_operands(operator.contains, operator_protocols.contains)
ENTRIES.two_operands(operator.is_, _is)
ENTRIES.two_operands(operator.is_not, lambda machine, a, b: not _is(machine, a, b))
ENTRIES.two_operands(dict.__getitem__, operator_protocols.load_dict_item)


@ENTRIES.entry(operator.setitem)
def _setitem(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 3:
        return machine.policy.call_native(operator.setitem, args, kwargs)
    operator_protocols.store_item(machine, *args)


@ENTRIES.entry(list.__setitem__)
def _set_list_item(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 3:
        return machine.policy.call_native(list.__setitem__, args, kwargs)
    operator_protocols.store_natively(machine, list.__setitem__, *args)


@ENTRIES.entry(operator.call)
def _call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return machine.policy.call_native(operator.call, args, kwargs)
    return machine.policy.call(args[0], args[1:], kwargs)


def call_attrgetter(machine: Machine, getter: Any, args: Args, kwargs: Kwargs) -> Any:
    """``operator.attrgetter(...)(obj)``."""
    if kwargs or len(args) != 1:
        return machine.policy.call_native(getter, args, kwargs)
    results = []
    for path in getter.__reduce__()[1]:
        value = args[0]
        for name in path.split("."):
            value = machine.policy.load_attr(value, name)
        results.append(value)
    return results[0] if len(results) == 1 else tuple(results)


def call_itemgetter(machine: Machine, getter: Any, args: Args, kwargs: Kwargs) -> Any:
    """``operator.itemgetter(...)(obj)``."""
    if kwargs or len(args) != 1:
        return machine.policy.call_native(getter, args, kwargs)
    results = [machine.load_item(args[0], key) for key in getter.__reduce__()[1]]
    return results[0] if len(results) == 1 else tuple(results)


def call_methodcaller(machine: Machine, caller: Any, args: Args, kwargs: Kwargs) -> Any:
    """``operator.methodcaller(...)(obj)``."""
    if kwargs or len(args) != 1:
        return machine.policy.call_native(caller, args, kwargs)
    factory, parts = caller.__reduce__()
    keywords: Kwargs = {}
    if factory is not operator.methodcaller:  # a partial, when there are keyword arguments
        parts, keywords = (*factory.args, *parts), factory.keywords
    name, *rest = parts
    return machine.policy.call(machine.policy.load_attr(args[0], name), tuple(rest), keywords)


@ENTRIES.entry(partial.__call__)
def _call_partial(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    """``functools.partial.__call__``, of a subclass: the parts are those that ``partial.__new__`` stored."""
    if not args or not is_a(args[0], partial):
        return machine.policy.call_native(partial.__call__, args, kwargs)
    fn, bound, keywords = (vars(partial)[name].__get__(args[0]) for name in ("func", "args", "keywords"))
    return machine.policy.call(fn, arguments_of_partial(bound, args[1:]), {**keywords, **kwargs})


GETTERS: Final = {
    operator.attrgetter: call_attrgetter,
    operator.itemgetter: call_itemgetter,
    operator.methodcaller: call_methodcaller,
}
"""How callable objects of module ``operator`` are carried out, by type."""
