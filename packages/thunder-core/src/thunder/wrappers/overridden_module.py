"""Attributes of a compiled module with overriding tensors, which are those in use."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, UserError
from thunder.passes.transform import Transform, calling_hook, defines_hook
from thunder.wrappers import state_dicts
from thunder.wrappers.module_state import ModuleState
from thunder.wrappers.released_tensors import convert, is_released


def attribute(module: Any, state: ModuleState, name: str) -> Any:
    """Return an attribute of a compiled module with overriding tensors.

    ``name`` is one of :data:`NAMES`.
    """
    own = _METHODS.get(name)
    if own is not None:
        return types.MethodType(own, state)
    if name in _APPLYING:
        return _APPLYING[name](module, state)
    method = getattr(state.model, name)  # it calls the methods above, which are attributes of the module
    return types.MethodType(method.__func__, module)


def named_parameters(
    state: ModuleState, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Return the parameters in use by the module's names, then those under new names."""
    own = state.model.named_parameters("", recurse, remove_duplicate=False)
    return _in_use(state, own, True, prefix, recurse, remove_duplicate)


def named_buffers(
    state: ModuleState, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Iterator[tuple[str, torch.Tensor]]:
    """Return the buffers in use by the module's names, then other tensors under new names."""
    own = state.model.named_buffers("", recurse, remove_duplicate=False)
    return _in_use(state, own, False, prefix, recurse, remove_duplicate)


def _in_use(
    state: ModuleState,
    own: Iterator[tuple[str, Any]],
    parameters: bool,
    prefix: str,
    recurse: bool,
    once: bool,
) -> Iterator[tuple[str, Any]]:
    tensors = state.overrides.tensors
    added = [
        (name, tensor)
        for name, tensor in state.overrides.added()
        if isinstance(tensor, torch.nn.Parameter) is parameters and (recurse or "." not in name)
    ]
    seen: set[int] = set()
    for name, tensor in (*own, *added):
        used = tensors.get(name, tensor)
        if not (once and id(used) in seen):
            seen.add(id(used))
            yield f"{prefix}.{name}" if prefix else name, used


class TensorsInUse:
    """The tensors in use as those of one module, for `Module._named_members` of a module around."""

    def __init__(self, state: ModuleState) -> None:
        self._parameters = dict(named_parameters(state, remove_duplicate=False))
        self._buffers = dict(named_buffers(state, remove_duplicate=False))


class SubmoduleInUse:
    """A submodule with the tensors in use, for torch's state dicts of distributed models.

    `torch.distributed.checkpoint.state_dict` finds the names of parameters by the tensors of each submodule.
    """

    def __init__(self, state: ModuleState, path: str) -> None:
        self._state, self._path = state, path
        self._module = state.model.get_submodule(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # torch asks the class whether it has an extra state
        return type(self._module)

    def __eq__(self, other: object) -> bool:
        return bool(self._module == getattr(other, "_module", other))

    def __hash__(self) -> int:
        return hash(self._module)

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Yield the submodules with the tensors in use."""
        for name, _ in self._module.named_children():
            yield name, SubmoduleInUse(self._state, f"{self._path}.{name}" if self._path else name)

    def named_parameters(self, recurse: bool = False) -> Iterator[tuple[str, Any]]:
        """Yield the parameters in use of the submodule itself."""
        return self._in_use(self._module.named_parameters(recurse=recurse))

    def named_buffers(self, recurse: bool = False) -> Iterator[tuple[str, Any]]:
        """Yield the buffers in use of the submodule itself."""
        return self._in_use(self._module.named_buffers(recurse=recurse))

    def _in_use(self, own: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        prefix = f"{self._path}." if self._path else ""
        for name, tensor in own:
            yield name, self._state.overrides.tensors.get(prefix + name, tensor)


def _named_children(module: Any, state: ModuleState) -> Callable[[], Iterator[tuple[str, Any]]]:
    """Return ``Module.named_children``; for torch's state dicts the children have the tensors in use."""
    if sys._getframe(3).f_code.co_qualname == _STATE_DICTS:
        return SubmoduleInUse(state, "").named_children
    return types.MethodType(torch.nn.Module.named_children, state.model)


#: the function of torch that looks for the names of tensors, in every submodule
_STATE_DICTS = "_iterate_valid_model_state.<locals>.recurse"


def is_asked_for_members() -> bool:
    """Return whether the caller's caller iterates over modules for the sake of their tensors.

    `named_parameters` of a module around a compiled one reads `_parameters` of each module below it, where
    the tensors in use are not. Its code is the only sign of it: `modules()` asks in the same way.
    """
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code is _NAMED_MODULES:
        frame = frame.f_back
    return frame.f_code is _NAMED_MEMBERS


_NAMED_MODULES = torch.nn.Module.named_modules.__code__
_NAMED_MEMBERS = torch.nn.Module._named_members.__code__


def get_parameter(state: ModuleState, target: str) -> torch.nn.Parameter:
    """Return the parameter in use under a dotted name."""
    used: Any = state.overrides.tensors.get(target)
    return state.model.get_parameter(target) if used is None else used


def get_buffer(state: ModuleState, target: str) -> torch.Tensor:
    """Return the buffer in use under a dotted name."""
    used: Any = state.overrides.tensors.get(target)
    return state.model.get_buffer(target) if used is None else used


def state_dict(module: Any, state: ModuleState, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the state in use: the user's module's, with overriding tensors and new names.

    The transforms present it, except the tensors themselves, which ``keep_vars`` asks for. Takes
    ``destination``, ``prefix`` and ``keep_vars`` as ``torch.nn.Module.state_dict`` does.
    """
    result: dict[str, Any] = state.model.state_dict(*args, **kwargs)
    arguments = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False)) | kwargs
    prefix, keep = arguments.get("prefix", ""), arguments.get("keep_vars", False)
    added = dict(state.overrides.added())
    for name, tensor in state.overrides.tensors.items():
        if prefix + name in result or name in added:  # without buffers that are not persistent
            result[prefix + name] = tensor if keep else tensor.detach()
    presenting = [] if keep else _defining("present_state_dict", state)
    for transform in presenting:
        own = {name.removeprefix(prefix): t for name, t in result.items() if name.startswith(prefix)}
        with calling_hook(transform, "present_state_dict", passing=(UserError,)):
            presented = transform.present_state_dict(module, dict(own))
        for name in own:
            if name in presented:
                result[prefix + name] = presented[name]
            else:
                del result[prefix + name]
    return result


def _defining(hook: str, state: ModuleState) -> list[Transform]:
    return [transform for transform in state.applied_transforms() if defines_hook(transform, hook)]


def load_state_dict(
    module: Any, state: ModuleState, state_dict: Any, strict: bool = True, assign: bool = False
) -> Any:
    """Load a state dict of the transformed form; the next call uses it.

    Raises InvalidArgument where overridden tensors are missing or have another shape, OperatorError with
    torch's text for other keys and shapes.
    """
    for transform in _defining("accept_state_dict", state):
        with calling_hook(transform, "accept_state_dict", passing=(UserError,)):
            state_dict = transform.accept_state_dict(module, state_dict)
    return state_dicts.load(state.overrides, state_dict, strict, assign)


def load_from_parent(state: ModuleState, state_dict: Any, prefix: str, *args: Any) -> None:
    """Refuse to load as a part of another module, which would bypass overriding tensors."""
    error_messages: list[str] = args[-1]
    error_messages.append(
        f"the compiled module {prefix.removesuffix('.')!r} has tensors that a transform overrode: load its "
        "part of the state dict with its own load_state_dict."
    )


def _applying(module: Any, state: ModuleState) -> Callable[..., Any]:
    """Return ``Module._apply``, which ``to`` and ``half`` use, for overriding tensors too."""

    def apply(fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        def applied(tensor: torch.Tensor) -> torch.Tensor:
            if not is_released(tensor):
                return fn(tensor)
            convert(tensor, fn)
            return tensor

        state.model._apply(applied, recurse)
        done = {id(t) for t in (*state.model.parameters(), *state.model.buffers())}
        in_use = state.overrides.tensors
        for name, tensor in list(in_use.items()):
            if id(tensor) not in done:
                done.add(id(tensor))
                keeps_dtype = name in state.overrides.fixed_dtypes
                data = _moved(fn, tensor.data) if keeps_dtype else fn(tensor.data)
                if not torch._has_compatible_shallow_copy_type(tensor, data):  # to and from the meta device
                    if isinstance(tensor, torch.nn.Parameter):
                        data = torch.nn.Parameter(data, requires_grad=tensor.requires_grad)
                    in_use.update({n: data for n, t in in_use.items() if t is tensor})
                    continue
                tensor.data = data
                if tensor.grad is not None:
                    tensor.grad.data = fn(tensor.grad.data)
        return module

    return apply


def _applying_to_modules(module: Any, state: ModuleState) -> Callable[..., Any]:
    """Return ``Module.apply``, which refuses functions that write tensors which are not in use."""
    overridden = {id(t): name for name, t in reversed(state.overrides.originals.items()) if t is not None}

    def apply(fn: Callable[[torch.nn.Module], Any]) -> Any:
        written: list[str] = []

        def checked(each: torch.nn.Module) -> None:
            own = [t for t in (*each._parameters.values(), *each._buffers.values()) if id(t) in overridden]
            kept = [(t, t.detach().clone()) for t in own if t is not None and not is_released(t)]
            fn(module if each is state.model else each)
            written.extend(overridden[id(t)] for t, before in kept if not _is_same(t.detach(), before))

        state.model.apply(checked)
        if written:
            raise InvalidArgument(
                f"apply wrote {written[0]} of the module, in whose place a transform has put another tensor",
                found={"written": ", ".join(written)},
                hint="Apply it to the module before thunder.jit, or load the values with "
                "load_original_state_dict.",
            )
        return module

    return apply


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have the same values, NaN among them."""
    return a.is_meta or (a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all()))


def _moved(fn: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Return what `fn` returns for a tensor, in its own dtype.

    `fn` receives the values as integers of the same size, which `to(dtype)` does not convert.
    """
    integers = _INTEGERS.get(tensor.dtype)
    return fn(tensor) if integers is None else fn(tensor.view(integers)).view(tensor.dtype)


#: the integers of the same size, for each dtype that `to(dtype)` and the like convert
_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
_METHODS: dict[str, Callable[..., Any]] = {
    "_load_from_state_dict": load_from_parent,
    "get_buffer": get_buffer,
    "get_parameter": get_parameter,
    "named_buffers": named_buffers,
    "named_parameters": named_parameters,
}
#: methods that know the compiled module
_APPLYING: dict[str, Callable[[Any, ModuleState], Callable[..., Any]]] = {
    "_apply": _applying,
    "apply": _applying_to_modules,
    "named_children": _named_children,
    "load_state_dict": lambda module, state: partial(load_state_dict, module, state),
    "state_dict": lambda module, state: partial(state_dict, module, state),
}
#: the methods of torch.nn.Module that call those
_DERIVED = frozenset(
    {"parameters", "buffers", "requires_grad_", "zero_grad", "share_memory", "to", "to_empty", "type"}
    | {"float", "double", "half", "bfloat16", "cpu", "cuda", "ipu", "xpu", "mtia"}
)
NAMES = frozenset(_METHODS) | frozenset(_APPLYING) | _DERIVED
"""Attributes of a compiled module with overriding tensors that differ from the user's module."""
