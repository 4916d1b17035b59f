"""Builtins that re-enter Python or look at the calling frame, as the interpreter carries them out."""

from __future__ import annotations

import builtins
import math
import operator
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from thunder.core.interpreter import attributes, construction, iteration, operators
from thunder.core.interpreter.decode import decode
from thunder.core.interpreter.frame import Frame, run
from thunder.core.interpreter.lookup import (
    is_a,
    LEAF_TYPES,
    NATIVE_ATTRIBUTES,
    NATIVE_TYPES,
    call_special,
    has_python_special,
    python_special,
)
from thunder.core.interpreter.natives_table import Native
from thunder.core.interpreter.operators import COMPARISON_OPERATORS, truth
from thunder.core.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.core.interpreter.machine import Machine

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

NATIVES: Final[dict[int, Native]] = {}
"""Entries by identity of the builtin."""

FUNCTIONS: Final[dict[int, Native]] = {}
"""Entries by identity of Python functions of the standard library that look at the calling frame."""


def _entry(*fns: Any) -> Callable[[Native], Native]:
    def register(native: Native) -> Native:
        for fn in fns:
            (FUNCTIONS if type(fn) is types.FunctionType else NATIVES)[id(fn)] = native
        return native

    return register


# -- attributes --------------------------------------------------------------------------------------------------------


@_entry(getattr)
def _getattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or not 2 <= len(args) <= 3 or not is_a(args[1], str):
        return machine.policy.call_native(getattr, args, kwargs)
    try:
        return machine.policy.load_attr(args[0], args[1])
    except AttributeError:
        if len(args) == 2:
            raise
    return args[2]


@_entry(hasattr)
def _hasattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2 or not is_a(args[1], str):
        return machine.policy.call_native(hasattr, args, kwargs)
    try:
        machine.policy.load_attr(args[0], args[1])
    except AttributeError:
        return False
    return True


@_entry(setattr)
def _setattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 3 or not is_a(args[1], str):
        return machine.policy.call_native(setattr, args, kwargs)
    machine.policy.store_attr(args[0], args[1], args[2])


@_entry(delattr)
def _delattr(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2 or not is_a(args[1], str):
        return machine.policy.call_native(delattr, args, kwargs)
    machine.policy.delete_attr(args[0], args[1])


def _explicit_getattribute(getter: Any, load: Any) -> Native:
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 2 or not is_a(args[1], str):
            return machine.policy.call_native(getter, args, kwargs)
        if not is_a(args[0], getter.__objclass__):
            return machine.policy.call_native(getter, args, kwargs)
        value = load(machine, *args)
        if value is MISSING:
            raise attributes.no_attribute(*args)
        return value

    return call


NATIVES.update({id(getter): _explicit_getattribute(getter, load) for getter, load in attributes.GETTERS.items()})


def _explicit_store(native: Any, store: Any, count: int) -> Native:
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != count or not is_a(args[1], str):
            return machine.policy.call_native(native, args, kwargs)
        if is_a(args[0], type) is not (native.__objclass__ is type):
            return machine.policy.call_native(native, args, kwargs)
        return store(machine, *args)

    return call


NATIVES.update(
    {id(setter): _explicit_store(setter, attributes.store_instance, 3) for setter in attributes.GENERIC_SETTERS}
)
NATIVES.update(
    {id(deleter): _explicit_store(deleter, attributes.delete_instance, 2) for deleter in attributes.GENERIC_DELETERS}
)
NATIVES[id(type.__setattr__)] = _explicit_store(type.__setattr__, attributes.store_class, 3)
NATIVES[id(type.__delattr__)] = _explicit_store(type.__delattr__, attributes.delete_class, 2)


# -- classes -----------------------------------------------------------------------------------------------------------


@_entry(type)
def _type(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        return type(args[0])
    return construction.instantiate(machine, type, args, kwargs)


@_entry(type.__call__)
def _type_call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args and is_a(args[0], type) and args[0] is not type:
        return construction.instantiate(machine, args[0], args[1:], kwargs)
    return machine.policy.call_native(type.__call__, args, kwargs)


NATIVES[id(type.__new__)] = construction.type_new
NATIVES[id(builtins.__build_class__)] = construction.build_class


@_entry(isinstance)
def _isinstance(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2:
        return machine.policy.call_native(isinstance, args, kwargs)
    return _check_class(machine, args[0], args[1], isinstance, "__instancecheck__")


@_entry(issubclass)
def _issubclass(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2:
        return machine.policy.call_native(issubclass, args, kwargs)
    return _check_class(machine, args[0], args[1], issubclass, "__subclasscheck__")


def _check_class(machine: Machine, obj: Any, classes: Any, native: Any, name: str) -> bool:
    if native is isinstance and type(obj) is classes:
        return True
    if type(classes) is tuple:
        return any(_check_class(machine, obj, cls, native, name) for cls in classes)
    method = python_special(machine, type(classes), name) if type(classes) is not type else MISSING
    if method is MISSING:
        return machine.policy.call_native(native, (obj, classes), {})
    return truth(machine, call_special(machine, method, classes, obj))


@_entry(super)
def _super(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if args or kwargs:
        return machine.policy.call_native(super, args, kwargs)
    frame = machine.frame
    code = frame.code
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    names = frame.decoded.localsplus
    first = frame.fast[0]
    if type(first) is types.CellType and names[0] in code.co_cellvars:
        first = machine.policy.load_cell(first)
    if first is MISSING:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = machine.policy.load_cell(frame.fast[names.index("__class__", frame.decoded.first_free)])
    if cls is MISSING:
        raise RuntimeError("super(): empty __class__ cell")
    return machine.policy.call_native(super, (cls, first), {})


# -- conversions and protocols of one special method -------------------------------------------------------------------


@_entry(len)
def _len(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 1:
        return machine.policy.call_native(len, args, kwargs)
    return operators.length(machine, args[0])


@_entry(callable)
def _callable(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.policy.call_native(callable, args, kwargs)


@_entry(bool)
def _bool(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 1:
        return machine.policy.call_native(bool, args, kwargs)
    return truth(machine, args[0])


def checked(method: str, expected: type, message: str) -> Callable[[Machine, Any], Any]:
    """A protocol of one special method that must return an ``expected``."""

    def convert(machine: Machine, value: Any) -> Any:
        result = call_special(machine, python_special(machine, type(value), method), value)
        if not is_a(result, expected):
            raise TypeError(message.format(type(result).__name__))
        return result

    return convert


_repr_of = checked("__repr__", str, "__repr__ returned non-string (type {})")
_str_of = checked("__str__", str, "__str__ returned non-string (type {})")
_hash_of = checked("__hash__", int, "__hash__ method should return an integer")


def to_repr(machine: Machine, value: Any) -> str:
    """``repr(value)``."""
    if has_python_special(machine, value, "__repr__"):
        return _repr_of(machine, value)
    if type(value) in _BRACKETS and not _all_leaves(value.values() if type(value) is dict else value):
        return _repr_container(machine, value)
    return machine.policy.call_native(repr, (value,), {})


_BRACKETS: Final = {list: "[]", tuple: "()", set: "{}", dict: "{}"}


def _repr_container(machine: Machine, value: Any) -> str:
    """The text of a builtin container, that of each element interpreted."""
    opening, closing = _BRACKETS[type(value)]
    open_containers = machine.thread.containers_in_repr
    if id(value) in open_containers:
        return f"{opening}...{closing}"
    open_containers.add(id(value))
    try:
        if type(value) is dict:
            items = [f"{to_repr(machine, k)}: {to_repr(machine, v)}" for k, v in value.items()]
        else:
            items = [to_repr(machine, item) for item in value]
    finally:
        open_containers.discard(id(value))
    comma = "," if type(value) is tuple and len(items) == 1 else ""
    return f"{opening}{', '.join(items)}{comma}{closing}"


def to_str(machine: Machine, value: Any) -> str:
    """``str(value)``."""
    if type(value) is str:
        return value
    if has_python_special(machine, value, "__str__"):
        return _str_of(machine, value)
    if type(value) in _BRACKETS:
        return to_repr(machine, value)
    if type(value) not in NATIVE_TYPES and machine.policy.type_attr(type(value), "__str__") is object.__str__:
        return to_repr(machine, value)
    return machine.policy.call_native(str, (value,), {})


def to_format(machine: Machine, value: Any, spec: str = "") -> str:
    """``format(value, spec)``."""
    cls = type(value)
    if cls in LEAF_TYPES:
        return format(value, spec)
    method = python_special(machine, cls, "__format__")
    if method is not MISSING:
        result = call_special(machine, method, value, spec)
        if not is_a(result, str):
            raise TypeError(f"__format__ must return a str, not {type(result).__name__}")
        return result
    if spec == "" and cls not in NATIVE_TYPES and machine.policy.type_attr(cls, "__format__") is object.__format__:
        return to_str(machine, value)
    if spec == "" and cls in _BRACKETS:
        return to_repr(machine, value)
    return machine.policy.call_native(format, (value, spec), {})


def _one(native: Any, convert: Callable[[Machine, Any], Any]) -> Native:
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 1:
            return machine.policy.call_native(native, args, kwargs)
        return convert(machine, args[0])

    return call


def to_hash(machine: Machine, value: Any) -> int:
    """``hash(value)``."""
    if has_python_special(machine, value, "__hash__"):
        return hash(int(_hash_of(machine, value)))
    return machine.policy.call_native(hash, (value,), {})


def _to_absolute(machine: Machine, value: Any) -> Any:
    return operators.unary(machine, operators.ABSOLUTE, value)


for _native, _convert in [
    (repr, to_repr),
    (str, to_str),
    (hash, to_hash),
    (abs, _to_absolute),
    (operator.index, operators.index),
    (operator.truth, truth),
]:
    NATIVES[id(_native)] = _one(_native, _convert)
NATIVES[id(operator.not_)] = _one(operator.not_, lambda machine, value: not truth(machine, value))


@_entry(bytes)
def _bytes(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        method = python_special(machine, type(args[0]), "__bytes__")
        if method is not MISSING:
            result = call_special(machine, method, args[0])
            if not is_a(result, bytes):
                raise TypeError(f"__bytes__ returned non-bytes (type {type(result).__name__})")
            return result
        args = (iteration.native_iterable(machine, args[0]),)
    return machine.policy.call_native(bytes, args, kwargs)


@_entry(format)
def _format(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or not 1 <= len(args) <= 2:
        return machine.policy.call_native(format, args, kwargs)
    return to_format(machine, *args)


def _number(native: Any, *methods: str) -> Native:
    """``int(x)`` and the like: the first of ``methods`` that the class has decides."""

    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and not kwargs and type(args[0]) not in NATIVE_TYPES:
            cls = type(args[0])
            for name in methods:
                found = machine.policy.type_attr(cls, name)
                if found is MISSING:
                    continue
                if python_special(machine, cls, name) is not MISSING:
                    # The native conversion checks and converts what the method returned.
                    result = call_special(machine, found, args[0])
                    return machine.policy.call_native(native, (_Answer.of(native, cls, name, result),), {})
                break
        return machine.policy.call_native(native, args, kwargs)

    return call


class _Answer:
    """An object whose numeric special methods give an answer that the interpreter has already got."""

    @staticmethod
    def of(native: Any, cls: type, name: str, result: Any) -> Any:
        """An object that ``native`` converts by taking ``result`` from its method ``name``."""
        return type(cls.__name__, (), {name: lambda self, *args: result})()


NATIVES[id(int)] = _number(int, "__int__", "__index__", "__trunc__")
NATIVES[id(float)] = _number(float, "__float__", "__index__")
NATIVES[id(complex)] = _number(complex, "__complex__", "__float__", "__index__")


@_entry(round)
def _round(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _by_method(machine, round, "__round__", args, kwargs)


@_entry(math.floor)
def _floor(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _by_method(machine, math.floor, "__floor__", args, kwargs)


@_entry(math.ceil)
def _ceil(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _by_method(machine, math.ceil, "__ceil__", args, kwargs)


@_entry(math.trunc)
def _trunc(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _by_method(machine, math.trunc, "__trunc__", args, kwargs)


@_entry(reversed)
def _reversed(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and type(args[0]) not in NATIVE_TYPES:
        cls = type(args[0])
        if (
            machine.policy.type_attr(cls, "__reversed__") is MISSING
            and python_special(machine, cls, "__getitem__") is not MISSING
            and machine.policy.type_attr(cls, "__len__") is not MISSING
        ):
            return _iterate_backwards(machine, args[0], operators.length(machine, args[0]))
    return _by_method(machine, reversed, "__reversed__", args, kwargs)


def _iterate_backwards(machine: Machine, obj: Any, length: int) -> Any:
    for i in range(length - 1, -1, -1):
        yield machine.load_item(obj, i)


@_entry(sys.getsizeof)
def _getsizeof(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.policy.call_native(sys.getsizeof, args, kwargs)


def _by_method(machine: Machine, native: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    if args and not kwargs:
        method = python_special(machine, type(args[0]), name)
        if method is not MISSING:
            if len(args) == 2 and args[1] is None:
                args = args[:1]
            return call_special(machine, method, *args)
    return machine.policy.call_native(native, args, kwargs)


@_entry(divmod)
def _divmod(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2:
        return machine.policy.call_native(divmod, args, kwargs)
    return operators.binary(machine, operators.DIVMOD, *args)


@_entry(pow)
def _pow(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return operators.binary(machine, operators.BINARY_OPERATORS["**"], *args)
    return _by_method(machine, pow, "__pow__", args, kwargs)


# -- functions of module operator --------------------------------------------------------------------------------------


def _two(native: Any, apply: Callable[[Machine, Any, Any], Any]) -> Native:
    def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        if kwargs or len(args) != 2:
            return machine.policy.call_native(native, args, kwargs)
        return apply(machine, *args)

    return call


for _row in operators.BINARY_OPERATORS.values():
    NATIVES[id(_row.native)] = _two(_row.native, lambda m, a, b, row=_row: operators.binary(m, row, a, b))
for _comparison in COMPARISON_OPERATORS.values():
    NATIVES[id(_comparison.native)] = _two(
        _comparison.native, lambda m, a, b, row=_comparison: operators.compare(m, row, a, b)
    )
for _unary in (operators.UNARY_NEGATIVE, operators.UNARY_POSITIVE, operators.UNARY_INVERT):
    NATIVES[id(_unary.native)] = _one(_unary.native, lambda m, value, row=_unary: operators.unary(m, row, value))
NATIVES[id(operator.getitem)] = _two(operator.getitem, operators.load_item)
NATIVES[id(operator.delitem)] = _two(operator.delitem, operators.delete_item)
NATIVES[id(operator.contains)] = _two(operator.contains, operators.contains)


@_entry(operator.setitem)
def _setitem(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 3:
        return machine.policy.call_native(operator.setitem, args, kwargs)
    operators.store_item(machine, *args)


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
    made, parts = caller.__reduce__()
    keywords: Kwargs = {}
    if made is not operator.methodcaller:  # a partial, when there are keyword arguments
        parts, keywords = (*made.args, *parts), made.keywords
    name, *rest = parts
    return machine.policy.call(machine.policy.load_attr(args[0], name), tuple(rest), keywords)


GETTERS: Final = {
    operator.attrgetter: call_attrgetter,
    operator.itemgetter: call_itemgetter,
    operator.methodcaller: call_methodcaller,
}
"""How callable objects of module ``operator`` are carried out, by type."""


# -- iteration ---------------------------------------------------------------------------------------------------------


@_entry(iter)
def _iter(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs:
        return machine.policy.call_native(iter, (machine.shim(args[0]), args[1]), {})
    if len(args) != 1 or kwargs:
        return machine.policy.call_native(iter, args, kwargs)
    return iteration.get_iterator(machine, args[0])


@_entry(next)
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


@_entry(any)
def _any(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 1:
        return machine.policy.call_native(any, args, kwargs)
    return any(truth(machine, value) for value in iteration.iterate(machine, args[0]))


@_entry(all)
def _all(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 1:
        return machine.policy.call_native(all, args, kwargs)
    return all(truth(machine, value) for value in iteration.iterate(machine, args[0]))


@_entry(sum)
def _sum(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not 1 <= len(args) <= 2 or set(kwargs) - {"start"}:
        return machine.policy.call_native(sum, args, kwargs)
    start = args[1] if len(args) == 2 else kwargs.get("start", 0)
    values = list(iteration.iterate(machine, args[0]))
    if type(start) in LEAF_TYPES and all(type(value) in LEAF_TYPES for value in values):
        return machine.policy.call_native(sum, (values, start), {})
    if is_a(start, str | bytes | bytearray):
        return machine.policy.call_native(sum, (values, start), {})
    add = operators.BINARY_OPERATORS["+"]
    for value in values:
        start = operators.binary(machine, add, start, value)
    return start


@_entry(min)
def _min(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _extreme(machine, min, COMPARISON_OPERATORS["<"], args, kwargs)


@_entry(max)
def _max(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return _extreme(machine, max, COMPARISON_OPERATORS[">"], args, kwargs)


def _extreme(machine: Machine, native: Any, better: Any, args: Args, kwargs: Kwargs) -> Any:
    if not args or set(kwargs) - {"key", "default"} or (len(args) > 1 and "default" in kwargs):
        return machine.policy.call_native(native, args, kwargs)
    key = kwargs.get("key")
    best = best_key = MISSING
    for value in iteration.iterate(machine, args[0]) if len(args) == 1 else args:
        value_key = value if key is None else machine.policy.call(key, (value,), {})
        if best is MISSING or truth(machine, operators.compare(machine, better, value_key, best_key)):
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
        return truth(self.machine, operators.compare(self.machine, row, self.value, other.value))


def sort_key(machine: Machine, key: Any) -> Callable[[Any], Any]:
    """A key for native sorting that interprets ``key`` and the comparison of what is not a leaf."""

    def ordered(value: Any) -> Any:
        if key is not None:
            value = machine.call(key, (value,), {})
        return _Ordered(machine, value)

    return ordered


def _all_leaves(values: Any) -> bool:
    return all(type(value) in LEAF_TYPES for value in values)


@_entry(sorted)
def _sorted(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.policy.call_native(sorted, args, kwargs)
    values = list(iteration.iterate(machine, args[0]))
    _sort_list(machine, values, kwargs)
    return values


@_entry(list.sort)
def _list_sort(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 1 or set(kwargs) - {"key", "reverse"}:
        return machine.policy.call_native(list.sort, args, kwargs)
    _sort_list(machine, args[0], kwargs)


def _sort_list(machine: Machine, values: list[Any], kwargs: Kwargs) -> None:
    key = kwargs.get("key")
    if key is not None or not _all_leaves(values):
        kwargs = {**kwargs, "key": sort_key(machine, key)}
    machine.policy.call_native(list.sort, (values,), kwargs)


# -- output ------------------------------------------------------------------------------------------------------------


@_entry(print)
def _print(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    texts = tuple(to_str(machine, value) for value in args)
    return machine.policy.call_native(print, texts, kwargs)


# -- the calling frame -------------------------------------------------------------------------------------------------


@_entry(globals)
def _globals(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.frame.globals


@_entry(locals)
def _locals(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.frame.f_locals


@_entry(vars)
def _vars(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) > 1:
        return machine.policy.call_native(vars, args, kwargs)
    if not args:
        return machine.frame.f_locals
    try:
        return machine.policy.load_attr(args[0], "__dict__")
    except AttributeError:
        pass
    raise TypeError("vars() argument must have __dict__ attribute")


@_entry(dir)
def _dir(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not args and not kwargs:
        return sorted(machine.frame.f_locals)
    if len(args) == 1:
        method = python_special(machine, type(args[0]), "__dir__")
        if method is not MISSING:
            return sorted(iteration.iterate(machine, call_special(machine, method, args[0])))
    return machine.policy.call_native(dir, args, kwargs)


@_entry(eval)
def _eval(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    source, namespace, local = _scopes(machine, "eval", args, kwargs)
    if is_a(source, str):
        source = source.lstrip(" \t")
    return run_code(machine, _compiled(machine, source, "eval"), namespace, local)


@_entry(exec)
def _exec(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if set(kwargs) - {"globals", "locals"}:
        return machine.policy.call_native(exec, args, kwargs)
    source, namespace, local = _scopes(machine, "exec", args, kwargs)
    run_code(machine, _compiled(machine, source, "exec"), namespace, local)


def _scopes(machine: Machine, name: str, args: Args, kwargs: Kwargs) -> tuple[Any, Any, Any]:
    if not 1 <= len(args) <= 3:
        raise TypeError(f"{name} expected at least 1 argument, got {len(args)}")
    namespace = args[1] if len(args) > 1 else kwargs.get("globals")
    local = args[2] if len(args) > 2 else kwargs.get("locals")
    if namespace is None:
        namespace = machine.frame.globals
        if local is None:
            local = machine.frame.f_locals
    elif not is_a(namespace, dict):
        raise TypeError(f"{name}() globals must be a dict, not {type(namespace).__name__}")
    elif local is None:
        local = namespace
    namespace.setdefault("__builtins__", builtins)
    return args[0], namespace, local


_FUTURE_FLAGS = 0x1FF0000  # PyCF_MASK: the __future__ imports that code inherits


def _compiled(machine: Machine, source: Any, mode: str) -> types.CodeType:
    if is_a(source, types.CodeType):
        if source.co_freevars:
            raise TypeError(f"code object passed to {mode}() may not contain free variables")
        return source
    flags = machine.frame.code.co_flags & _FUTURE_FLAGS if machine.frames else 0
    return compile(source, "<string>", mode, flags, True)


def run_code(machine: Machine, code: types.CodeType, namespace: dict[str, Any], local: Any) -> Any:
    """Interprets module-level code."""
    decoded = decode(code)
    frame = Frame(machine, decoded, [MISSING] * len(decoded.localsplus), namespace, None, local)
    run(frame)
    return frame.result


@_entry(compile)
def _compile(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.policy.call_native(compile, args, kwargs)


@_entry(sys._getframe)
def _getframe(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    depth = args[0] if args else 0
    frames = machine.frames
    if depth < len(frames):
        return frames[-1 - depth]
    raise ValueError("call stack is not deep enough")


if hasattr(sys, "_getframemodulename"):  # from 3.12 on

    @_entry(sys._getframemodulename)
    def _getframemodulename(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        depth = args[0] if args else kwargs.get("depth", 0)
        frames = machine.frames
        return frames[-1 - depth].globals.get("__name__") if depth < len(frames) else None


@_entry(warnings.warn)
def _warn(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    """``warnings.warn``, its ``stacklevel`` counted in interpreted frames."""
    message, category, level, source, prefixes = _warning_arguments(*args, **kwargs)
    if is_a(message, Warning):
        category = type(message)
    elif category is None:
        category = UserWarning
    elif not (is_a(category, type) and issubclass(category, Warning)):
        return machine.policy.call_native(warnings.warn, args, kwargs)  # it has the message
    frames = [frame for frame in machine.frames if not frame.code.co_filename.startswith(prefixes or ("\0",))]
    level = max(level, 1)
    if level <= len(frames):
        frame = frames[-level]
        namespace, (filename, line) = frame.globals, frame.position()
    else:
        namespace, filename, line = vars(sys), "<sys>", 0
    registry = namespace.setdefault("__warningregistry__", {})
    place = (message, category, filename, line, namespace.get("__name__", "<string>"), registry, None, source)
    return machine.policy.call_native(warnings.warn_explicit, place, {})


def _warning_arguments(
    message: Any,
    category: Any = None,
    stacklevel: int = 1,
    source: Any = None,
    *,
    skip_file_prefixes: tuple[str, ...] = (),
) -> tuple[Any, Any, int, Any, tuple[str, ...]]:
    return message, category, stacklevel, source, skip_file_prefixes


@_entry(__import__)
def _import(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.policy.call_native(__import__, args, kwargs)
