"""Lookasides: functions that are not interpreted but done by a rule, which reads the same facts as their code would."""

from __future__ import annotations

import builtins
import logging
import os
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from thunder.core import prims
from thunder.core.errors import Location, UnsupportedProgram
from thunder.core.frontend.tensors import seen_type
from thunder.core.frontend.tracker import LEAVES, Record
from thunder.core.interpreter.policy import MISSING
from thunder.core.provenance import ABSENT, MEMBER_DICTS
from thunder.core.proxies import TensorProxy
from thunder.torch import metadata

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer

Lookaside = Callable[["Tracer", tuple[Any, ...], Mapping[str, Any]], Any]
TABLE: dict[int, Lookaside] = {}
_held: list[Any] = []  # the functions of the table, so that their ids stay theirs


def lookaside(*fns: Any) -> Callable[[Lookaside], Lookaside]:
    """Registers a rule for functions; those that this version of a library lacks are None and skipped."""

    def register(rule: Lookaside) -> Lookaside:
        for fn in fns:
            if fn is not None:
                TABLE[id(fn)] = rule
                _held.append(fn)
        return rule

    return register


# -- modules ----------------------------------------------------------------------------------------------------------

_Module = torch.nn.Module
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_module_globals = vars(torch.nn.modules.module)
_GLOBAL_HOOKS = tuple(n for n in _module_globals if n.startswith("_global_") and n.endswith(("_hooks",)))


def load_member(tracer: Tracer, module: torch.nn.Module, name: str) -> Any:
    """A parameter, buffer or submodule: what ``Module.__getattr__`` finds, with the facts that it reads. Else MISSING."""
    record = tracer.tracker.record_of(module)
    if record is None:
        return MISSING
    found = record.attrs.get(name, MISSING)
    if found is not MISSING:
        return found
    own = record.obj.__dict__
    cls = type(module)
    if name in own or name in record.attrs or tracer.type_attr(cls, "__getattr__") is not _Module.__getattr__:
        return MISSING
    earlier = []
    for member in ("_parameters", "_buffers", "_modules"):
        if member in record.attrs:  # the program has the dictionary itself in hand, and may have written to it
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
    value = tracker.adopt(record.obj.__dict__[member][name], tracer.member_path(record, member).step("key", name))
    record.attrs[name] = value
    return value


def store_member(tracer: Tracer, module: torch.nn.Module, name: str, value: Any) -> bool:
    """``module.name = value`` for a plain attribute or a buffer; False where ``Module.__setattr__`` must be interpreted."""
    record = tracer.tracker.record_of(module)
    if record is None or isinstance(value, torch.nn.Module):
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
    if name in own["_buffers"] and not (value is None or isinstance(value, TensorProxy)):
        return False
    tracer.tracker.note("lacks_key", tracer.member_path(record, "_parameters"), name, key=name)
    record.attrs[name] = record.writes[name] = value
    return True


def call_module(tracer: Tracer, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``module(…)``: where no hook is registered, a call of ``forward``; the facts are those of ``Module._call_impl``."""
    inner = getattr(type(module), "__thunder_inline__", None)
    if inner is not None:
        return tracer.call(inner(tracer, module), args, kwargs)
    record, cls = tracer.tracker.record_of(module), type(module)
    if record is None or not _is_plain_call(tracer, record, cls):
        return tracer.machine.generic_call(module, args, kwargs)
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
    if tracer.type_attr(cls, "_call_impl") is not _Module._call_impl or tracer.type_attr(cls, "_slow_forward") is MISSING:
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
        tracker.note("empty", tracker.pinned_path(_module_globals[name], f"torch.nn.modules.module.{name}"), None)
    for name in _HOOKS:
        tracker.note("empty", tracer.member_path(record, name), None)
    return True


def instance_dict(tracer: Tracer, record: Record) -> Any:
    """``obj.__dict__``: a shadow, which from now on holds what the object holds."""
    if not record.exposed:
        if record.writes:
            raise UnsupportedProgram(f"the program reads {record.path.source}.__dict__ after it wrote an attribute")
        record.attrs = tracer.tracker.adopt(record.obj.__dict__, record.path.step("attribute", "__dict__"))
        record.exposed = True
    return record.attrs


# -- types and identity -----------------------------------------------------------------------------------------------


@lookaside(isinstance)
def _isinstance(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if len(args) == 2 and isinstance(args[0], TensorProxy):
        return any(_is_instance_of(tracer, args[0], cls) for cls in _flatten_classes(args[1]))
    return tracer.machine.generic_call(isinstance, args, kwargs)


def _flatten_classes(classes: Any) -> list[Any]:
    if isinstance(classes, tuple):
        return [c for inner in classes for c in _flatten_classes(inner)]
    if isinstance(classes, type(int | str)):
        return list(classes.__args__)
    return [classes]


def _is_instance_of(tracer: Tracer, x: TensorProxy, cls: Any) -> bool:
    seen = seen_type(tracer, x)
    if cls in (torch.nn.Parameter, torch.nn.Buffer):  # their metaclasses look at the object
        return issubclass(seen, cls)
    if cls in _LEGACY_TENSOR_TYPES:
        return isinstance(torch.empty(0, dtype=x.dtype.torch_dtype), cls)
    return issubclass(seen, cls)


_LEGACY_TENSOR_TYPES = frozenset(t for t in torch._tensor_classes if t is not torch.Tensor)


@lookaside(type)
def _type(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if len(args) == 1 and not kwargs and isinstance(args[0], TensorProxy):
        return seen_type(tracer, args[0])
    return tracer.machine.generic_call(type, args, kwargs)


@lookaside(id)
def _id(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    tracer.refuse_sharp_edge("id() differs from call to call", hint="Compare objects with `is`.")
    return builtins.id(*args, **kwargs)


# -- output -----------------------------------------------------------------------------------------------------------


@lookaside(print)
def _print(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    if set(kwargs) - {"sep", "end", "flush"}:
        raise UnsupportedProgram("print to a file inside a compiled function", hint="Print to standard output.")
    shown = [a if isinstance(a, TensorProxy) or type(a) in LEAVES else tracer.call(str, (a,), {}) for a in args]
    prims.python_print(*shown, **kwargs)


@lookaside(*(getattr(logging.Logger, n) for n in ("debug", "info", "warning", "error", "critical", "log", "exception")))
def _log(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Logging happens while tracing only, and tensors appear as proxies."""


# -- ambient state ----------------------------------------------------------------------------------------------------


@lookaside(torch._C._set_grad_enabled)
def _set_grad_enabled(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    mode = bool(args[0])
    if mode != torch.is_grad_enabled():
        torch._C._set_grad_enabled(mode)
        prims.set_grad_enabled(mode)


@lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return True


@lookaside(
    torch.overrides.has_torch_function,
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)
def _has_torch_function(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return False  # the language has been asked already; now the function's own code is traced


@lookaside(os.getenv)
def _getenv(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    def read(key: str, default: Any = None) -> Any:
        found = _environment_value(tracer, key)
        return default if found is None else found

    return read(*args, **kwargs)


@lookaside(type(os.environ).__getitem__)
def _environ_getitem(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    found = _environment_value(tracer, args[1])
    if found is None:
        raise KeyError(args[1])
    return found


@lookaside(type(os.environ).__contains__)
def _environ_contains(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return _environment_value(tracer, args[1]) is not None


def _environment_value(tracer: Tracer, key: str) -> str | None:
    """One environment variable, guarded by its value; the others stay unread."""
    data = os.environ._data  # type: ignore[attr-defined]
    encoded = os.environ.encodekey(key)  # type: ignore[attr-defined]
    path = tracer.tracker.pinned_path(data, "os.environ").step("key", encoded)
    raw = data.get(encoded, ABSENT)
    if raw is ABSENT:
        tracer.tracker.note("is", path, ABSENT)
        return None
    tracer.tracker.note("equal", path, raw)
    return os.environ.decodevalue(raw)  # type: ignore[attr-defined, no-any-return]


# -- metadata of tensors ----------------------------------------------------------------------------------------------


def _metadata_method(name: str, answer: Callable[..., Any]) -> None:
    raw = getattr(torch.Tensor, name, None)

    @lookaside(raw)
    def rule(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return answer(*args, **kwargs)


for _name, _answer in metadata.METHODS.items():
    _metadata_method(_name, _answer)


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse(fns: list[Any], what: str, hint: str) -> None:
    """Registers a refusal by name."""

    @lookaside(*fns)
    def rule(tracer: Tracer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        raise UnsupportedProgram(f"{what} inside a compiled function", hint=hint)


refuse(
    [torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward, torch.func.grad, torch.func.vjp, torch.func.jvp]
    + [torch.func.functional_call, torch.vmap, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian],
    "differentiation or torch.func",
    "Call it outside, on the compiled function.",
)
refuse([torch.compile], "torch.compile", "Remove it: thunder compiles the whole function.")
refuse([torch.set_default_dtype, torch.set_default_device], "a change of torch's defaults", "Set them before the call.")
refuse([torch.manual_seed, torch.seed], "seeding", "Seed before the call.")


def locations(frames: list[Any]) -> list[Location]:
    """Where the interpreted program is, innermost first."""
    return [Location.of(f.code.co_filename, f.f_lineno) for f in reversed(frames)]


def locations_of(error: BaseException) -> list[Location]:
    """The user's lines in an error's traceback, innermost first."""
    entries = traceback.extract_tb(error.__traceback__)
    return [Location(e.filename, e.lineno or 0, e.line or "") for e in reversed(entries) if "thunder" not in e.filename]
