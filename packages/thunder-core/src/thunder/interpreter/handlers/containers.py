"""Building, extending and unpacking containers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder.interpreter import iteration
from thunder.interpreter.frame import Frame
from thunder.interpreter.lookup import is_a
from thunder.interpreter.native_callbacks import pairs_of_mapping
from thunder.interpreter.policy import MISSING


def _push_created(frame: Frame, stack: list[Any], created: Any) -> None:
    on_make = frame.machine.on_make
    stack.append(created if on_make is None else on_make(created))


def _take(stack: list[Any], count: int) -> list[Any]:
    start = len(stack) - count
    items = stack[start:]
    del stack[start:]
    return items


def BUILD_TUPLE(frame: Frame, stack: list[Any], count: int) -> None:
    _push_created(frame, stack, tuple(_take(stack, count)))


def BUILD_LIST(frame: Frame, stack: list[Any], count: int) -> None:
    _push_created(frame, stack, _take(stack, count))


def BUILD_SET(frame: Frame, stack: list[Any], count: int) -> None:
    items = _seen_keys(frame, _take(stack, count), ())
    _push_created(frame, stack, set(items))


def BUILD_MAP(frame: Frame, stack: list[Any], count: int) -> None:
    items = _take(stack, 2 * count)
    keys = _seen_keys(frame, items[::2], ())
    _push_created(frame, stack, dict(zip(keys, items[1::2], strict=True)))


def BUILD_CONST_KEY_MAP(frame: Frame, stack: list[Any], count: int) -> None:
    keys = stack.pop()
    _push_created(frame, stack, dict(zip(keys, _take(stack, count), strict=True)))


def LIST_TO_TUPLE(frame: Frame, stack: list[Any], arg: None) -> None:
    _push_created(frame, stack, tuple(stack.pop()))


def LIST_APPEND(frame: Frame, stack: list[Any], depth: int) -> None:
    value = stack.pop()
    stack[-depth].append(value)


def SET_ADD(frame: Frame, stack: list[Any], depth: int) -> None:
    if not is_a(stack[-depth - 1], set):  # of a variable that the program may bind to anything (3.14)
        raise TypeError(f"'{type(stack[-depth - 1]).__name__}' object is not a set")
    (value,) = _seen_keys(frame, [stack.pop()], stack[-depth])
    stack[-depth].add(value)


def MAP_ADD(frame: Frame, stack: list[Any], depth: int) -> None:
    value = stack.pop()
    (key,) = _seen_keys(frame, [stack.pop()], stack[-depth])
    stack[-depth][key] = value


def _seen_keys(frame: Frame, keys: list[Any], container: Iterable[Any]) -> list[Any]:
    """Return keys that are added to a container, as the policy gives them."""
    on_keys = frame.machine.on_keys
    return on_keys(keys, container) if on_keys is not None and keys else keys


def LIST_EXTEND(frame: Frame, stack: list[Any], depth: int) -> None:
    items = stack.pop()
    policy = frame.machine.policy
    cls = type(items)
    if policy.type_attr(cls, "__iter__") is MISSING and policy.type_attr(cls, "__getitem__") is MISSING:
        raise TypeError(f"Value after * must be an iterable, not {cls.__name__}")
    stack[-depth].extend(iteration.iterate(frame.machine, items))


def SET_UPDATE(frame: Frame, stack: list[Any], depth: int) -> None:
    items = _seen_keys(frame, list(iteration.iterate(frame.machine, stack.pop())), stack[-depth])
    stack[-depth].update(items)


def DICT_UPDATE(frame: Frame, stack: list[Any], depth: int) -> None:
    source = stack.pop()
    if not is_a(source, dict) and not _has_keys(frame, source):
        raise TypeError(f"'{type(source).__name__}' object is not a mapping")
    pairs = pairs_of_mapping(frame.machine, source)
    _seen_keys(frame, list(pairs) if is_a(pairs, dict) else [key for key, _ in pairs], stack[-depth])
    stack[-depth].update(pairs)


def _has_keys(frame: Frame, source: Any) -> bool:
    return frame.machine.policy.type_attr(type(source), "keys") is not MISSING


def DICT_MERGE(frame: Frame, stack: list[Any], depth: int) -> None:
    """Add ``**source`` to the keyword arguments of a call, whose callable is two below."""
    source = stack.pop()
    target = stack[-depth]
    if not is_a(source, dict) and not _has_keys(frame, source):
        raise TypeError(
            f"{describe_callable(stack, depth)} argument after ** must be a mapping, "
            f"not {type(source).__name__}"
        )
    pairs = pairs_of_mapping(frame.machine, source)
    for key, value in pairs.items() if is_a(pairs, dict) else pairs:
        if key in target:
            raise TypeError(
                f"{describe_callable(stack, depth)} got multiple values for keyword argument '{key}'"
            )
        target[key] = value


def describe_callable(stack: list[Any], depth: int) -> str:
    """Return the name of the callable beneath the arguments (``_PyObject_FunctionStr``)."""
    fn = stack[-depth - 2]
    if fn is MISSING:
        fn = stack[-depth - 3]
    return function_name(fn)


def function_name(fn: Any) -> str:
    """``module.qualname()`` of a callable, the module left out for builtins."""
    qualname = getattr(fn, "__qualname__", None)
    if qualname is None:
        return str(fn)
    module = getattr(fn, "__module__", None)
    return f"{qualname}()" if module in (None, "builtins") else f"{module}.{qualname}()"


def UNPACK_SEQUENCE(frame: Frame, stack: list[Any], count: int) -> None:
    items = iteration.unpack(frame.machine, stack.pop(), count)
    items.reverse()
    stack += items


def UNPACK_EX(frame: Frame, stack: list[Any], counts: tuple[int, int]) -> None:
    before, starred, after = iteration.unpack_starred(frame.machine, stack.pop(), *counts)
    stack += reversed(after)
    _push_created(frame, stack, starred)
    stack += reversed(before)
