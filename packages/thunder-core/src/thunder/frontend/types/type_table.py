"""One table: what attributes, class, identity and truth of an object are to the program, by its exact type.

obj.name           →   HANDLERS[type(obj)].load(session, obj, name)
obj.name = value   →   HANDLERS[type(obj)].store(session, obj, name, value)
obj is other       →   HANDLERS[type(obj)].is_same(session, obj, other), then that of the other
if obj: …          →   HANDLERS[type(obj)].truth(session, obj)
float(obj)         →   HANDLERS[type(obj)].number(session, obj, float)

A column that a type leaves out is Python's own protocol, interpreted. Calls have their rows in
:data:`~thunder.frontend.call_dispatch.RESOLVERS`.
"""

from __future__ import annotations

import logging
import threading
import types
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder import polyfills
from thunder.frontend.arrays import array_calls
from thunder.frontend.arrays.array_memory import is_array_class
from thunder.frontend.custom_gradients.leaf_nodes import LeafNode
from thunder.frontend.host_draws import created_generators, draw_calls
from thunder.frontend.host_draws.host_generators import is_state_class
from thunder.frontend.lookasides import context_values, made_values, rng_generators, weakrefs
from thunder.frontend.natives import unread_items
from thunder.frontend.objects.callable_kinds import LAZY
from thunder.frontend.objects.unknown_values import DeferredText, MadeInCall
from thunder.frontend.opaque_calls import native_functions, opaque_iterators, unmodelled_operands
from thunder.frontend.output import logging_calls, printing
from thunder.frontend.output.printing import StandardStream
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import seen_type
from thunder.frontend.types import (
    conversions,
    gradient_nodes,
    module_members,
    number_members,
    same_tensors,
    tensors,
)
from thunder.frontend.types.gradient_nodes import GradientNode
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicFloat, SymbolicInt
from thunder.ir.unmodelled_proxies import UnmodelledObject, UnmodelledProxy
from thunder.polyfills.native_classes import NATIVE_CLASSES
from thunder.wrappers.compiled_function import CompiledFunction

__all__ = ["HANDLERS", "Handler", "HandlerTable"]


@dataclass(frozen=True, eq=False, slots=True)
class Handler:
    """The rules of one type; None is Python's own protocol.

    ``is_same(session, a, b)`` is asked of an ``a`` of the type. It, ``truth`` and ``number`` return
    NotImplemented where they do not know.
    """

    load: Callable[[TracingSession, Any, str], Any] | None = None
    store: Callable[[TracingSession, Any, str, Any], None] | None = None
    delete: Callable[[TracingSession, Any, str], None] | None = None
    class_of: Callable[[TracingSession, Any], type] | None = None
    is_same: Callable[[TracingSession, Any, Any], Any] | None = None
    truth: Callable[[TracingSession, Any], Any] | None = None
    number: Callable[[TracingSession, Any, Callable[..., Any]], Any] | None = None


class HandlerTable(dict[type, Handler]):
    """The handlers of one session; a class that is not in the table has the row of its first base with one.

    The table holds the classes that it has met, and ends with the session.
    """

    def __init__(self) -> None:
        super().__init__(HANDLERS)

    def __missing__(self, cls: type) -> Handler:
        if is_state_class(cls):
            handler = _STATE_OF_NUMPY
        elif is_array_class(cls):
            handler = _ARRAY
        else:
            handler = next((_INHERITED[base] for base in cls.__mro__ if base in _INHERITED), _PLAIN)
        self[cls] = handler
        return handler


# -- rules that need no module of their own ------------------------------------------------------------------


def _load_lazy(session: TracingSession, obj: Any, name: str) -> Any:
    getattr(obj, name, None)  # creates the attribute, which is then read as any other
    return session.load_plain(obj, name)


def _class_of_polyfill(session: TracingSession, obj: Any) -> type:
    is_inside = session.machine.globals.get("__name__", "").startswith(polyfills.__name__)
    return type(obj) if is_inside else NATIVE_CLASSES[type(obj)]


def _load_of_thread(session: TracingSession, obj: threading.local, name: str) -> Any:
    if name != "__dict__":
        return session.load_plain(obj, name)
    entry = session.resolve_entry(obj)
    return obj.__dict__ if entry is None else entry.own


def _is_same_tensor(session: TracingSession, a: TensorProxy, b: Any) -> Any:
    if not issubclass(type(b), TensorProxy):
        return NotImplemented
    if same_tensors.is_same(session, a, b):
        return True
    opaque_iterators.refuse_identity(session, a, b)
    return NotImplemented


def _class_of_iterator(session: TracingSession, iterator: Any) -> type:
    """Return the class of an iterator, or of the user's in whose place it is."""
    entry = session.entry_of(iterator)
    return type(iterator) if entry is None else type(entry.obj)


_compiled: Final = module_members.wrapped_callable


# -- the table -----------------------------------------------------------------------------------------------

_PLAIN: Final = Handler()
_STATE_OF_NUMPY: Final = Handler(load=draw_calls.load_attr, store=created_generators.set_attribute)
_ARRAY: Final = Handler(load=array_calls.load_attr, store=array_calls.store_attr)
_TENSOR: Final = Handler(
    load=tensors.load_attr,
    store=tensors.store_attr,
    delete=tensors.delete_attr,
    class_of=seen_type,
    is_same=_is_same_tensor,
    truth=conversions.truth_of_tensor,
    number=conversions.number_of_tensor,
)
_NUMBER: Final = Handler(
    load=number_members.load_attr,
    store=number_members.store_attr,
    delete=number_members.delete_attr,
    class_of=number_members.class_of,
    is_same=number_members.is_same,
    truth=conversions.truth_of_number,
    number=conversions.number_of_number,
)
_SYMBOL: Final = replace(
    _NUMBER,
    load=number_members.load_of_symbol,
    truth=lambda session, number: bool(number),
    number=conversions.number_of_symbol,
)

HANDLERS: Final[dict[type, Handler]] = {
    TensorProxy: _TENSOR,
    UnmodelledProxy: Handler(
        load=unmodelled_operands.load_attr,
        store=unmodelled_operands.store_attr,
        delete=unmodelled_operands.delete_attr,
        class_of=lambda session, x: x.seen_class,
        is_same=_is_same_tensor,
    ),
    UnmodelledObject: Handler(
        load=native_functions.load_attr,
        store=native_functions.store_attr,
        class_of=lambda session, x: x.seen_class,
    ),
    **dict.fromkeys(number_members.NUMBERS, _NUMBER),
    **dict.fromkeys((SymbolicInt, SymbolicFloat), _SYMBOL),
    SizeTuple: Handler(class_of=lambda session, size: torch.Size),
    **dict.fromkeys(NATIVE_CLASSES, Handler(class_of=_class_of_polyfill)),
    GradientNode: Handler(
        load=gradient_nodes.load_attr,
        class_of=lambda session, node: node.seen_class(),
        is_same=lambda session, node, other: bool(node == other),
    ),
    LeafNode: Handler(load=gradient_nodes.load_attr, class_of=lambda session, node: node.seen_class()),
    MadeInCall: Handler(load=made_values.load_attr, class_of=lambda session, made: type(made.sample)),
    weakrefs.Finalizer: Handler(class_of=lambda session, finalizer: weakref.finalize),
    DeferredText: Handler(class_of=lambda session, text: str),
    list: Handler(truth=unread_items.truth),
    **dict.fromkeys(
        weakrefs.UNKNOWN,
        Handler(class_of=lambda session, unknown: unknown.__class__, is_same=weakrefs.is_same),
    ),
    torch.nn.Module: Handler(load=module_members.load_attr, store=module_members.store_attr),
    CompiledFunction: Handler(
        load=module_members.load_of_compiled,
        store=lambda session, fn, name, value: session.store_attr(_compiled(session, fn), name, value),
        delete=lambda session, fn, name: session.delete_attr(_compiled(session, fn), name),
    ),
    torch.Generator: Handler(load=rng_generators.load_attr),
    ContextVar: Handler(load=context_values.load_attr),
    types.ModuleType: Handler(load=printing.load_of_module, store=printing.store_of_module),
    StandardStream: Handler(load=printing.load_of_stream),
    threading.local: Handler(load=_load_of_thread),
    types.MethodType: Handler(class_of=tensors.class_of_method),
    map: Handler(class_of=_class_of_iterator),
    logging.Filterer: Handler(store=logging_calls.store_attr),
    **dict.fromkeys(LAZY, Handler(load=_load_lazy)),
}
"""By exact type, what is not Python's own protocol."""

#: the types whose rows hold for classes derived from them
_INHERITED: Final = {cls: HANDLERS[cls] for cls in (TensorProxy, torch.nn.Module, logging.Filterer)}
