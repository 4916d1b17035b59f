"""Calls of native functions during a trace: allowed by the tables, or refused by name.

The interpreter sees every read of interpreted code. Code in C reads unseen, so it runs only if a row of
:mod:`~thunder.frontend.natives.native_tables` says that its result depends on its arguments alone, and only
on arguments whose content is known: leaves, proxies, shadows, and objects that the program created.
"""

from __future__ import annotations

import abc
import functools
import operator
import types
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import torch

from thunder.base.errors import ThunderError, UnsupportedProgram
from thunder.base.provenance import lookup_type
from thunder.frontend.arrays import array_calls, numpy_settings
from thunder.frontend.host_draws import draw_calls
from thunder.frontend.lookasides.environment_queries import is_query, query
from thunder.frontend.natives import decimal_context
from thunder.frontend.natives.descriptors import defining_class, descriptor_of
from thunder.frontend.natives.key_protocols import before_lookup, note_container, refuse_unseen_keys
from thunder.frontend.natives.libraries import (
    is_guarded_whole,
    is_number_function,
    is_numpy_scalar,
    is_of_pydantic,
    is_own,
    is_ufunc,
)
from thunder.frontend.natives.native_arguments import check_arguments, check_protocols, note_keys, read_values
from thunder.frontend.natives.native_tables import (
    ALLOWED,
    CALLABLE_TYPES,
    CONSTRUCTIBLE_TYPES,
    IMPURE_FUNCTIONS,
    IMPURE_MODULES,
    OBJECT_METHODS,
    OF_THE_MACHINE,
    SELF_CONTAINED_TYPES,
    is_hierarchy_query,
    is_numpy_method,
    is_value_preserving,
    looks_up_keys,
    makes_keys,
)
from thunder.frontend.natives.size_tuples import made_of_numbers
from thunder.frontend.objects.class_kinds import (
    IDENTITY_TYPES,
    LEAVES,
    extended_container,
    is_foreign,
    plain_base,
)
from thunder.frontend.objects.object_table import describe
from thunder.frontend.raised_errors import name_tensors, text_refusal
from thunder.frontend.session import TracingSession
from thunder.frontend.types.number_members import has_number, with_values
from thunder.ir.proxies import Proxy, TensorProxy

#: native code that creates objects with state; what other native code returns existed before
_MAKERS = frozenset(map(id, (type.__new__, types.FunctionType, types.ModuleType)))
#: types of containers that find their elements by identity and equality
_KEYED = frozenset({dict, set, frozenset})


#: the classes whose methods ``(2).__add__`` return NotImplemented for a number of the trace
_NUMBERS = frozenset({int, bool, float, complex})
_METHODS_OF_OPERATORS = (types.WrapperDescriptorType, types.MethodWrapperType)
#: binary operators, which NumPy's numbers leave to a tensor on the other side
_ARITHMETIC = frozenset(
    id(getattr(operator, name))
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
        *("iadd", "isub", "imul", "itruediv", "lt", "le", "gt", "ge", "eq", "ne"),
    )
)


def _plain_number(x: Any) -> Any:
    """Return Python's number for one of NumPy; of its truth values torch makes floating-point numbers."""
    if not is_numpy_scalar(x):
        return x
    number = x.item()
    if type(number) is complex and not isinstance(x, complex):
        raise UnsupportedProgram(
            f"a tensor meets a number of type {type(x).__name__}, whose imaginary part torch drops",
            hint="Use complex(number), or its real part.",
        )
    return float(number) if type(number) is bool else number


def _leaves_to_tensor(fn: Any, args: tuple[Any, ...]) -> bool:
    """Return whether NumPy's method of an operator returns NotImplemented for a tensor."""
    operands = args if isinstance(fn, types.WrapperDescriptorType) else (getattr(fn, "__self__", None), *args)
    return (
        len(operands) == 2
        and type(operands[1]) is TensorProxy
        and is_numpy_scalar(operands[0])
        and fn.__name__ in ("__sub__", "__truediv__", "__floordiv__", "__mod__", "__pow__")
    )


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``fn`` natively if the tables allow it.

    Raises UnsupportedProgram or SharpEdge, with the callable's name, if they do not.
    """
    if id(fn) in _OPERATORS and _OPERANDS.issuperset(map(type, args)) and not kwargs:
        return _computed(session, fn, args)
    if len(args) == 2 and id(fn) in _ARITHMETIC and any(type(a) is TensorProxy for a in args):
        args = tuple(_plain_number(a) for a in args)  # as torch takes NumPy's numbers
    elif type(fn) in _METHODS_OF_OPERATORS and _leaves_to_tensor(fn, args):
        return NotImplemented
    if session.uses_arrays:
        args = array_calls.before_call(session, fn, args)
    made = None if kwargs else made_of_numbers(fn, args)
    if made is not None:
        return made
    descriptor = descriptor_of(fn)
    if id(fn) in ALLOWED or _is_allowed(session, fn, descriptor):
        return _call_allowed(session, fn, descriptor, args, kwargs)
    if is_ufunc(fn) and all(type(a) in LEAVES or is_numpy_scalar(a) for a in (*args, *kwargs.values())):
        return fn(*args, **kwargs)
    if is_number_function(fn) and all(map(_is_of_numbers, (*args, *kwargs.values()))):
        result = fn(*args, **kwargs)
        if type(result) in LEAVES or is_numpy_scalar(result):
            return result
    drawn = draw_calls.draw_natively(session, fn, args, kwargs)
    if drawn is not NotImplemented:
        return drawn
    if array_calls.is_array_function(fn):
        return array_calls.call(session, fn, args, kwargs)
    if numpy_settings.is_setting(fn):
        return numpy_settings.call(session, fn, args, kwargs)
    if is_query(fn):
        return query(session, fn, args, kwargs)
    if not callable(fn):
        return fn(*args, **kwargs)  # raises TypeError, as in eager
    return _refuse(session, fn, args, kwargs)


#: functions of the module ``operator`` that compute with tensors and numbers
_OPERATORS = frozenset(
    id(getattr(operator, name))
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "neg"),
        *("iadd", "isub", "imul", "itruediv", "lt", "le", "gt", "ge", "eq", "ne", "invert", "getitem"),
    )
).intersection(ALLOWED)
#: types of their operands of which no fact, and no method of the program, is looked for
_OPERANDS = frozenset({TensorProxy, int, float, bool, type(None)})


def _computed(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> Any:
    """Return what an operator makes of tensors and numbers, as :func:`_call_allowed` does."""
    session.shown_proxy = None
    is_reading = not is_value_preserving(fn)
    session.native_reads += is_reading
    try:
        result = _called(fn, args, {})
    finally:
        session.native_reads -= is_reading
    shown: Proxy | TensorProxy | None = session.shown_proxy
    return result if shown is None else _text_of_values(session, text_refusal(shown), fn, args, {})


def _is_of_numbers(x: Any) -> bool:
    """Return whether a value is a plain number, or a tuple or list of such."""
    if type(x) in (tuple, list, torch.Size):
        return all(map(_is_of_numbers, x))
    return type(x) in LEAVES or is_numpy_scalar(x)


def _call_allowed(
    session: TracingSession, fn: Any, descriptor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    _refuse_finalizer(session, fn, args)
    if fn is type.__new__ and len(args) > 2:
        _refuse_subclass_hook(args[2])
    check_arguments(session, fn, descriptor, (*args, *kwargs.values()))
    if is_hierarchy_query(descriptor):
        _note_hierarchy(session, fn, args)
    values = [*args, *kwargs.values()]
    owner = getattr(fn, "__self__", None)
    if not isinstance(owner, types.ModuleType | None):
        values.insert(0, owner)
    is_lookup = looks_up_keys(descriptor) and not isinstance(values[0] if values else None, list | tuple)
    is_making_keys = makes_keys(descriptor)
    if is_lookup or is_making_keys:
        before_lookup(session, values)
    is_sorting = fn is list.sort and "key" in kwargs  # the interpreter's, which compares the elements
    is_reading = not is_value_preserving(descriptor)
    if not is_sorting and not is_making_keys:
        check_protocols(session, fn, descriptor, read_values(descriptor, values))
    session.shown_proxy = None
    is_of_numbers = isinstance(fn, _METHODS_OF_OPERATORS) and type(values[0]) in _NUMBERS
    is_of_numbers |= session.objects.has_decimals and any(type(value) is Decimal for value in values)
    if is_of_numbers and has_number(args):
        args, kwargs = with_values(getattr(fn, "__name__", "a call"), args, kwargs)
    looks_into_results = (is_reading or is_making_keys) and descriptor is not vars(str)["join"]
    session.native_reads += looks_into_results
    try:
        if decimal_context.is_used(session, descriptor):
            result = decimal_context.called(session, _called, fn, args, kwargs)
        else:
            result = _called(fn, args, kwargs)
    finally:
        session.native_reads -= looks_into_results
    shown: Proxy | TensorProxy | None = session.shown_proxy
    if shown is not None:
        result = _text_of_values(session, text_refusal(shown), fn, args, kwargs)
    if id(fn) in _MAKERS:
        session.created_by_program[id(result)] = result
    elif type(result) in _KEYED:
        note_keys(session, result)
        note_container(session, result)
        if is_making_keys:
            refuse_unseen_keys(session, result, args)
    if looks_up_keys(descriptor):
        for value in values:
            if type(value) in _KEYED:
                note_container(session, value)
    return result


#: native functions that look at the frame of their caller → that caller: `typing` lets modules ask protocols
_CALLERS: dict[int, Callable[..., Any]] = {
    id(vars(abc)["_abc_instancecheck"]): abc.ABCMeta.__instancecheck__,
    id(vars(abc)["_abc_subclasscheck"]): abc.ABCMeta.__subclasscheck__,
}


def _called(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a native function; with the values of numbers if it takes Python's numbers alone."""
    try:
        call = _CALLERS.get(id(fn), fn)
        return call(*args, **kwargs) if kwargs else call(*args)
    except (TypeError, ValueError) as error:
        if not has_number((*args, *kwargs.values())):
            name_tensors(error)
            raise
    args, kwargs = with_values(getattr(fn, "__name__", type(fn).__name__), args, kwargs)
    return _called(fn, args, kwargs)


def _text_of_values(
    session: TracingSession, refusal: ThunderError, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the text that a native function makes of tensors or numbers, where that is not refused."""
    if session.speculation is None:
        raise refusal
    args, kwargs = session.speculation.values_for_text((args, kwargs), refusal)
    session.shown_proxy = None
    result = fn(*args, **kwargs)
    if session.shown_proxy is not None:
        raise refusal
    return result


def _refuse(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raise the refusal of ``fn``; return its result where the user allows sharp edges."""
    module = _module_of(fn)
    package = module.partition(".")[0]
    name = _name_of(fn, module, args)
    if package == "numpy":
        raise UnsupportedProgram(
            f"{name} depends on more than its arguments, or takes the data of a tensor out of the program",
            hint="Call it before the compiled function, or mark the function around it by thunder.opaque.",
        )
    if package in IMPURE_MODULES or id(fn) in IMPURE_FUNCTIONS:
        session.refuse_sharp_edge(
            f"{name} reads or changes something that can be neither guarded nor replayed",
            hint="Pass the value as an argument, or set sharp_edges= to bake it in.",
        )
        return _baked(fn(*args, **kwargs), name)
    is_native = isinstance(fn, types.BuiltinFunctionType)
    if is_native and fn == torch.Tensor._make_subclass and args and isinstance(args[0], type):
        raise UnsupportedProgram(
            f"the program creates a tensor of the class {args[0].__module__}.{args[0].__qualname__}",
            hint="Create it before the call, such as parameters in the __init__ of their module.",
        )
    if any(isinstance(a, TensorProxy) for a in (*args, *kwargs.values())):
        raise UnsupportedProgram(
            f"{name} is implemented in C or C++ and is called with a tensor, which has no data while the "
            "program is traced",
            hint="Mark the function around it by thunder.opaque, or register it as an operator "
            "(thunder.extend.OperatorExecutor.register_operator, torch.library).",
        )
    raise UnsupportedProgram(
        f"{name} is implemented in C or C++, so that thunder does not see what it reads",
        hint="Call it before the compiled function and pass the result, "
        "or mark the function around it by thunder.opaque.",
    )


def _name_of(fn: Any, module: str, args: tuple[Any, ...]) -> str:
    """Return the name of a native callable in the user's words: for a constructor, that of the class."""
    name = getattr(fn, "__qualname__", type(fn).__name__)
    if not isinstance(fn, type) and getattr(type(fn), "__name__", "") == "ufunc":
        return f"numpy.ufunc {fn.__name__}"
    if name.startswith("pybind11_detail_function_record"):
        name = fn.__name__
    if getattr(fn, "__name__", "") == "__new__" and args and isinstance(args[0], type):
        return f"{args[0].__module__}.{args[0].__qualname__}"
    if getattr(fn, "__objclass__", None) is torch._C.TensorBase:
        return f"torch.Tensor.{fn.__name__}"
    return f"{module}.{name}"


def _note_hierarchy(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> None:
    """Note the bases or subclasses of a class, which a native query returns, as a fact."""
    query = functools.partial(fn, *args)
    session.note_state(query, f"{fn.__name__} of a class", query())


def _refuse_finalizer(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> None:
    """Refuse to create an object with a ``__del__``, which would run after the trace alone."""
    cls = fn if isinstance(fn, type) else args[0] if fn is object.__new__ and args else object
    if isinstance(getattr(cls, "__del__", None), types.FunctionType):
        session.refuse_sharp_edge(
            f"the program creates an object of the class {cls.__module__}.{cls.__qualname__}, "
            "whose __del__ would run once",
            hint="Make the object outside the compiled function, or set sharp_edges= to let it run once.",
        )


def _refuse_subclass_hook(bases: tuple[type, ...]) -> None:
    """Refuse to create a class if C code would call the user's ``__init_subclass__``."""
    for base in bases:
        hook = getattr(getattr(base, "__init_subclass__", None), "__func__", None)
        if isinstance(hook, types.FunctionType) and not is_guarded_whole(hook.__globals__):
            raise UnsupportedProgram(
                f"the program creates a subclass of {base.__qualname__}, which has an __init_subclass__",
                hint="Make the class outside the compiled function.",
            )


def scripted(fn: Any) -> Any:
    """Return the Python function that ``torch.jit.script`` compiled, which computes the same.

    A qualified name is that of one function of torch's compilation unit. Raises UnsupportedProgram for a
    function of ``torch.jit.trace``, which does not compute the same.
    """
    source = getattr(fn, "_torchdynamo_inline", None)
    compiled = torch.jit._state._try_get_jit_cached_function(source) if source is not None else None
    if compiled is None or compiled.qualified_name != fn.qualified_name:
        raise UnsupportedProgram(
            f"{getattr(fn, '__name__', 'a function')} is a graph of torch.jit.trace",
            hint="Call the Python function from which it was traced.",
        )
    return source


def _baked(value: Any, name: str) -> Any:
    if type(value) in LEAVES:
        return value
    raise UnsupportedProgram(f"{name} returned {describe(value)}, which cannot be baked into a trace")


def _module_of(fn: Any) -> str:
    owner = getattr(fn, "__self__", None)
    if type(owner).__module__ == "pybind11_builtins":  # its own object for each function
        return str(fn.__module__)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return str((owner if isinstance(owner, type) else type(owner)).__module__)
    return str(
        getattr(fn, "__module__", None) or getattr(getattr(fn, "__objclass__", None), "__module__", "?")
    )


def _is_allowed(session: TracingSession, fn: Any, descriptor: Any) -> bool:
    if id(descriptor) in OF_THE_MACHINE:
        return False
    if isinstance(fn, type):
        return (
            fn in CONSTRUCTIBLE_TYPES
            or is_of_pydantic(fn)
            or plain_base(fn) is not object
            or issubclass(fn, BaseException)
            or id(fn) in session.created_by_program
            or (fn.__new__ is object.__new__ and fn.__init__ is object.__init__ and not is_foreign(fn))
            or _extends_builtin(fn)
            or _extends_container(fn)
        )
    if isinstance(fn, types.BuiltinFunctionType | types.MethodWrapperType):
        return _is_method_allowed(session, fn, descriptor)
    if isinstance(
        fn, types.MethodDescriptorType | types.WrapperDescriptorType | types.ClassMethodDescriptorType
    ):
        if fn.__objclass__ is object:
            return fn in OBJECT_METHODS
        return _is_self_contained(fn.__objclass__) or issubclass(fn.__objclass__, torch.Tensor)
    # Python functions arrive here that are thunder's: shims of the interpreter, symbols, and the like
    return type(fn) in CALLABLE_TYPES or (isinstance(fn, types.FunctionType) and is_own(fn.__globals__))


def _extends_builtin(cls: type) -> bool:
    """Return whether a class is a builtin class with methods, which creates its objects as that does."""
    creator: Any = getattr(cls.__new__, "__self__", object)
    initializer: Any = lookup_type(cls, "__init__")
    is_native = not isinstance(initializer, types.FunctionType) and creator in _EXTENSIBLE
    return is_native and not is_foreign(cls, creator)


_EXTENSIBLE = frozenset({int, float, str, bytes, tuple, frozenset})


def _extends_container(cls: type) -> bool:
    """Return whether a class is a builtin container with methods, which fills its objects as that does."""
    creators: tuple[Any, ...] = (lookup_type(cls, "__new__"), lookup_type(cls, "__init__"))
    if any(isinstance(creator, types.FunctionType | staticmethod) for creator in creators):
        return False
    return extended_container(cls) is not None


def _is_method_allowed(session: TracingSession, fn: Any, descriptor: Any) -> bool:
    """Return whether a native method that is bound to an object or a class may run."""
    owner, cls = fn.__self__, defining_class(fn, descriptor)
    if isinstance(owner, TensorProxy):
        return True  # a slot wrapper of a tensor: torch's dispatch reaches the language
    if cls is None:
        return False
    if isinstance(owner, type):
        is_constructor = descriptor is vars(cls).get("__new__")
        return _is_self_contained(cls) or (is_constructor and cls in CONSTRUCTIBLE_TYPES)
    is_extended = extended_container(type(owner)) is not None and session.entry_of(owner) is not None
    if cls is object and descriptor not in OBJECT_METHODS and (is_extended or not is_foreign(type(owner))):
        return False
    return (_is_self_contained(cls) or is_numpy_method(descriptor)) and _is_readable(session, owner)


def _is_self_contained(cls: type) -> bool:
    return cls in SELF_CONTAINED_TYPES or issubclass(cls, BaseException)


def _is_readable(session: TracingSession, owner: Any) -> bool:
    """Return whether native code may look into ``owner``: not into a tracked object."""
    entry = session.objects.entries.get(id(owner))
    return (
        entry is None
        or entry.value is not entry.obj
        or isinstance(owner, (tuple, frozenset, *IDENTITY_TYPES))
        or is_numpy_scalar(owner)
    )


# -- torch's own native functions ----------------------------------------------------------------------------

_NAMESPACES = ("_nn", "_linalg", "_special", "_fft", "_sparse", "_nested")
_FUNCTIONS: frozenset[int] = frozenset(
    id(fn)
    for owner in (type(torch._C._VariableFunctions), *(getattr(torch._C, name) for name in _NAMESPACES))
    for name in vars(owner)
    if isinstance(fn := getattr(owner, name), types.BuiltinFunctionType)
)


def is_unknown_torch(fn: Any) -> bool:
    """Return whether ``fn`` is torch's own native function or tensor method.

    The caller has found that the language lacks it.
    """
    if isinstance(fn, types.BuiltinFunctionType):
        return id(fn) in _FUNCTIONS
    if isinstance(fn, types.MethodDescriptorType | types.WrapperDescriptorType):
        return fn.__objclass__ is torch._C.TensorBase
    return isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
