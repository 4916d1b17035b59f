"""Builtins that iterate and order: ``iter``, ``any``, ``sum``, ``min``, ``sorted``, …"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter import iteration, operator_protocols
from thunder.interpreter.lookup import (
    NATIVE_TYPES,
    all_leaves,
    call_special,
    is_a,
    python_special,
)
from thunder.interpreter.native_registry import Args, Entries, Kwargs, by_method
from thunder.interpreter.operator_protocols import truth
from thunder.interpreter.operator_tables import BINARY_OPERATORS, COMPARISON_OPERATORS
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

ENTRIES: Final = Entries()
"""What the interpreter does in place of these builtins."""


@ENTRIES.entry(iter)
def _iter(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return machine.policy.call_native(iter, (machine.shim(args[0]), args[1]), {})
    if len(args) != 1 or kwargs:
        return machine.policy.call_native(iter, args, kwargs)
    return iteration.get_iterator(machine, args[0])


@ENTRIES.entry(next)
def _next(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not kwargs and 1 <= len(args) <= 2:
        method = python_special(machine, type(args[0]), "__next__")
        if method is not MISSING:
            try:
                return call_special(machine, method, args[0])
            except StopIteration:
                if len(args) == 1:
                    raise
            return args[1]
    return machine.policy.call_native(next, args, kwargs)


@ENTRIES.entry(any)
def _any(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 1:
        return machine.policy.call_native(any, args, kwargs)
    return any(truth(machine, value) for value in iteration.iterate(machine, args[0]))


@ENTRIES.entry(all)
def _all(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 1:
        return machine.policy.call_native(all, args, kwargs)
    return all(truth(machine, value) for value in iteration.iterate(machine, args[0]))


@ENTRIES.entry(sum)
def _sum(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not 1 <= len(args) <= 2 or set(kwargs) - {"start"}:
        return machine.policy.call_native(sum, args, kwargs)
    start = args[1] if len(args) == 2 else kwargs.get("start", 0)
    values: Iterator[Any] = iter(iteration.iterate(machine, args[0]))
    if is_a(start, str | bytes | bytearray):
        return machine.policy.call_native(sum, (list(values), start), {})
    numbers, kinds = list[Any](), (*_NUMBERS, *machine.policy.number_types)
    if type(start) in kinds:  # the native sum of floats is compensated
        for value in values:
            if type(value) not in kinds:
                values = itertools.chain((value,), values)
                break
            numbers.append(value)
        if numbers:
            start = machine.policy.call_native(sum, (numbers, start), {})
    for value in values:  # each is added before the next is made
        start = operator_protocols.binary(machine, BINARY_OPERATORS["+"], start, value)
    return start


_NUMBERS: Final = (int, float, complex, bool)


@ENTRIES.entry(min)
def _min(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _extreme(machine, min, COMPARISON_OPERATORS["<"], args, kwargs)


@ENTRIES.entry(max)
def _max(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _extreme(machine, max, COMPARISON_OPERATORS[">"], args, kwargs)


def _extreme(machine: Machine, native: Any, better: Any, args: Args, kwargs: Kwargs) -> Any:
    if not args or set(kwargs) - {"key", "default"} or (len(args) > 1 and "default" in kwargs):
        return machine.policy.call_native(native, args, kwargs)
    key = kwargs.get("key")
    best = best_key = MISSING
    for value in iteration.iterate(machine, args[0]) if len(args) == 1 else args:
        value_key = value if key is None else machine.policy.call(key, (value,), {})
        if best is MISSING or truth(
            machine, operator_protocols.compare(machine, better, value_key, best_key)
        ):
            best, best_key = value, value_key
    if best is not MISSING:
        return best
    # The native function has the defaults and the messages for an empty iterable.
    return machine.policy.call_native(native, ((),), {k: v for k, v in kwargs.items() if k == "default"})


class _Ordered:
    """A sort key whose comparison is interpreted."""

    __slots__ = ("machine", "value")

    def __init__(self, machine: Machine, value: Any) -> None:
        self.machine = machine
        self.value = value

    def __lt__(self, other: _Ordered) -> bool:
        row = COMPARISON_OPERATORS["<"]
        return truth(self.machine, operator_protocols.compare(self.machine, row, self.value, other.value))


def sort_key(machine: Machine, key: Any) -> Callable[[Any], Any]:
    """Return a key for native sorting that interprets ``key`` and the comparisons."""

    def ordered(value: Any) -> Any:
        if key is not None:
            value = machine.call(key, (value,), {})
        return _Ordered(machine, value)

    return ordered


@ENTRIES.entry(sorted)
def _sorted(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.policy.call_native(sorted, args, kwargs)
    values = list(iteration.iterate(machine, args[0]))
    _sort_list(machine, values, kwargs)
    return values


@ENTRIES.entry(list.sort)
def _list_sort(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.policy.call_native(list.sort, args, kwargs)
    _sort_list(machine, args[0], kwargs)


def _sort_list(machine: Machine, values: list[Any], kwargs: Kwargs) -> None:
    key = kwargs.get("key")
    if key is not None or not all_leaves(values):
        kwargs = {**kwargs, "key": sort_key(machine, key)}
    machine.policy.call_native(list.sort, (values,), kwargs)


@ENTRIES.entry(reversed)
def _reversed(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and type(args[0]) not in NATIVE_TYPES:
        cls = type(args[0])
        if (
            machine.policy.type_attr(cls, "__reversed__") is MISSING
            and python_special(machine, cls, "__getitem__") is not MISSING
            and machine.policy.type_attr(cls, "__len__") is not MISSING
        ):
            return _iterate_backwards(machine, args[0], operator_protocols.length(machine, args[0]))
    return by_method(machine, reversed, "__reversed__", args, kwargs)


def _iterate_backwards(machine: Machine, obj: Any, length: int) -> Any:
    for i in range(length - 1, -1, -1):
        yield machine.load_item(obj, i)
