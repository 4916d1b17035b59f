"""Tensors in the traced program: reads of metadata and methods, and calls of operators."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from thunder.base.errors import DataDependentControlFlow, UnsupportedOperator, UnsupportedProgram
from thunder.base.langctx import unknown_torch_function
from thunder.base.provenance import ABSENT, lookup_instance, lookup_type
from thunder.frontend.arrays.array_arguments import TAKING_ARRAYS, tensor_of_array
from thunder.frontend.decisions.decided_arguments import call_with_decided_arguments, with_decided_integers
from thunder.frontend.decisions.number_arguments import with_numbers, with_plain_arguments
from thunder.frontend.inner_gradients.level_reads import seen_as_leaf, seen_to_require_grad
from thunder.frontend.lookasides import mode_regions, rng_generators
from thunder.frontend.lookasides.grad_requests import request_grad
from thunder.frontend.lookasides.mode_regions import InferenceModes
from thunder.frontend.lookasides.rebound_tensors import assign_data
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.operator_calls.aten_operators import aten_call
from thunder.frontend.operator_calls.operator_arguments import checked_arguments
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions import override_calls, tensor_subclasses
from thunder.frontend.torch_functions.override_state import TorchFunctions, seen_type
from thunder.frontend.types import patches
from thunder.frontend.types.leaf_gradients import assign_grad, read_grad
from thunder.frontend.types.same_tensors import original_of
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ir.refused_methods import REFUSED_METHODS
from thunder.ops import prims
from thunder.ops.operator import is_of_package
from thunder.torch import tensor_attributes
from thunder.torch.argument_parser import OVERRIDDEN, parse

_METHODS = (types.MethodDescriptorType, types.FunctionType, types.WrapperDescriptorType)
#: the types of most arguments
_ORDINARY = frozenset({TensorProxy, int, float, bool, str, tuple, list, slice, type(None), torch.dtype})


def load_attr(session: TracingSession, x: TensorProxy, name: str) -> Any:
    """Return ``x.name``: metadata, a method bound to the proxy, or the user's attribute."""
    cls = seen_type(session, x)
    if tensor_subclasses.is_own_attribute(cls, name):
        return tensor_subclasses.read_own(session, x, cls, name)
    if session.state(TorchFunctions).applies:
        value = override_calls.access(session, name, "__get__", x)
        if value is not override_calls.NOT_OVERRIDDEN:
            return value
    raw = patches.tensor_attribute(session, cls, name)
    if raw is not ABSENT and patches.is_replaced(cls, name, raw):
        return patches.bound(session, name, raw, x)
    if raw is ABSENT:
        return _load_own(session, x, name)
    getter = tensor_attributes.ATTRIBUTES.get(name)
    if getter is not None:
        _note_metadata(session, x, name)
        seen = _SEEN_AT_LEVELS.get(name)
        return getter(x) if seen is None else seen(session, x)
    if name == "grad":
        _refuse_overriding(session, x, name)
        return read_grad(session, x if session.entry_of(x) is not None else original_of(session, x))
    if name == "grad_fn":
        _note_metadata(session, x, "is_leaf")
        return None if seen_as_leaf(session, x) else session.gradient_node(x)
    if name in REFUSED_METHODS:
        return types.MethodType(REFUSED_METHODS[name], x)
    if isinstance(raw, _METHODS):
        return types.MethodType(raw, x)
    if name == "__class__":
        return cls
    symbol = session.language.resolve(getattr(raw, "__get__", None))
    if symbol is not None:
        return call_symbol(session, symbol, (x,), {})
    if isinstance(raw, staticmethod | classmethod):
        return raw.__get__(None, cls)
    raise UnsupportedProgram(
        f"the program reads the attribute {name!r} of a tensor, which thunder does not model",
        found={x.name: x.type_string()},
        hint="Read it outside the compiled function, and pass what the program needs of it.",
    )


#: attributes that differ within functions that torch.func differentiates
_SEEN_AT_LEVELS: Final[Mapping[str, Callable[[TracingSession, TensorProxy], bool]]] = {
    "requires_grad": seen_to_require_grad,
    "is_leaf": seen_as_leaf,
}


def class_of_method(session: TracingSession, method: types.MethodType) -> type:
    """Return the class of a bound method: that of methods in C for one that a class in C has."""
    owner: Any = session.class_of(method.__self__)
    if owner is type(method.__self__):
        return types.MethodType
    fn: Any = method.__func__
    return _BOUND.get(type(lookup_type(owner, _NAMES.get(fn, fn.__name__))), types.MethodType)


#: functions in the place of torch's methods → the names of these
_NAMES: Final[dict[Any, str]] = {fn: name for name, fn in REFUSED_METHODS.items()}
_BOUND: Final[dict[type, type]] = {
    types.MethodDescriptorType: types.BuiltinFunctionType,
    types.WrapperDescriptorType: types.MethodWrapperType,
}


def _note_metadata(session: TracingSession, x: TensorProxy, name: str) -> None:
    """Note facts about an input that the check of all tensors leaves out."""
    entry = session.entry_of(x)
    if entry is not None and name == "is_leaf" and x.requires_grad:  # others always are
        _refuse_overriding(session, x, name)
        session.note(prims.check_same_object, entry.path.step("attribute", name), x.declared_leaf)


def _refuse_overriding(session: TracingSession, x: TensorProxy, name: str) -> None:
    """Refuse a read whose guard would call ``__torch_function__`` of an input."""
    if id(x) in session.objects.tensor_classes and session.entry_of(x) is not None:
        raise UnsupportedProgram(
            f"the program reads {name} of an input of the class {seen_type(session, x).__qualname__}, which "
            "overrides torch's functions",
            hint="Read it before the call.",
        )


def storage_offset(session: TracingSession, x: TensorProxy) -> int:
    """Return the storage offset of an input, in elements.

    Raises UnsupportedProgram for an intermediate.
    """
    entry = session.entry_of(x)
    if entry is None:
        raise UnsupportedProgram(
            "storage_offset() of an intermediate tensor",
            found={x.name: x.type_string()},
            hint="Read it of an input, or outside the compiled function.",
        )
    _refuse_overriding(session, x, "storage_offset()")
    assert x.input_offset is not None, "every input has its offset"
    session.note(prims.check_storage_offset, entry.path, x.input_offset)
    return x.input_offset


def is_inference(session: TracingSession, x: TensorProxy) -> bool:
    """Return whether a tensor was created in inference mode.

    Raises UnsupportedProgram for an intermediate of a program that enters or leaves that mode.
    """
    entry = session.entry_of(x)
    if entry is not None:
        with torch._C.DisableTorchFunction():
            return bool(entry.obj.is_inference())  # among the dispatch keys, which are checked
    if session.state(InferenceModes).had_regions:
        raise UnsupportedProgram(
            "is_inference() of an intermediate tensor, in a program that changes the mode",
            found={x.name: x.type_string()},
            hint="Call torch.is_inference_mode_enabled() where the tensor is computed.",
        )
    return torch.is_inference_mode_enabled()


def delete_attr(session: TracingSession, x: TensorProxy, name: str) -> None:
    """Do ``del x.name``; one that the program wrote to a tensor that it computed is gone.

    Raises AttributeError if the tensor has no such attribute.
    """
    if lookup_type(torch.Tensor, name) is ABSENT:
        _load_own(session, x, name)
    own = session.state(WrittenAttributes).of(original_of(session, x))
    if session.entry_of(x) is not None or own.pop(name, MISSING) is MISSING:
        session.delete_plain(x, name)


def _load_own(session: TracingSession, x: TensorProxy, name: str) -> Any:
    entry = session.entry_of(x)
    if entry is None and session.entry_of(original := original_of(session, x)) is not None:
        x, entry = original, session.entry_of(original)
    if entry is not None:
        if name not in entry.attrs:
            entry.attrs[name] = _read_own(session, entry, name)
        if entry.attrs[name] is not MISSING:
            return entry.attrs[name]
    elif (own := tensor_subclasses.attributes_of(session, x)) is not None and name in own:
        return own[name]
    elif session.state(WrittenAttributes):
        value = session.state(WrittenAttributes).read(original_of(session, x), name)
        if value is not MISSING:
            return value
    text = f"'{seen_type(session, x).__name__}' object has no attribute '{name}'"
    raise AttributeError(text, name=name, obj=x)


def _read_own(session: TracingSession, entry: ObjectEntry, name: str) -> Any:
    raw = lookup_instance(entry.obj, name)
    if raw is ABSENT:
        session.note(prims.check_has_attr, entry.path, name, False, key=name)
        return MISSING
    return session.adopt(raw, entry.path.step("instance", name))


def store_attr(session: TracingSession, x: TensorProxy, name: str, value: Any) -> None:
    """Do ``x.name = value`` for an attribute of the user's.

    Raises UnsupportedProgram for torch's own attributes.
    """
    entry = session.entry_of(x)
    if session.state(TorchFunctions).applies:
        written = override_calls.access(session, name, "__set__", x, value)
        if written is not override_calls.NOT_OVERRIDDEN:
            return
    if tensor_subclasses.write_own(session, x, seen_type(session, x), name, value):
        return
    if name == "requires_grad":
        request_grad(session, x, value)
        return
    if name == "data":
        assign_data(session, x, value)
        return
    if name == "grad":
        _refuse_overriding(session, x, name)
        assign_grad(session, x if entry is not None else original_of(session, x), value)
        return
    is_own = lookup_type(torch.Tensor, name) is ABSENT
    if is_own and entry is None and (original := original_of(session, x)) is not x:
        store_attr(session, original, name, value)
        return
    if is_own and entry is None:
        session.state(WrittenAttributes).write(x, name, value)
        return
    if entry is None or not is_own:
        raise UnsupportedProgram(
            f"the program writes the attribute {name!r} of a tensor",
            found={x.name: x.type_string()},
            hint="Use the out-of-place form, or do it outside the compiled function.",
        )
    entry.write(name, value)


def call_function(
    session: TracingSession, fn: Any, symbol: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a call of torch's function ``fn`` as its operator, if torch parses the call."""
    if id(fn) in TAKING_ARRAYS:
        tensor = tensor_of_array(session, fn, args, kwargs)
        if tensor is not None:
            return tensor
    args, kwargs = with_plain_arguments(session, fn, args, kwargs, takes_objects=is_of_package(symbol))
    is_ordinary = _ORDINARY.issuperset(map(type, args)) and _ORDINARY.issuperset(map(type, kwargs.values()))
    parsed = parse(fn, args, kwargs)
    if parsed is NotImplemented:
        return NotImplemented
    if parsed is OVERRIDDEN:
        result = override_calls.call(session, fn, args, kwargs)
        if result is not override_calls.NOT_OVERRIDDEN:
            return result
    if not is_ordinary:  # torch accepts NumPy's numbers as Python's
        args = tuple(_number(fn, a) if is_numpy_scalar(a) else a for a in args)
        kwargs = {key: a.item() if is_numpy_scalar(a) else a for key, a in kwargs.items()}
    if kwargs.get("requires_grad"):  # a factory
        result = call_function(session, fn, symbol, args, {**kwargs, "requires_grad": False})
        request_grad(session, result, True)
        return result
    return call_symbol(session, symbol, args, mode_regions.with_defaults(fn, kwargs, session.modes.dtype))


#: methods of operators for which torch makes floating-point numbers of NumPy's truth values
_ARITHMETIC = {"pow"} | frozenset(
    f"__{side}{name}__"
    for side in ("", "r", "i")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
)


def _number(fn: Any, x: Any) -> Any:
    """Return Python's number for one of NumPy that is an argument of a function of torch."""
    number = x.item()
    is_truth = type(number) is bool and getattr(fn, "__name__", "") in _ARITHMETIC
    return float(number) if is_truth else number


def call_symbol(session: TracingSession, symbol: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of an operator."""
    args, kwargs = rng_generators.with_proxies(session, args, kwargs)
    if is_of_package(symbol):
        args, kwargs = checked_arguments(session, symbol, args, kwargs)
    args, kwargs = with_numbers(session, symbol, args, kwargs)
    args, kwargs = with_decided_integers(session, symbol, args, kwargs)
    try:
        return symbol(*args, **kwargs)
    except DataDependentControlFlow as error:
        refusal = error
    return call_with_decided_arguments(session, symbol, args, kwargs, refusal)


def call_unknown(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a torch function that the language lacks, by its rule for unknown functions."""
    if override_calls.has_foreign(args):
        result = override_calls.call(session, fn, args, kwargs)
        if result is not override_calls.NOT_OVERRIDDEN:
            return result
    args, kwargs = with_plain_arguments(session, fn, args, kwargs)
    call = aten_call(session, fn, kwargs)
    if call is not None:
        return call(*args, **kwargs)
    passed = rng_generators.with_proxies(session, args, kwargs)
    try:
        return unknown_torch_function(fn)(*passed[0], **passed[1])
    except UnsupportedOperator as refusal:
        has_data = session.may_run_unseen()
        if (
            not (refusal.facts.get("needs_data") and has_data) or fn is torch.Tensor.is_set_to
        ):  # asks for memory
            raise
    return session.call_unmodelled(fn, args, kwargs)
