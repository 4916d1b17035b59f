"""Attributes of a compiled module with overriding tensors, which are those in use."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder.wrappers import state_dicts
from thunder.wrappers.module_state import ModuleState
from thunder.wrappers.released_tensors import convert, is_released


def attribute(module: Any, state: ModuleState, name: str) -> Any:
    """Return an attribute of a compiled module with overriding tensors.

    ``name`` is one of :data:`NAMES`.
    """
    own = _METHODS.get(name)
    if own is not None:
        return types.MethodType(own, state) if name != "_apply" else _applying(module, state)
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


def get_parameter(state: ModuleState, target: str) -> torch.nn.Parameter:
    """Return the parameter in use under a dotted name."""
    used: Any = state.overrides.tensors.get(target)
    return state.model.get_parameter(target) if used is None else used


def get_buffer(state: ModuleState, target: str) -> torch.Tensor:
    """Return the buffer in use under a dotted name."""
    used: Any = state.overrides.tensors.get(target)
    return state.model.get_buffer(target) if used is None else used


def state_dict(state: ModuleState, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the state in use: the user's module's, with overriding tensors and new names.

    Takes ``destination``, ``prefix`` and ``keep_vars`` as ``torch.nn.Module.state_dict`` does.
    """
    result: dict[str, Any] = state.model.state_dict(*args, **kwargs)
    arguments = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False)) | kwargs
    prefix, keep = arguments.get("prefix", ""), arguments.get("keep_vars", False)
    added = dict(state.overrides.added())
    for name, tensor in state.overrides.tensors.items():
        if prefix + name in result or name in added:  # without buffers that are not persistent
            result[prefix + name] = tensor if keep else tensor.detach()
    return result


def load_state_dict(state: ModuleState, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
    """Load a state dict of the transformed form; the next call uses it.

    Raises InvalidArgument where overridden tensors are missing or have another shape, OperatorError with
    torch's text for other keys and shapes.
    """
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
    "_apply": _applying,
    "_load_from_state_dict": load_from_parent,
    "get_buffer": get_buffer,
    "get_parameter": get_parameter,
    "load_state_dict": load_state_dict,
    "named_buffers": named_buffers,
    "named_parameters": named_parameters,
    "state_dict": state_dict,
}
#: the methods of torch.nn.Module that call those
_DERIVED = frozenset(
    {"parameters", "buffers", "requires_grad_", "zero_grad", "share_memory", "to", "to_empty", "type"}
    | {"float", "double", "half", "bfloat16", "cpu", "cuda", "ipu", "xpu", "mtia"}
)
NAMES = frozenset(_METHODS) | _DERIVED
"""Attributes of a compiled module with overriding tensors that differ from the user's module."""
