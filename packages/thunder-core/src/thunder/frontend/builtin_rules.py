"""The session rules of thunder itself: a plugin with the hook `thunder_session_rules`.

Each module that is imported here and has a ``TABLE`` has lookasides; then come the handlers by type, and the
kinds of state in the order in which the end of a program asks them. Objects and variables, which every
program has, are in ``objects/``.
"""

# ruff: noqa: F401

from __future__ import annotations

import logging
import threading
import types
import weakref
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

import torch

from thunder import polyfills
from thunder.frontend.arrays import array_arguments, array_calls, traced_arrays
from thunder.frontend.arrays.array_memory import is_array_class
from thunder.frontend.checkpoints import checkpoint_regions
from thunder.frontend.custom_gradients import (
    autograd_functions,
    leaf_hooks,
    module_backward_hooks,
    node_hooks,
    retained_gradients,
    tensor_hooks,
)
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.leaf_nodes import LeafNode
from thunder.frontend.host_draws import created_generators, draw_calls
from thunder.frontend.host_draws.host_generators import is_state_class
from thunder.frontend.inner_gradients import (
    accumulated_gradients,
    autograd_calls,
    freed_graphs,
    function_levels,
)
from thunder.frontend.inner_transforms import dual_numbers, forward_derivatives, linear_maps, mapped_calls
from thunder.frontend.lookasides import (
    argument_checks,
    clocks,
    compiler_marks,
    context_values,
    control_flow,
    copying,
    custom_operators,
    environment_queries,
    grad_requests,
    hook_handles,
    imports,
    introspection,
    kernel_calls,
    kernel_flags,
    legacy_constructors,
    library_texts,
    locks,
    made_values,
    mode_regions,
    module_conversions,
    module_tracking,
    number_conversions,
    number_functions,
    optimizer_steps,
    packed_sequences,
    pickles,
    process_groups,
    python_functions,
    ranges,
    rebound_tensors,
    rng_generators,
    saved_tensor_hooks,
    transformer_masks,
    weakrefs,
)
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives import cache_contents, unread_items
from thunder.frontend.natives.cached_functions import CachedCalls
from thunder.frontend.natives.decimal_context import DecimalContext
from thunder.frontend.objects.callable_kinds import LAZY
from thunder.frontend.objects.unknown_values import DeferredText, MadeInCall
from thunder.frontend.opaque_calls import native_functions, opaque_iterators, unmodelled_operands
from thunder.frontend.output import logging_calls, printing, warning_calls
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.session_rules import Handler, SessionRules
from thunder.frontend.torch_functions import mode_stack, tensor_subclasses
from thunder.frontend.torch_functions.made_parameters import MadeParameters
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
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple, SymbolicFloat, SymbolicInt
from thunder.ir.unmodelled_proxies import UnmodelledObject, UnmodelledProxy
from thunder.plugins.markers import hookimpl
from thunder.polyfills.native_classes import NATIVE_CLASSES
from thunder.wrappers.compiled_function import CompiledFunction

__all__ = ["thunder_session_rules"]


_LOOKASIDES: Final = LookasideTable.merged(m.TABLE for m in list(globals().values()) if hasattr(m, "TABLE"))


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
    truth=lambda session, number: bool(number),
    number=conversions.number_of_symbol,
)

# -- the tables ----------------------------------------------------------------------------------------------

_HANDLERS: Final[dict[Any, Handler]] = {
    TensorProxy: Handler(
        load=tensors.load_attr,
        store=tensors.store_attr,
        delete=tensors.delete_attr,
        class_of=seen_type,
        is_same=_is_same_tensor,
        truth=conversions.truth_of_tensor,
        number=conversions.number_of_tensor,
        inherited=True,
    ),
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
    freed_graphs.ResultOfFreed: Handler(made_by=freed_graphs.made_by),
    list: Handler(truth=unread_items.truth),
    **dict.fromkeys(
        weakrefs.UNKNOWN,
        Handler(class_of=lambda session, unknown: unknown.__class__, is_same=weakrefs.is_same),
    ),
    torch.nn.Module: Handler(load=module_members.load_attr, store=module_members.store_attr, inherited=True),
    CompiledFunction: Handler(
        load=module_members.load_of_compiled,
        store=lambda session, fn, name, value: session.store_attr(_compiled(session, fn), name, value),
        delete=lambda session, fn, name: session.delete_attr(_compiled(session, fn), name),
    ),
    torch.Generator: Handler(load=rng_generators.load_attr),
    ContextVar: Handler(load=context_values.load_attr),
    types.ModuleType: Handler(load=printing.load_of_module, store=printing.store_of_module),
    printing.StandardStream: Handler(load=printing.load_of_stream),
    threading.local: Handler(load=_load_of_thread),
    types.MethodType: Handler(class_of=tensors.class_of_method),
    map: Handler(class_of=_class_of_iterator),
    logging.Filterer: Handler(store=logging_calls.store_attr, inherited=True),
    **dict.fromkeys(LAZY, Handler(load=_load_lazy)),
    is_state_class: Handler(load=draw_calls.load_attr, store=created_generators.set_attribute),
    is_array_class: Handler(
        load=array_calls.load_attr,
        store=array_calls.store_attr,
        adopt=traced_arrays.adopt,
        made_by=traced_arrays.made_by,
    ),
}

_KINDS: Final[tuple[type[SessionState], ...]] = (
    rebound_tensors.ReboundTensors,  # adds writes in place, at which others look
    locks.Locks,
    weakrefs.Callbacks,
    weakrefs.Finalizers,
    leaf_hooks.LeafHooks,
    tensor_hooks.TensorHooks,
    module_backward_hooks.HookedModules,
    MadeParameters,
    BackwardState,
    context_values.ContextVariables,
    DecimalContext,
    CachedCalls,
    traced_arrays.Arrays,
    opaque_iterators.OpaqueIterators,
    WrittenAttributes,  # adds tensors to the results, which may be leaves
    grad_requests.GradRequests,
    retained_gradients.RetainedGradients,
)


@hookimpl
def thunder_session_rules() -> tuple[SessionRules, ...]:
    """Return the rules of thunder's own modules."""
    return (SessionRules("thunder", lookasides=_LOOKASIDES, handlers=_HANDLERS, kinds=_KINDS),)
