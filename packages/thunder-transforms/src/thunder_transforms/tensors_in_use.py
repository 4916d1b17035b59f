"""The tensors of a compiled module as they are allocated and filled."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from thunder.core.devices import declared_device, to_torch_device
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module
from thunder_transforms.module_initialisation import allocated, initial_buffers, number_kind

__all__ = ["TensorsInUse"]


class TensorsInUse:
    """The parameters and buffers of a compiled module by dotted name, overriding ones included.

    Args:
        compiled: the compiled module, whose overrides are changed.
        device: where tensors on the meta device are allocated, if they declare no other.
    """

    def __init__(self, compiled: Any, device: torch.device) -> None:
        self.compiled, self.device = compiled, device
        self.model: nn.Module = get_thunder_module(compiled)
        self.tensors: dict[str, torch.Tensor] = {
            **dict(compiled.named_parameters(remove_duplicate=False)),
            **dict(compiled.named_buffers(remove_duplicate=False)),
        }
        self._names: dict[int, list[str]] = {}
        for name, tensor in self.tensors.items():
            if nn.parameter.is_lazy(tensor):
                raise InvalidArgument(
                    f"{name} has no shape yet: its module is lazy",
                    hint="Run the module once on the meta device, or give the shapes when it is constructed.",
                )
            self._names.setdefault(id(tensor), []).append(name)
        self.transient = _transient_buffers(self.model)

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """Return the device on which a tensor of the meta device is allocated."""
        declared = declared_device(tensor)
        return self.device if declared is None else to_torch_device(declared)

    def is_unfilled(self, name: str) -> bool:
        """Return whether a name has a tensor on the meta device."""
        return self.tensors[name].is_meta

    def fill(self, name: str, value: torch.Tensor, *, adopt: bool = False) -> None:
        """Copy values to the tensor in use under a name, which is allocated before if it is on meta.

        With ``adopt`` the memory of ``value`` becomes the tensor's, if it has its form. Tensors of the user's
        module with values are overridden by a copy. Raises InvalidArgument for another shape, for
        numbers that are not of the same kind, and for a value on the meta device.
        """
        used = self.tensors[name]
        _check_form(name, used, value)
        if adopt and _is_same_form(value, used, self.device_of(used)):
            self._use(used, value)
            return
        device = self.device_of(used) if used.is_meta else used.device
        if used.is_meta or name not in self.compiled.overrides:
            real = allocated(used, device)
            with torch.no_grad():
                real.copy_(value)
            self._use(used, real)
            return
        with torch.no_grad():
            used.copy_(value)

    def fill_buffers(self) -> None:
        """Give the buffers that are in no state dict the values of `reset_parameters`."""
        names = [name for name in self.transient if self.is_unfilled(name)]
        for name, value in initial_buffers(self.model, names, self.device_of):
            self.fill(name, value, adopt=True)

    def refuse_unfilled(self) -> None:
        """Raise InvalidArgument if a tensor in use is on the meta device."""
        unfilled = [name for name in self.tensors if self.is_unfilled(name)]
        if unfilled:
            raise InvalidArgument(
                "weights got no values",
                found={"weights": ", ".join(unfilled)},
                hint="A state dict must have them, or transform_state_dict_for_submodule of the transform "
                "that added them return them.",
            )

    def _use(self, used: torch.Tensor, real: torch.Tensor) -> None:
        """Override all names of a tensor by another, which has its attributes."""
        vars(real).update({k: v for k, v in vars(used).items() if not k.endswith("_thunder_device")})
        names = self._names.pop(id(used))
        self._names[id(real)] = names
        for name in names:
            self.tensors[name] = real
            if self.compiled.overrides.get(name) is not real:
                self.compiled.override(name, real)


def _transient_buffers(model: nn.Module) -> frozenset[str]:
    """Return the dotted names of the buffers that are in no state dict."""
    return frozenset(
        f"{prefix}.{key}" if prefix else key
        for prefix, module in model.named_modules(remove_duplicate=False)
        for key in module._non_persistent_buffers_set
        if module._buffers.get(key) is not None
    )


def _check_form(name: str, used: torch.Tensor, value: Any) -> None:
    """Raise InvalidArgument unless a value can be copied into a tensor without losing its meaning."""
    if not isinstance(value, torch.Tensor) or value.is_meta:
        raise InvalidArgument(f"the value of {name} is {_form(value)}, which has no values")
    if value.shape != used.shape or number_kind(value) != number_kind(used):
        raise InvalidArgument(
            f"the value of {name} has another form than the module's",
            found={"value": _form(value), "module": _form(used)},
        )


def _is_same_form(a: torch.Tensor, b: torch.Tensor, device: torch.device) -> bool:
    """Return whether a tensor has the dtype, strides, class and requires_grad of another, on a device."""
    is_there = a.device.type == device.type and device.index in (None, a.device.index)
    same_class = isinstance(a, nn.Parameter) is isinstance(b, nn.Parameter)
    return (
        is_there
        and same_class
        and a.dtype == b.dtype
        and a.stride() == b.stride()
        and a.requires_grad == b.requires_grad
    )


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{tuple(value.shape)} {value.dtype} on {value.device}"
