"""Modules in the traced program: member lookup and calls by the rules of ``torch.nn.Module``."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import MEMBER_DICTS, lookup_type
from thunder.frontend.lookasides.lookaside_registry import closure_lookaside
from thunder.frontend.lookasides.patches import MODULE_METHODS as METHODS
from thunder.frontend.lookasides.tensors import seen_type
from thunder.frontend.objects.object_table import DELETED, Record
from thunder.frontend.objects.shadow_copies import ItemOverlay
from thunder.interpreter.attributes import is_data_descriptor
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.wrappers.compiled_function import CompiledFunction
from thunder.wrappers.forwarding import FORWARDED_CODE
from thunder.wrappers.thunder_module import dispatcher_of

if TYPE_CHECKING:
    from thunder.frontend.tracing_policy import Tracer

_Module = torch.nn.Module
_Slot = types.MemberDescriptorType
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_module_globals = vars(torch.nn.modules.module)
_CALLED_TO_REGISTER = ("register_buffer", "__getattr__")
_REGISTRATION_HOOKS = "_global_buffer_registration_hooks"
_GLOBAL_HOOKS = tuple(n for n in _module_globals if n.startswith(("_global_forward", "_global_backward")))


def load_member(tracer: Tracer, module: torch.nn.Module, name: str) -> Any:
    """What ``Module.__getattr__`` finds, with the facts that it reads, or MISSING where the generic protocol
    must be followed.
    """
    record = tracer.tracker.record_of(module)
    cls = type(module)
    if record is None or cls.__getattribute__ is not object.__getattribute__:
        return MISSING
    if record.own is None:
        found = record.attrs.get(name, MISSING)
        if found is not MISSING:
            return found
    own = record.obj.__dict__ if record.own is None else record.own
    if (
        name in own
        or name in record.attrs
        or tracer.type_attr(cls, "__getattr__") is not METHODS["__getattr__"]
        or not own.keys() >= MEMBER_DICTS
    ):
        return MISSING
    earlier: list[str] = []
    for member in ("_parameters", "_buffers", "_modules"):
        held = held_dict(tracer, record, member)
        if held is None:
            if name in own[member]:
                return _read_member(tracer, record, member, name, earlier)
            earlier.append(member)
        elif not isinstance(held, dict):
            return MISSING
        elif name in held:
            return held[name] if _is_left_to_getattr(tracer, record, name, earlier) else MISSING
    return MISSING


def held_dict(tracer: Tracer, record: Record, name: str) -> Any:
    """A dictionary that a module keeps under ``name``, as the program has it in hand: where it has read or
    replaced it. None if the program did not come near it.
    """
    if record.own is not None:
        return record.own.get(name, MISSING)
    if name in record.attrs:
        return record.attrs[name]
    shadow = tracer.tracker.record_of(record.obj.__dict__[name])
    return None if shadow is None else shadow.value


def _read_member(tracer: Tracer, record: Record, member: str, name: str, earlier: list[str]) -> Any:
    if not _is_left_to_getattr(tracer, record, name, earlier):
        return MISSING
    items = _overlay(tracer, record, member).items
    if name not in items:
        path = tracer.member_path(record, member).step("key", name)
        items[name] = tracer.tracker.adopt(record.obj.__dict__[member][name], path)
    return items[name]


def _is_left_to_getattr(tracer: Tracer, record: Record, name: str, earlier: list[str]) -> bool:
    """Whether neither class nor instance has an attribute, nor a dictionary that is searched earlier; the
    facts say so.
    """
    if tracer.type_attr(type(record.obj), name) is not MISSING:
        return False
    if record.own is None:
        tracer.tracker.note("lacks", record.path, name, key=name)
    for other in earlier:
        tracer.tracker.note("lacks_key", tracer.member_path(record, other), name, key=name)
    return True


def _overlay(tracer: Tracer, record: Record, member: str) -> ItemOverlay:
    original = record.obj.__dict__[member]
    overlay = tracer.tracker.item_overlays.get(id(original))
    if overlay is None:
        overlay = ItemOverlay(record.obj, tracer.member_path(record, member))
        tracer.tracker.item_overlays[id(original)] = overlay
    return overlay


def store_member(tracer: Tracer, module: torch.nn.Module, name: str, value: Any) -> bool:
    """``module.name = value``, or False where ``Module.__setattr__`` must be interpreted."""
    record, cls = tracer.tracker.record_of(module), type(module)
    if record is None or record.own is not None or isinstance(value, torch.nn.Module):
        return False
    if cls.__getattribute__ is not object.__getattribute__:
        return False
    if isinstance(value, TensorProxy) and seen_type(tracer, value) is not torch.Tensor:
        return False
    own = record.obj.__dict__
    if tracer.type_attr(cls, "__setattr__") is not METHODS["__setattr__"] or not own.keys() >= MEMBER_DICTS:
        return False
    if name in own["_parameters"] or name in own["_modules"]:
        return False
    if any(held_dict(tracer, record, member) is not None for member in MEMBER_DICTS):
        return False
    of_class = tracer.type_attr(cls, name)
    if of_class is not MISSING and (name not in own or is_data_descriptor(of_class)):
        return False
    for member in ("_parameters", "_modules"):
        tracer.tracker.note("lacks_key", tracer.member_path(record, member), name, key=name)
    if name in own["_buffers"]:
        return _store_buffer(tracer, record, name, value)
    tracer.tracker.note("lacks_key", tracer.member_path(record, "_buffers"), name, key=name)
    record.write(name, value)
    return True


def _store_buffer(tracer: Tracer, record: Record, name: str, value: Any) -> bool:
    """``register_buffer`` of a buffer that is there already."""
    if id(record.obj.__dict__["_buffers"][name]) in tracer.tracker.overridden:
        raise UnsupportedProgram(
            f"the program assigns {record.path.source}.{name}, which a transform overrode",
            hint="Write into the buffer instead: buffer.copy_(…).",
        )
    hooks = _module_globals[_REGISTRATION_HOOKS]
    if not (value is None or isinstance(value, TensorProxy)) or hooks:
        return False
    if any(tracer.type_attr(type(record.obj), n) is not getattr(_Module, n) for n in _CALLED_TO_REGISTER):
        return False
    tracker = tracer.tracker
    tracker.note("empty", tracker.pinned_path(hooks, f"torch.nn.modules.module.{_REGISTRATION_HOOKS}"), None)
    overlay = _overlay(tracer, record, "_buffers")
    tracker.note("has_key", overlay.path, name, key=name)
    overlay.items[name] = overlay.writes[name] = value
    return True


def call_module(
    tracer: Tracer, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``module(…)``: without hooks, a call of ``forward``; the facts are those of ``Module._call_impl``."""
    compiled = tracer.tracker.compiled.get(id(module))
    if compiled is not None:
        _refuse_transforms(compiled)
    record, cls = tracer.tracker.record_of(module), type(module)
    if record is None or not _is_plain_call(tracer, record, cls):
        return tracer.machine.generic_call(module, args, dict(kwargs))
    own = tracer.instance_attr(module, "forward")
    if own is not MISSING:
        return tracer.call(own, args, kwargs)
    forward = tracer.type_attr(cls, "forward")
    if type(forward) is type(call_module):
        return tracer.call(forward, (module, *args), kwargs)
    return tracer.call(tracer.load_attr(module, "forward"), args, kwargs)


def _is_plain_call(tracer: Tracer, record: Record, cls: type) -> bool:
    if tracer.type_attr(cls, "__call__") is not METHODS["__call__"]:
        return False
    if tracer.type_attr(cls, "_call_impl") is not METHODS["_call_impl"]:
        return False
    if tracer.instance_attr(record.obj, "_compiled_call_impl") is not MISSING:
        return False
    if any(_module_globals[name] for name in _GLOBAL_HOOKS):
        return False
    own = record.obj.__dict__
    held = {name: held_dict(tracer, record, name) for name in _HOOKS}
    if any(own[name] if hooks is None else hooks for name, hooks in held.items()):
        return False
    tracker = tracer.tracker
    for name in _GLOBAL_HOOKS:
        tracker.note(
            "empty", tracker.pinned_path(_module_globals[name], f"torch.nn.modules.module.{name}"), None
        )
    for name, hooks in held.items():
        if hooks is None:
            tracker.note("empty", tracer.member_path(record, name), None)
    return True


def inlined(tracer: Tracer, fn: CompiledFunction) -> Any:
    """What is called for a compiled function while another program is traced: what it was made of."""
    _refuse_transforms(fn)
    return wrapped_callable(tracer, fn)


def wrapped_callable(tracer: Tracer, fn: CompiledFunction) -> Any:
    """The callable of a compiled function, adopted."""
    tracker, wrapped = tracer.tracker, fn.__wrapped__
    path = tracker.path_of(fn) or tracker.pinned_path(fn, getattr(fn, "__qualname__", "fn"))
    return tracker.adopt(wrapped, tracker.pinned_path(wrapped, path.source))


def _refuse_transforms(fn: Any) -> None:
    transforms = dispatcher_of(fn).data.transforms
    if transforms:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        raise UnsupportedProgram(
            f"the program calls {name}, which was compiled with transforms of its own",
            found={"transforms": ", ".join(type(t).__name__ for t in transforms)},
            hint="Give the transforms to the outer thunder.jit, or call it outside.",
        )


@closure_lookaside(FORWARDED_CODE)
def call_forwarded(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method that was read of a compiled module: its function is called with the module itself."""
    method, *rest = args
    return tracer.call(method.__wrapped__, tuple(rest), kwargs)


def instance_dict(tracer: Tracer, record: Record) -> Any:
    """``obj.__dict__``: a shadow, which from now on holds what the object holds."""
    if record.own is None:
        cls = type(record.obj)
        if isinstance(record.obj, type) and record.writes:
            raise UnsupportedProgram(
                f"the program reads the __dict__ of {record.obj.__qualname__} after writing its attributes",
                hint="Read the attributes themselves, or read the __dict__ before.",
            )
        record.own = tracer.tracker.adopt(record.obj.__dict__, record.path.step("attribute", "__dict__"))
        for name in [n for n in record.writes if not isinstance(lookup_type(cls, n), _Slot)]:
            value = record.writes.pop(name)
            if value is DELETED or name in record.moved:
                record.own.pop(name, None)
            if value is not DELETED:
                record.own[name] = value
        tracer.namespace_in_hand(record.obj.__dict__, record.own)
    return record.own
