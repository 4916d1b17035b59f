"""Calls of torch's functions that modes and arguments override.

Note [Overrides of torch's functions]
Torch calls ``__torch_function__`` in one place for all functions that are implemented in C, and each of its
Python functions begins with a test, ``has_torch_function``. So does a traced program:

    torch.add(x, y)      torch's parser decides, under a mode of ours, whether and as which function the call
                         is overridden, and by which classes; then the mode or the method is interpreted
    F.softmax(x, 0)      its own code is interpreted, in place of its row; it calls ``has_torch_function``
    x.shape              as a call of ``torch.Tensor.shape.__get__``
    x * 2                runs natively under a mode of ours, which receives ``torch.Tensor.mul``

The order is torch's: the innermost mode, which is left meanwhile; then the arguments, subclasses first. A
call that no override is left for is recorded.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import torch

from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.frontend.natives import native_calls
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions, has_method, overrides, seen_type
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SymbolicNumber, hint_of
from thunder.ops.stand_ins import stand_in_tensor
from thunder.torch.argument_parser import SILENT, stand_in

__all__ = [
    "NOT_OVERRIDDEN",
    "access",
    "call",
    "call_native",
    "has_foreign",
    "has_override",
    "is_accessor",
    "overloaded_arguments",
    "override",
]


class _NotOverridden:
    """The type of :data:`NOT_OVERRIDDEN`."""


NOT_OVERRIDDEN: Final = _NotOverridden()
"""What :func:`call` returns for a call that is recorded as it is."""

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_TESTS: Final = frozenset(
    {"has_torch_function", "has_torch_function_unary", "has_torch_function_variadic", "handle_torch_function"}
)
#: functions implemented in C that call modes, and are no operators
_OTHERS: Final = frozenset({id(torch._C._set_grad_enabled), id(torch.device)})
#: methods of a proxy by the id of their function → torch's methods of the same names
_OF_PROXIES: Final = {
    id(method): getattr(torch.Tensor, name)
    for name, method in vars(TensorProxy).items()
    if isinstance(method, types.FunctionType)
    and name not in ("__init__", "__hash__")
    and hasattr(torch.Tensor, name)
}


def call(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call a function of torch by the override protocol; NOT_OVERRIDDEN if no override is left."""
    of_proxy, fn = fn, _OF_PROXIES.get(id(fn), fn)
    if isinstance(fn, types.FunctionType):
        if of_proxy is fn and not _tests_overrides(session, fn):
            return NOT_OVERRIDDEN
        session.read_lists(*args, *kwargs.values())
        if not has_override(session, _leaves(args, kwargs)):
            return NOT_OVERRIDDEN
        return session.machine.generic_call(fn, args, kwargs)
    if not _is_native_of_torch(session, fn):
        return NOT_OVERRIDDEN
    session.read_lists(*args, *kwargs.values())
    parsed = _parsed(session, fn, args, kwargs)
    if parsed is None:
        return NOT_OVERRIDDEN
    function, classes, has_keywords = parsed
    values = list(_leaves(args, kwargs))
    if not session.state(TorchFunctions).has_modes and not any(overrides(session, v) for v in values):
        return NOT_OVERRIDDEN
    overloaded = [next(v for v in values if session.class_of(v) is cls) for cls in classes]
    return override(session, function, overloaded, args, kwargs if has_keywords else None)


def has_foreign(values: Sequence[Any]) -> bool:
    """Return whether an argument is no tensor and has ``__torch_function__``."""
    if _ORDINARY.issuperset(map(type, values)):
        return False
    return any(type(v) not in _ORDINARY and hasattr(type(v), "__torch_function__") for v in values)


_ORDINARY: Final = frozenset(
    {TensorProxy, int, float, bool, str, tuple, list, slice, type(None), torch.dtype}
)


def access(
    session: TracingSession, name: str, method: Literal["__get__", "__set__"], x: TensorProxy, *value: Any
) -> Any:
    """Read or write an attribute of a tensor by the override protocol.

    Return NOT_OVERRIDDEN if no override is left.
    """
    descriptor = vars(torch._C.TensorBase).get(name)
    if not isinstance(descriptor, types.GetSetDescriptorType) or name == "__dict__":
        return NOT_OVERRIDDEN
    return call(session, getattr(getattr(torch.Tensor, name), method), (x, *value), {})


def is_accessor(fn: Any) -> bool:
    """Return whether ``fn`` is ``__get__`` or ``__set__`` of an attribute of torch's tensors."""
    owner: Any = getattr(fn, "__self__", None) if isinstance(fn, types.MethodWrapperType) else None
    return isinstance(owner, types.GetSetDescriptorType) and owner.__objclass__ is torch._C.TensorBase


def has_override(session: TracingSession, values: Iterable[Any]) -> bool:
    """Return whether a mode, or one of these arguments, overrides a call of torch."""
    state = session.state(TorchFunctions)
    if state.has_modes:
        return True
    return state.subclasses_override and any(overrides(session, value) for value in values)


def override(
    session: TracingSession, function: Any, overloaded: Sequence[Any], args: Args, kwargs: Kwargs | None
) -> Any:
    """Call the innermost mode, and then ``__torch_function__`` of arguments, until one implements the call.

    ``kwargs`` of None are not passed on. Raises TypeError, as torch, if none does.
    """
    state = session.state(TorchFunctions)
    classes = tuple(session.class_of(value) for value in overloaded)
    passed = (function, classes, args) if kwargs is None else (function, classes, args, kwargs)
    mode = None
    if state.has_modes:
        with state.popped() as mode:
            result = session.call(session.load_attr(mode, "__torch_function__"), passed, {})
        if result is not NotImplemented:
            return result
    for value in overloaded:
        result = session.call(session.load_attr(value, "__torch_function__"), passed, {})
        if result is not NotImplemented:
            return result
    name = f"{function.__module__}.{function.__name__}"
    text = f"no implementation found for '{name}' on types that implement __torch_function__: {list(classes)}"
    raise TypeError(text if mode is None else f"{text} nor in mode {type(mode).__qualname__}")


def overloaded_arguments(session: TracingSession, relevant: Iterable[Any]) -> list[Any]:
    """Return the arguments whose classes have ``__torch_function__``, one for each class, subclasses first.

    Tensors of torch's own classes are among them, as in ``torch.overrides.handle_torch_function``.
    """
    if not session.state(TorchFunctions).subclasses_override:
        return []
    overloaded: dict[type, Any] = {}
    for value in relevant:
        cls = session.class_of(value)
        if cls in overloaded or not (cls is torch.Tensor or has_method(session, cls)):
            continue
        place = next((i for i, other in enumerate(overloaded) if issubclass(cls, other)), len(overloaded))
        items = list(overloaded.items())
        overloaded = dict([*items[:place], (cls, value), *items[place:]])
    return list(overloaded.values())


# -- torch's own decision ------------------------------------------------------------------------------------


class _Parse:
    """A mode that keeps what torch passes to it."""

    parsed: tuple[Any, tuple[type, ...], bool] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.parsed = func, tuple(types), kwargs is not None
        return None


def _parsed(
    session: TracingSession, fn: Any, args: Args, kwargs: Kwargs
) -> tuple[Any, tuple[type, ...], bool] | None:
    """Return the function, the classes and whether keywords are passed on, as torch's parser finds them.

    None for a call that torch does not accept, or does not offer to overrides.
    """
    if fn in SILENT:
        return None
    leaves, spec = tree_flatten((args, kwargs))
    stand_args, stand_kwargs = tree_unflatten([_stand_in(session, leaf) for leaf in leaves], spec)
    parse = _Parse()
    torch._C._push_on_torch_function_stack(parse)
    try:
        fn(*stand_args, **stand_kwargs)
    except (
        Exception
    ):  # an error of the parser, which the row repeats; or the result has not the type of a slot's
        if parse.parsed is None:
            return None
    finally:
        torch._C._pop_torch_function_stack()
    return parse.parsed


def _stand_in(session: TracingSession, value: Any) -> Any:
    """Return a value of the same class, without data, for torch's parser."""
    if not isinstance(value, TensorProxy):
        return value.hint if isinstance(value, SymbolicNumber) else stand_in(value)
    cls = seen_type(session, value)
    with torch._C.DisableTorchFunction():
        tensor = stand_in_tensor(value, "meta", size=hint_of, requires_grad=True)  # the parser reads no sizes
        return (
            tensor if cls is torch.Tensor else torch.Tensor._make_subclass(cls, tensor, tensor.requires_grad)
        )


def _is_native_of_torch(session: TracingSession, fn: Any) -> bool:
    if isinstance(fn, types.BuiltinFunctionType | type):
        return id(fn) in _OTHERS or native_calls.is_unknown_torch(fn)
    return is_accessor(fn) or native_calls.is_unknown_torch(fn)


def _tests_overrides(session: TracingSession, fn: types.FunctionType) -> bool:
    """Return whether a Python function is torch's, and its code, which has a rule, tests for overrides."""
    if str(fn.__module__).partition(".")[0] != "torch":
        return False
    return fn in session.language.functions or not _TESTS.isdisjoint(fn.__code__.co_names)


def _leaves(args: Args, kwargs: Kwargs) -> Iterator[Any]:
    """Yield the arguments, and the elements of lists and tuples among them, in torch's order."""
    for value in (*args, *kwargs.values()):
        if type(value) in (list, tuple):
            yield from _leaves(tuple(value), {})
        else:
            yield value


# -- native code ---------------------------------------------------------------------------------------------


class _Bridge:
    """A mode that hands calls of torch by native code over to the session."""

    def __init__(self, session: TracingSession) -> None:
        self._session = session

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        return self._session.call(func, args, kwargs or {})


def call_native(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call native code such as ``operator.mul``, whose calls of torch may be overridden."""
    if not _calls_operators(fn) or not any(isinstance(v, TensorProxy) for v in _leaves(args, kwargs)):
        return session.run_native(fn, args, kwargs)
    torch._C._push_on_torch_function_stack(_Bridge(session))
    try:
        return session.run_native(fn, args, kwargs)
    finally:
        torch._C._pop_torch_function_stack()


def _calls_operators(fn: Any) -> bool:
    """Return whether native code calls operators of its arguments, and reads nothing else of them."""
    return isinstance(fn, types.BuiltinFunctionType) and (
        fn.__module__ == operator.add.__module__ or fn in (sum, abs, pow, divmod)
    )
