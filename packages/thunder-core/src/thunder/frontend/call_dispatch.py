"""The order in which a call of the traced program finds what does it.

Note [Order of dispatch]
A call is resolved to one handler. The exact type of the callable selects a row of :data:`RESOLVERS`; the
first resolver of the row that returns a handler decides. Where none does, the interpreter calls as Python
would (:func:`thunder.interpreter.calls.generic_call`, Note [Order of calls]): Python functions are
interpreted, and native code arrives in the policy's ``call_native``, where the tables of
:mod:`~thunder.frontend.natives.native_calls` decide whether it may run.

    (any callable)     any type            as it is, if it is opaque, see Note [Opaque calls]
    (any function)     FunctionType, …     its replacement, see Note [Traced replacement]
    torch.add          FunctionType, …     lookaside → that of its code → of its name → operator → rest
    thunder.grad(fn)   FunctionType        fn, interpreted and differentiated
    compiled           CompiledFunction    the function that was compiled, inlined
    opaque             FunctionType        the function itself, marked by ``make_opaque``
    cached             lru_cache wrapper   the entry of its cache, or interpreted
    prims.sin          Symbol              recorded
    self.layer         nn.Module           hooks and forward
    lib.fn             BuiltinFunctionType of another package: an opaque call, if it takes tensors
    torch.mm(x, w)     any type            an opaque call, see Note [Unmodelled tensors]
    obj, cls, method   other types         the interpreter
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.base.cache_queries import CACHED
from thunder.frontend import places
from thunder.frontend.inner_transforms.derivative_functions import call_derivative, is_derivative
from thunder.frontend.lookasides import custom_operators, legacy_constructors
from thunder.frontend.lookasides.environment_queries import is_query
from thunder.frontend.lookasides.lookaside_registry import CallHandler, LookasideTable
from thunder.frontend.natives import cached_functions, native_calls, opaque_functions, validators
from thunder.frontend.natives.descriptors import descriptor_of, is_of_module
from thunder.frontend.opaque_calls import native_functions, opaque_acquisition, unmodelled_operands
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.operator_calls.operator_arguments import bound_to_function
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions import override_calls
from thunder.frontend.traced_replacements import ReplacementTable, refuse_replaced_callees, replacing
from thunder.frontend.types import module_members, tensors
from thunder.interpreter import is_opaque
from thunder.ir.symbol import Symbol
from thunder.ops.library_operators import is_custom
from thunder.ops.operator import is_of_package
from thunder.torch.autocast import is_interpreted
from thunder.wrappers.compiled_function import CompiledFunction

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class CallResolver:
    """The handlers of one session's callables.

    Args:
        session: its language has the operators.
        lookasides: the functions that are done by rules.
        replacements: the functions in whose place others are traced.
    """

    def __init__(
        self, session: TracingSession, lookasides: LookasideTable, replacements: ReplacementTable
    ) -> None:
        self.operators, self.lookasides = session.language.functions, lookasides
        self.replacements = replacements
        self.entry_of, self.opaque = session.entry_of, session.state(OpaqueCalls)
        self._resolved: dict[int, tuple[Any, CallHandler | None]] = {}  # holds the callables: ids stay theirs

    def resolve(self, fn: Any) -> CallHandler | None:
        """Return the handler of a callable; None if the interpreter does the call."""
        resolved = self._resolved.get(id(fn))
        if resolved is not None:
            return resolved[1]
        if fn in self.opaque.callables:
            return opaque_acquisition.call
        handler = self._find(fn)
        candidates = self.replacements.of(fn)
        if candidates is not None:
            handler = replacing(candidates, handler)
        if type(fn) in _LASTING or (type(fn) is types.BuiltinFunctionType and is_of_module(fn)):
            self._resolved[id(fn)] = fn, handler
        return handler

    def _find(self, fn: Any) -> CallHandler | None:
        """Return the handler of a callable as it is, without a replacement."""
        for find in RESOLVERS.get(type(fn), _OF_OTHER_TYPES):
            handler = find(self, fn)
            if handler is not None:
                return handler
        return None

    def effect_of(self, fn: Any) -> places.Effect:
        """Return what a call of ``fn`` does that its arguments do not show; OTHER if nothing says it."""
        if fn in self.opaque.callables:
            return places.CALLS_OPAQUE
        if self.replacements.of(fn) is not None:
            return places.COMPUTES  # what is called in its place says it
        handler, effects = self._find(fn), self.lookasides.effects
        if handler is None:  # interpreted, or native code that reads its arguments
            of_native = effects.get(id(descriptor_of(fn)), places.COMPUTES)
            return places.READS_SURROUNDINGS if is_query(fn) else of_native
        of_rule = next((effects[key] for key in _keys(fn) if key in effects), places.OTHER)
        return _EFFECTS.get(handler, of_rule)

    def is_replaced(self, fn: Any) -> bool:
        """Return whether a compile or a mark says that something else is called in the place of ``fn``."""
        return fn in self.opaque.callables or self.replacements.of(fn) is not None

    def only_reads(self, handler: CallHandler) -> bool:
        """Return whether calls by a handler compute, and read; if they do more, what does it counts it."""
        return handler in _ONLY_READING or handler in self.lookasides.only_reading

    def takes_unread(self, fn: Any) -> bool:
        """Return whether the rule of a callable takes values that nothing may look into."""
        return not self.lookasides.taking_unread.isdisjoint(_keys(fn))

    def forget(self) -> None:
        """Release the callables."""
        self._resolved.clear()


def _keys(fn: Any) -> tuple[Any, ...]:
    """Return the keys under which a table may have a rule for a callable."""
    code = getattr(fn, "__code__", None)
    return id(fn), id(code), _name_of(fn) if type(fn) is types.FunctionType else None, id(descriptor_of(fn))


def _name_of(fn: types.FunctionType) -> tuple[Any, str] | None:
    """Return the module and qualified name of a function, if its variables are those of that module."""
    module = fn.__globals__.get("__name__")
    is_imported = type(module) is str and getattr(sys.modules.get(module), "__dict__", None) is fn.__globals__
    return (module, fn.__code__.co_qualname) if is_imported else None


# -- resolvers -----------------------------------------------------------------------------------------------


def _opaque(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return opaque_functions.call_opaque if is_opaque(fn) else None


def _derivative(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return call_derivative if is_derivative(fn) else None


def _lookaside(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return resolver.lookasides.functions.get(id(fn))


def _lookaside_of_code(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return resolver.lookasides.closures.get(id(fn.__code__))


def _lookaside_of_name(resolver: CallResolver, fn: Any) -> CallHandler | None:
    name = _name_of(fn)
    return None if name is None else resolver.lookasides.named.get(name)


def _operator(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return None if resolver.operators.get(fn) is None else _call_operator


def _tensor_class(resolver: CallResolver, fn: Any) -> CallHandler | None:
    if unmodelled_operands.makes_unmodelled(fn):
        return unmodelled_operands.call
    return legacy_constructors.construct if issubclass(fn, torch.Tensor) else None


def _unknown_torch_function(resolver: CallResolver, fn: Any) -> CallHandler | None:
    if not native_calls.is_unknown_torch(fn):
        return None
    return custom_operators.call_custom if is_custom(fn) else tensors.call_unknown


def _function_of_package(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return native_functions.call if native_functions.is_of_package(fn) else None


def _validation(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return validators.call if validators.is_validation(fn) else None


def _accessor(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return _call_accessor if override_calls.is_accessor(fn) else None


def _call_accessor(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """``torch.Tensor.grad.__get__(x)``, as a torch function mode calls it."""
    if fn.__name__ == "__set__":
        return session.store_attr(args[0], fn.__self__.__name__, args[1])
    return session.load_attr(args[0], fn.__self__.__name__)


def _compiled_function(resolver: CallResolver, fn: Any) -> CallHandler:
    return _call_compiled


def _cached_function(resolver: CallResolver, fn: Any) -> CallHandler:
    return _call_cached


def _call_cached(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if session.entry_of(fn) is not None:
        refuse_replaced_callees(session, fn)
    return cached_functions.call_cached(session, fn, args, kwargs)


def _scripted_function(resolver: CallResolver, fn: Any) -> CallHandler:
    return _call_scripted


def _generic_alias(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return _call_origin if fn.__origin__ in _PLAIN_GENERICS else None


#: classes whose objects have no attributes, so that ``dict[str, int]()`` is ``dict()``
_PLAIN_GENERICS: Final = (dict, list, tuple, set, frozenset)


def _call_origin(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    return session.call(fn.__origin__, args, kwargs)


def _symbol(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return _call_symbol if isinstance(fn, Symbol) else None


def _module(resolver: CallResolver, fn: Any) -> CallHandler | None:
    return module_members.call_module if isinstance(fn, torch.nn.Module) else None


# -- handlers ------------------------------------------------------------------------------------------------


def _call_operator(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    symbol = session.language.functions[fn]
    if is_interpreted(fn, symbol):
        return session.machine.generic_call(fn, args, kwargs)
    if is_of_package(symbol):
        args, kwargs = bound_to_function(session, fn, symbol, args, kwargs)
    return tensors.call_function(session, fn, symbol, args, kwargs)


def _call_compiled(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    return session.call(module_members.inlined(session, fn), args, kwargs)


def _call_scripted(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    return session.call(native_calls.scripted(fn), args, kwargs)


def _call_symbol(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    session.calls_symbols = True
    return tensors.call_symbol(session, fn, args, kwargs)


#: what calls do that no lookaside does
_EFFECTS: Final[dict[CallHandler, places.Effect]] = {
    opaque_functions.call_opaque: places.READS,
    opaque_acquisition.call: places.CALLS_OPAQUE,
    native_functions.call: places.CALLS_PACKAGE,
    unmodelled_operands.call: places.CALLS_PACKAGE,
    _call_cached: places.READS,
    **dict.fromkeys(
        (
            *(_call_accessor, _call_compiled, _call_operator, _call_origin, _call_scripted, _call_symbol),
            *(call_derivative, custom_operators.call_custom, legacy_constructors.construct),
            *(module_members.call_module, tensors.call_unknown),
        ),
        places.COMPUTES,
    ),
}


#: handlers that compute and read, as the rules of tables with ``only_reads`` do
_ONLY_READING: Final = frozenset(
    {
        *(_call_accessor, _call_compiled, _call_operator, _call_origin, _call_scripted, _call_symbol),
        module_members.call_module,
    }
)

# -- the order -----------------------------------------------------------------------------------------------

_Resolver = Callable[[CallResolver, Any], "CallHandler | None"]
_OF_NATIVE_FUNCTIONS: Final[tuple[_Resolver, ...]] = (_lookaside, _operator, _unknown_torch_function)
_OF_BUILTINS: Final[tuple[_Resolver, ...]] = (*_OF_NATIVE_FUNCTIONS, _function_of_package, _validation)
_OF_CLASSES: Final[tuple[_Resolver, ...]] = (_lookaside, _operator)
_OF_OTHER_TYPES: Final[tuple[_Resolver, ...]] = (_symbol, _module, _function_of_package)

RESOLVERS: Final[dict[type, tuple[_Resolver, ...]]] = {
    types.FunctionType: (_opaque, _derivative, _lookaside, _lookaside_of_code, _lookaside_of_name, _operator),
    types.BuiltinFunctionType: _OF_BUILTINS,
    types.MethodDescriptorType: _OF_NATIVE_FUNCTIONS,
    types.WrapperDescriptorType: _OF_NATIVE_FUNCTIONS,
    types.MethodWrapperType: (*_OF_NATIVE_FUNCTIONS, _accessor),
    types.GetSetDescriptorType: _OF_NATIVE_FUNCTIONS,
    torch._ops.OpOverload: _OF_NATIVE_FUNCTIONS,
    torch._ops.OpOverloadPacket: _OF_NATIVE_FUNCTIONS,
    type: _OF_CLASSES,
    type(torch.Tensor): (*_OF_CLASSES, _tensor_class),
    type(torch.FloatTensor): _OF_CLASSES,
    type(torch.Generator): _OF_CLASSES,
    type(torch.autograd.Variable): _OF_CLASSES,
    CompiledFunction: (_compiled_function,),
    CACHED: (_cached_function,),
    torch.jit.ScriptFunction: (_scripted_function,),
    types.GenericAlias: (_generic_alias,),
    types.MethodType: (),
}
"""By the exact type of a callable, the resolvers in the order in which they are tried."""

#: types whose objects are not created at each read, as bound methods are: they are resolved once
_LASTING: Final = frozenset(
    {
        types.FunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        type,
        type(torch.Tensor),
        torch._ops.OpOverload,
        torch._ops.OpOverloadPacket,
    }
)
