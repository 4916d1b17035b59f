"""Modules in the traced program: member lookup and calls by the rules of ``torch.nn.Module``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from thunder.core.errors import UnsupportedProgram
from thunder.core.frontend.tensors import seen_type
from thunder.core.frontend.tracker import DELETED, Record, Tracker
from thunder.core.interpreter.policy import MISSING
from thunder.core.module import COMPILED, ThunderModule
from thunder.core.overrides import Overrides
from thunder.core.provenance import MEMBER_DICTS
from thunder.core.proxies import TensorProxy

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer

_Module = torch.nn.Module
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_module_globals = vars(torch.nn.modules.module)
_GLOBAL_HOOKS = tuple(n for n in _module_globals if n.startswith(("_global_forward", "_global_backward")))


def honour_overrides(tracker: Tracker, overrides: Overrides | None) -> None:
    """From now on, what is read of an overridden tensor is read of the overriding one.

    Raises InvalidArgument where the module holds another tensor by now than the one that was overridden.
    """
    if overrides is None:  # what is compiled is no module
        return
    overrides.refuse_replaced()
    count = len(overrides.tensors)  # names are only ever added
    tracker.note("len" if count else "empty", overrides.path, count or None)
    tracker.overridden.update(overrides.paths())


def load_member(tracer: Tracer, module: torch.nn.Module, name: str) -> Any:
    """What ``Module.__getattr__`` finds, with the facts that it reads, or MISSING."""
    record = tracer.tracker.record_of(module)
    if record is None:
        return MISSING
    found = record.attrs.get(name, MISSING)
    if found is not MISSING:
        return found
    own = record.obj.__dict__
    cls = type(module)
    if (
        name in own
        or name in record.attrs
        or record.own is not None
        or tracer.type_attr(cls, "__getattr__") is not _Module.__getattr__
    ):
        return MISSING
    earlier: list[str] = []
    for member in ("_parameters", "_buffers", "_modules"):
        if (
            member in record.attrs
        ):  # the program has the dictionary itself in hand, and may have written to it
            return MISSING
        if name in own[member]:
            if tracer.type_attr(cls, name) is not MISSING:
                return MISSING
            return _read_member(tracer, record, member, name, earlier)
        earlier.append(member)
    return MISSING


def _read_member(tracer: Tracer, record: Record, member: str, name: str, earlier: list[str]) -> Any:
    tracker, path = tracer.tracker, record.path
    tracker.note("lacks", path, name, key=name)
    for other in earlier:
        tracker.note("lacks_key", tracer.member_path(record, other), name, key=name)
    value = tracker.adopt(
        record.obj.__dict__[member][name], tracer.member_path(record, member).step("key", name)
    )
    record.attrs[name] = value
    return value


def store_member(tracer: Tracer, module: torch.nn.Module, name: str, value: Any) -> bool:
    """``module.name = value``, or False where ``Module.__setattr__`` must be interpreted."""
    record = tracer.tracker.record_of(module)
    if record is None or record.own is not None or isinstance(value, torch.nn.Module):
        return False
    if isinstance(value, TensorProxy) and seen_type(tracer, value) is not torch.Tensor:
        return False
    if tracer.type_attr(type(module), "__setattr__") is not _Module.__setattr__:
        return False
    own = record.obj.__dict__
    if name in own["_parameters"] or name in own["_modules"] or MEMBER_DICTS & record.attrs.keys():
        return False
    if tracer.type_attr(type(module), name) is not MISSING and name not in own:
        return False
    if name in own["_buffers"]:
        if id(own["_buffers"][name]) in tracer.tracker.overridden:
            raise UnsupportedProgram(
                f"the program assigns {record.path.source}.{name}, which a transform overrode",
                hint="Write into the buffer instead: buffer.copy_(…).",
            )
        if not (value is None or isinstance(value, TensorProxy)):
            return False
    tracer.tracker.note("lacks_key", tracer.member_path(record, "_parameters"), name, key=name)
    record.attrs[name] = record.writes[name] = value
    return True


def call_module(
    tracer: Tracer, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``module(…)``: without hooks, a call of ``forward``; the facts are those of ``Module._call_impl``."""
    if COMPILED in module.__dict__:
        return tracer.call(inlined(tracer, module), args, kwargs)
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
    if tracer.type_attr(cls, "__call__") is not _Module.__call__:
        return False
    if tracer.type_attr(cls, "_call_impl") is not _Module._call_impl:
        return False
    if tracer.instance_attr(record.obj, "_compiled_call_impl") is not MISSING:
        return False
    if any(_module_globals[name] for name in _GLOBAL_HOOKS):
        return False
    own = record.obj.__dict__
    if any(name in record.attrs or own[name] for name in _HOOKS):
        return False
    tracker = tracer.tracker
    for name in _GLOBAL_HOOKS:
        tracker.note(
            "empty", tracker.pinned_path(_module_globals[name], f"torch.nn.modules.module.{name}"), None
        )
    for name in _HOOKS:
        tracker.note("empty", tracer.member_path(record, name), None)
    return True


def inlined(tracer: Tracer, fn: Any) -> Any:
    """What stands for a compiled function while another program is traced: what it was made of."""
    dispatcher = fn.__dict__[COMPILED]
    if dispatcher.data.transforms:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        raise UnsupportedProgram(
            f"the program calls {name}, which was compiled with transforms of its own",
            found={"transforms": ", ".join(type(t).__name__ for t in dispatcher.data.transforms)},
            hint="Give the transforms to the outer thunder.jit, or call it outside.",
        )
    tracker = tracer.tracker
    if isinstance(fn, ThunderModule):
        honour_overrides(tracker, fn._overrides)
    path = tracker.path_of(fn) or tracker.pinned_path(fn, getattr(fn, "__qualname__", "fn"))
    return tracker.adopt(dispatcher.data.fn, tracker.pinned_path(dispatcher.data.fn, path.source))


def instance_dict(tracer: Tracer, record: Record) -> Any:
    """``obj.__dict__``: a shadow, which from now on holds what the object holds."""
    if record.own is None:
        record.own = tracer.tracker.adopt(record.obj.__dict__, record.path.step("attribute", "__dict__"))
        for name, value in record.writes.items():
            if value is DELETED:
                record.own.pop(name, None)
            else:
                record.own[name] = value
        record.writes.clear()
    return record.own
