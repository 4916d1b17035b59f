"""Constants; local, global and closure variables; names of class bodies and modules."""

from __future__ import annotations

from types import CellType
from typing import Any, NoReturn

from thunder.interpreter.frame import Frame
from thunder.interpreter.lookup import is_a
from thunder.interpreter.policy import MISSING


def LOAD_CONST(frame: Frame, stack: list[Any], value: Any) -> None:
    stack.append(value)


def PUSH_NULL(frame: Frame, stack: list[Any], arg: None) -> None:
    stack.append(MISSING)


# -- local variables -----------------------------------------------------------------------------------------


def LOAD_FAST(frame: Frame, stack: list[Any], index: int) -> None:
    value = frame.fast[index]
    if value is MISSING:
        raise_unbound_local(frame, index)
    stack.append(value)


def LOAD_FAST_AND_CLEAR(frame: Frame, stack: list[Any], index: int) -> None:
    """Saves a variable around an inlined comprehension; it may be unbound."""
    stack.append(frame.fast[index])
    frame.fast[index] = MISSING


def LOAD_FAST_LOAD_FAST(frame: Frame, stack: list[Any], indices: tuple[int, int]) -> None:
    LOAD_FAST(frame, stack, indices[0])
    LOAD_FAST(frame, stack, indices[1])


def STORE_FAST(frame: Frame, stack: list[Any], index: int) -> None:
    value = frame.fast[index] = stack.pop()
    watch = frame.machine.on_store_local
    if watch is not None and value is not MISSING:
        watch(frame, frame.decoded.localsplus[index], value)


def STORE_FAST_LOAD_FAST(frame: Frame, stack: list[Any], indices: tuple[int, int]) -> None:
    STORE_FAST(frame, stack, indices[0])
    LOAD_FAST(frame, stack, indices[1])


def STORE_FAST_STORE_FAST(frame: Frame, stack: list[Any], indices: tuple[int, int]) -> None:
    STORE_FAST(frame, stack, indices[0])
    STORE_FAST(frame, stack, indices[1])


def DELETE_FAST(frame: Frame, stack: list[Any], index: int) -> None:
    if frame.fast[index] is MISSING:
        raise_unbound_local(frame, index)
    frame.fast[index] = MISSING


def raise_unbound_local(frame: Frame, index: int) -> NoReturn:
    """The error of reading a local variable before it is bound."""
    name = frame.decoded.localsplus[index]
    raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


# -- closure variables ---------------------------------------------------------------------------------------


def MAKE_CELL(frame: Frame, stack: list[Any], index: int) -> None:
    value = frame.fast[index]
    cell = CellType() if value is MISSING else CellType(value)
    on_make = frame.machine.on_make
    frame.fast[index] = cell if on_make is None else on_make(cell)


def LOAD_CLOSURE(frame: Frame, stack: list[Any], index: int) -> None:
    """Pushes the cell itself."""
    stack.append(frame.fast[index])


def LOAD_DEREF(frame: Frame, stack: list[Any], index: int) -> None:
    value = frame.machine.policy.load_cell(frame.fast[index])
    if value is MISSING:
        raise_unbound_cell(frame, index)
    stack.append(value)


def STORE_DEREF(frame: Frame, stack: list[Any], index: int) -> None:
    frame.machine.policy.store_cell(frame.fast[index], stack.pop())


def DELETE_DEREF(frame: Frame, stack: list[Any], index: int) -> None:
    policy = frame.machine.policy
    if policy.load_cell(frame.fast[index]) is MISSING:
        raise_unbound_cell(frame, index)
    policy.delete_cell(frame.fast[index])


def raise_unbound_cell(frame: Frame, index: int) -> NoReturn:
    """The error of reading an empty cell."""
    if index < frame.decoded.first_free:
        raise_unbound_local(frame, index)
    name = frame.decoded.localsplus[index]
    raise NameError(
        f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
        name=name,
    )


def LOAD_CLASSDEREF(frame: Frame, stack: list[Any], index: int) -> None:
    """A closure variable read in a class body, whose own names come first."""
    stack.append(frame.namespace)
    LOAD_FROM_DICT_OR_DEREF(frame, stack, index)


def LOAD_FROM_DICT_OR_DEREF(frame: Frame, stack: list[Any], index: int) -> None:
    value = load_name(frame, stack.pop(), frame.decoded.localsplus[index])
    if value is MISSING:
        LOAD_DEREF(frame, stack, index)
    else:
        stack.append(value)


# -- globals and namespaces ----------------------------------------------------------------------------------


def LOAD_GLOBAL(frame: Frame, stack: list[Any], name: str) -> None:
    namespace = frame.globals
    if type(namespace) is not dict and is_a(namespace, dict):  # it may have a ``__missing__``
        value = _load_item(frame, namespace, name)
        if value is MISSING:
            value = frame.builtins.get(name, MISSING)
    else:
        value = frame.machine.policy.load_global(namespace, frame.builtins, name)
    if value is MISSING:
        raise_name(name)
    stack.append(value)


def LOAD_GLOBAL_TO_CALL(frame: Frame, stack: list[Any], name: str) -> None:
    stack.append(MISSING)
    LOAD_GLOBAL(frame, stack, name)


def STORE_GLOBAL(frame: Frame, stack: list[Any], name: str) -> None:
    frame.machine.policy.store_global(frame.globals, name, stack.pop())


def DELETE_GLOBAL(frame: Frame, stack: list[Any], name: str) -> None:
    try:
        frame.machine.policy.delete_global(frame.globals, name)
        return
    except KeyError:
        pass
    raise_name(name)


def raise_name(name: str) -> NoReturn:
    """The error of reading an unknown name."""
    raise NameError(f"name '{name}' is not defined", name=name)


def load_name(frame: Frame, namespace: Any, name: str) -> Any:
    """A name in the namespace of a class body or module, or MISSING."""
    if type(namespace) is dict and namespace is not frame.globals:
        return namespace.get(name, MISSING)
    if namespace is frame.globals:
        return frame.machine.policy.load_global(namespace, {}, name)
    return _load_item(frame, namespace, name)


def _load_item(frame: Frame, namespace: Any, name: str) -> Any:
    """``namespace[name]``, or MISSING."""
    try:
        return frame.machine.load_item(namespace, name)
    except KeyError:
        return MISSING


def LOAD_NAME(frame: Frame, stack: list[Any], name: str) -> None:
    value = load_name(frame, frame.namespace, name)
    if value is MISSING:
        LOAD_GLOBAL(frame, stack, name)
    else:
        stack.append(value)


def STORE_NAME(frame: Frame, stack: list[Any], name: str) -> None:
    value = stack.pop()
    namespace = frame.namespace
    if namespace is frame.globals:
        frame.machine.policy.store_global(frame.globals, name, value)
    elif type(namespace) is dict:
        namespace[name] = value
    else:
        frame.machine.store_item(namespace, name, value)


def DELETE_NAME(frame: Frame, stack: list[Any], name: str) -> None:
    if frame.namespace is frame.globals:
        DELETE_GLOBAL(frame, stack, name)
        return
    try:
        frame.machine.delete_item(frame.namespace, name)
        return
    except KeyError:
        pass
    raise_name(name)


def LOAD_LOCALS(frame: Frame, stack: list[Any], arg: None) -> None:
    stack.append(frame.namespace)


def LOAD_FROM_DICT_OR_GLOBALS(frame: Frame, stack: list[Any], name: str) -> None:
    value = load_name(frame, stack.pop(), name)
    if value is MISSING:
        LOAD_GLOBAL(frame, stack, name)
    else:
        stack.append(value)


def SETUP_ANNOTATIONS(frame: Frame, stack: list[Any], arg: None) -> None:
    if load_name(frame, frame.namespace, "__annotations__") is MISSING:
        stack.append({})
        STORE_NAME(frame, stack, "__annotations__")
