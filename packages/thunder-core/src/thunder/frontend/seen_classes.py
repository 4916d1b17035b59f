"""The class that the program sees of what a trace has in the place of an object."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.frontend.lookasides import tensors, weakrefs
from thunder.frontend.lookasides.gradient_nodes import GradientNode
from thunder.frontend.lookasides.number_members import NUMBERS
from thunder.frontend.objects.unknown_values import DeferredText, MadeInCall
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import seen_type
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicFloat, SymbolicInt
from thunder.ir.unmodelled_proxies import UnmodelledObject, UnmodelledProxy

__all__ = ["seen_class"]


def seen_class(session: TracingSession, obj: Any) -> type:
    """Return the class of an object as the program sees it."""
    seen = _SEEN_CLASSES.get(type(obj))
    return type(obj) if seen is None else seen(session, obj)


def _of_iterator(session: TracingSession, iterator: Any) -> type:
    """Return the class of an iterator, or of the user's in whose place it is."""
    entry = session.entry_of(iterator)
    return type(iterator) if entry is None else type(entry.obj)


_SEEN_CLASSES: Final[dict[type, Callable[[TracingSession, Any], type]]] = {
    TensorProxy: seen_type,
    UnmodelledProxy: lambda session, x: x.seen_class,
    UnmodelledObject: lambda session, x: x.seen_class,
    **dict.fromkeys((*NUMBERS, SymbolicInt, SymbolicFloat), lambda session, number: number.python_type),
    SizeTuple: lambda session, size: torch.Size,
    DeferredText: lambda session, text: str,
    GradientNode: lambda session, node: node.seen_class(),
    MadeInCall: lambda session, value: type(value.sample),
    types.MethodType: tensors.class_of_method,
    map: _of_iterator,
    **dict.fromkeys(weakrefs.UNKNOWN, lambda session, unknown: unknown.__class__),
}
