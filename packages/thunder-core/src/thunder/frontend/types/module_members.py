"""Members and calls of modules in the traced program, by the rules of ``torch.nn.Module``."""

from __future__ import annotations

import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import MEMBER_DICTS, Path, lookup_type
from thunder.frontend.objects.object_entry import DELETED, ObjectEntry
from thunder.frontend.objects.shadow_copies import ItemOverlay
from thunder.frontend.objects.tensor_classes import computes_by_dispatch
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import seen_type
from thunder.frontend.types.patches import MODULE_METHODS as METHODS
from thunder.interpreter.attributes import is_data_descriptor
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.wrappers.compiled_function import CompiledFunction
from thunder.wrappers.thunder_module import dispatcher_of

_Module = torch.nn.Module
_Slot = types.MemberDescriptorType
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_module_globals = vars(torch.nn.modules.module)
_CALLED_TO_REGISTER = ("register_buffer", "__getattr__")
_REGISTRATION_HOOKS = "_global_buffer_registration_hooks"
_GLOBAL_HOOKS = tuple(n for n in _module_globals if n.startswith(("_global_forward", "_global_backward")))


def load_attr(session: TracingSession, module: torch.nn.Module, name: str) -> Any:
    """Return ``module.name``."""
    getter = session.type_attr(type(module), "__getattribute__")
    member = _load_member(session, module, name) if getter is object.__getattribute__ else MISSING
    return session.machine.generic_load_attr(module, name) if member is MISSING else member


def _load_member(session: TracingSession, module: torch.nn.Module, name: str) -> Any:
    """Return the member that ``Module.__getattr__`` finds, and note the facts that it reads.

    Returns MISSING where the generic protocol must be followed.
    """
    entry = session.entry_of(module)
    cls = type(module)
    if entry is None:
        return MISSING
    if entry.own is None:
        value = entry.attrs.get(name, MISSING)
        if value is not MISSING:
            return value
    own = entry.obj.__dict__ if entry.own is None else entry.own
    if (
        name in own
        or name in entry.attrs
        or session.type_attr(cls, "__getattr__") is not METHODS["__getattr__"]
        or not own.keys() >= MEMBER_DICTS
    ):
        return MISSING
    earlier: list[str] = []
    for member in ("_parameters", "_buffers", "_modules"):
        held = held_dict(session, entry, member)
        if held is None:
            if name in own[member]:
                return _read_member(session, entry, member, name, earlier)
            earlier.append(member)
        elif not isinstance(held, dict):
            return MISSING
        elif name in held:
            return held[name] if _is_left_to_getattr(session, entry, name, earlier) else MISSING
    return MISSING


def held_dict(session: TracingSession, entry: ObjectEntry, name: str) -> Any:
    """Return the dictionary that a module has under ``name``, as the program sees it.

    This is the one that the program has read or assigned. None if it has done neither.
    """
    if entry.own is not None:
        return entry.own.get(name, MISSING)
    if name in entry.attrs:
        return entry.attrs[name]
    shadow = session.entry_of(entry.obj.__dict__[name])
    return None if shadow is None else shadow.value


def _read_member(
    session: TracingSession, entry: ObjectEntry, member: str, name: str, earlier: list[str]
) -> Any:
    if not _is_left_to_getattr(session, entry, name, earlier):
        return MISSING
    items = _overlay(session, entry, member).items
    if name not in items:
        path = session.member_path(entry, member).step("key", name)
        raw = entry.obj.__dict__[member][name]
        is_passed_on = isinstance(raw, torch.Tensor) and computes_by_dispatch(raw)
        items[name] = (session.objects.adopt_item if is_passed_on else session.adopt)(raw, path)
    return items[name]


def _is_left_to_getattr(session: TracingSession, entry: ObjectEntry, name: str, earlier: list[str]) -> bool:
    """Return whether ``__getattr__`` is reached, and finds the name in no earlier dictionary.

    That neither instance nor class has the attribute, nor a dictionary of ``earlier``, becomes facts.
    """
    if session.type_attr(type(entry.obj), name) is not MISSING:
        return False
    if entry.own is None:
        session.note(prims.check_has_attr, entry.path, name, False, key=name)
    for other in earlier:
        session.note(prims.check_contains, session.member_path(entry, other), name, False, key=name)
    return True


def _overlay(session: TracingSession, entry: ObjectEntry, member: str) -> ItemOverlay:
    original = entry.obj.__dict__[member]
    overlay = session.objects.item_overlays.get(id(original))
    if overlay is None:
        overlay = ItemOverlay(entry.obj, session.member_path(entry, member))
        session.objects.item_overlays[id(original)] = overlay
    return overlay


def store_attr(session: TracingSession, module: torch.nn.Module, name: str, value: Any) -> None:
    """Do ``module.name = value``."""
    if _store_member(session, module, name, value):
        session.note_write()
    else:
        session.store_plain(module, name, value)


def _store_member(session: TracingSession, module: torch.nn.Module, name: str, value: Any) -> bool:
    """Do ``module.name = value``, or return False where ``__setattr__`` must be interpreted."""
    entry, cls = session.entry_of(module), type(module)
    if entry is None or entry.own is not None or isinstance(value, torch.nn.Module):
        return False
    if cls.__getattribute__ is not object.__getattribute__:
        return False
    if isinstance(value, TensorProxy) and seen_type(session, value) is not torch.Tensor:
        return False
    own = entry.obj.__dict__
    if session.type_attr(cls, "__setattr__") is not METHODS["__setattr__"] or not own.keys() >= MEMBER_DICTS:
        return False
    if name in own["_parameters"] or name in own["_modules"]:
        return False
    if any(held_dict(session, entry, member) is not None for member in MEMBER_DICTS):
        return False
    of_class = session.type_attr(cls, name)
    if of_class is not MISSING and (name not in own or is_data_descriptor(of_class)):
        return False
    for member in ("_parameters", "_modules"):
        session.note(prims.check_contains, session.member_path(entry, member), name, False, key=name)
    if name in own["_buffers"]:
        return _store_buffer(session, entry, name, value)
    session.note(prims.check_contains, session.member_path(entry, "_buffers"), name, False, key=name)
    if not entry.holds(name, value):
        entry.write(name, value)
    return True


def _store_buffer(session: TracingSession, entry: ObjectEntry, name: str, value: Any) -> bool:
    """Do ``register_buffer`` for a buffer that the module already has."""
    overriding = session.objects.overridden.get(id(entry.obj.__dict__["_buffers"][name]))
    hooks = _module_globals[_REGISTRATION_HOOKS]
    if not (value is None or isinstance(value, TensorProxy)) or hooks:
        return False
    if any(session.type_attr(type(entry.obj), n) is not getattr(_Module, n) for n in _CALLED_TO_REGISTER):
        return False
    objects = session.objects
    objects.note(
        prims.check_empty, objects.object_root(hooks, f"torch.nn.modules.module.{_REGISTRATION_HOOKS}")
    )
    overlay = _overlay(session, entry, "_buffers")
    objects.note(prims.check_contains, overlay.path, name, True, key=name)
    overlay.items[name] = value
    if overriding is None:
        overlay.writes[name] = value
    else:
        buffer = f"{entry.path.source}.{name}"
        if value is None:
            raise UnsupportedProgram(f"the program assigns None to {buffer}, which is overridden")
        _overrides(session, buffer, overriding).writes[overriding.key] = value
    return True


def _overrides(session: TracingSession, buffer: str, path: Path) -> ItemOverlay:
    """Return the overlay of the overriding tensors, of which the program replaces the one at a path.

    Raises UnsupportedProgram for one that has several names, or that a transform stores in a form of its own.
    """
    assert path.parent is not None, "an overriding tensor is an item"
    objects, tensors = session.objects, path.parent.fetch({})
    names = [name for name, tensor in tensors.items() if tensor is tensors[path.key]]
    reason = f"whose overriding tensor has the names {' and '.join(names)}" if len(names) > 1 else None
    if objects.keeps_original_metadata and path not in objects.own_form:
        reason = "which is overridden, and a transform may change how it is read"
    if reason is not None:
        raise UnsupportedProgram(
            f"the program assigns {buffer}, {reason}", hint="Write into the buffer instead: buffer.copy_(…)."
        )
    return session.objects.item_overlays.setdefault(id(tensors), ItemOverlay(tensors, path.parent))


def call_module(
    session: TracingSession, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a module, without hooks as a call of ``forward``.

    The facts are those of ``Module._call_impl``.
    """
    entry = session.entry_of(module)
    if entry is None:
        return session.machine.generic_call(module, args, dict(kwargs))
    return session.equal_modules.call(entry, args, kwargs, lambda: _read_call(session, module, args, kwargs))


def _read_call(
    session: TracingSession, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    compiled = session.objects.compiled.get(id(module))
    if compiled is not None:
        _refuse_changes(compiled)
    entry, cls = session.entry_of(module), type(module)
    if entry is None or not _is_plain_call(session, entry, cls):
        return session.machine.generic_call(module, args, dict(kwargs))
    own = session.instance_attr(module, "forward")
    if own is not MISSING:
        return session.call(own, args, kwargs)
    forward = session.type_attr(cls, "forward")
    if type(forward) is type(call_module):
        return session.call(forward, (module, *args), kwargs)
    return session.call(session.load_attr(module, "forward"), args, kwargs)


def _is_plain_call(session: TracingSession, entry: ObjectEntry, cls: type) -> bool:
    if session.type_attr(cls, "__call__") is not METHODS["__call__"]:
        return False
    if session.type_attr(cls, "_call_impl") is not METHODS["_call_impl"]:
        return False
    if session.instance_attr(entry.obj, "_compiled_call_impl") is not MISSING:
        return False
    if any(_module_globals[name] for name in _GLOBAL_HOOKS):
        return False
    own = entry.obj.__dict__
    held = {name: held_dict(session, entry, name) for name in _HOOKS}
    if any(own[name] if hooks is None else hooks for name, hooks in held.items()):
        return False
    objects = session.objects
    for name in _GLOBAL_HOOKS:
        hooks_of_all = objects.object_root(_module_globals[name], f"torch.nn.modules.module.{name}")
        objects.note(prims.check_empty, hooks_of_all)
    for name, hooks in held.items():
        if hooks is None:
            objects.note(prims.check_empty, session.member_path(entry, name))
    return True


def inlined(session: TracingSession, fn: CompiledFunction) -> Any:
    """Return the callable that a compiled function compiles, to be traced in its place."""
    _refuse_changes(fn)
    return wrapped_callable(session, fn)


def wrapped_callable(session: TracingSession, fn: CompiledFunction) -> Any:
    """Return the callable of a compiled function, adopted."""
    objects, wrapped = session.objects, fn.__wrapped__
    path = objects.path_of(fn) or objects.object_root(fn, getattr(fn, "__qualname__", "fn"))
    return objects.adopt(wrapped, objects.object_root(wrapped, path.source))


def load_of_compiled(session: TracingSession, fn: CompiledFunction, name: str) -> Any:
    """Return an attribute of a compiled function, which is that of the callable."""
    if name == "__get__":
        return session.load_plain(fn, name)
    return session.load_attr(wrapped_callable(session, fn), name)


def _refuse_changes(fn: Any) -> None:
    """Refuse to trace a compiled object's own function if its compile would change the function."""
    data = dispatcher_of(fn).data
    transforms, name = data.transforms, getattr(fn, "__qualname__", type(fn).__qualname__)
    if data.lookasides:
        raise UnsupportedProgram(
            f"the program calls {name}, which was compiled with lookasides",
            hint="Give the lookasides to the outer thunder.jit, or call it outside.",
        )
    if transforms:
        raise UnsupportedProgram(
            f"the program calls {name}, which was compiled with transforms",
            found={"transforms": ", ".join(type(t).__name__ for t in transforms)},
            hint="Give the transforms to the outer thunder.jit, or call it outside.",
        )


def instance_dict(session: TracingSession, entry: ObjectEntry) -> Any:
    """Return ``obj.__dict__`` as a shadow, which from then on has the object's attributes."""
    if entry.own is None:
        cls = type(entry.obj)
        if isinstance(entry.obj, type) and entry.writes:
            raise UnsupportedProgram(
                f"the program reads the __dict__ of {entry.obj.__qualname__} after writing its attributes",
                hint="Read the attributes themselves, or read the __dict__ before.",
            )
        entry.own = session.adopt(entry.obj.__dict__, entry.path.step("attribute", "__dict__"))
        for name in [n for n in entry.writes if not isinstance(lookup_type(cls, n), _Slot)]:
            value = entry.writes.pop(name)
            if value is DELETED or name in entry.moved:
                entry.own.pop(name, None)
            if value is not DELETED:
                entry.own[name] = value
        session.variables.adopt_namespace(entry.obj.__dict__, entry.own)
    return entry.own
