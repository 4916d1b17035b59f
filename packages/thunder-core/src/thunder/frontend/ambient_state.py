"""Torch's ambient state: what of it every prologue guards, and how it is put back after an acquisition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._device import DeviceContext

from thunder.base.autocast_state import AUTOCAST_DEVICES
from thunder.base.errors import UnsupportedProgram

#: the cheap questions, asked at each call; (name in generated code, function)
AMBIENT_QUERIES = {
    "is_grad_enabled": torch.is_grad_enabled,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
    "get_default_dtype": torch.get_default_dtype,
    "is_any_autocast_enabled": torch._C._is_any_autocast_enabled,
    "len_torch_function_stack": torch._C._len_torch_function_stack,
    "len_torch_dispatch_stack": torch._C._len_torch_dispatch_stack,
}


def ambient_key() -> tuple[Any, ...]:
    """Grad mode, inference mode, default dtype, whether autocast is on, how many modes are active."""
    return tuple(question() for question in AMBIENT_QUERIES.values())


def ambient_details() -> tuple[Any, ...]:
    """What the quick state leaves open when autocast is on or a mode is active: dtypes by device, default
    device.
    """
    return (*autocast_settings(), _default_device())


def autocast_settings() -> tuple[Any, ...]:
    """By kind of device whether autocast is on, and its dtype; whether casts of weights are kept."""
    settings = tuple(
        s for d in AUTOCAST_DEVICES for s in (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d))
    )
    return (*settings, torch.is_autocast_cache_enabled())


def _default_device() -> str:
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return ", ".join(f"{type(m).__name__}({getattr(m, 'device', '')})" for m in modes)


def needs_details(quick: tuple[Any, ...]) -> bool:
    """Whether the detailed state must be guarded as well."""
    return bool(quick[3] or quick[4] or quick[5])


def refuse_foreign_modes() -> None:
    """Refuses to trace under modes that change what torch calls mean: FakeTensorMode, vmap, functorch
    transforms.
    """
    if torch._C._len_torch_dispatch_stack():
        mode = type(torch._C._get_dispatch_stack_at(0)).__name__
        raise UnsupportedProgram(
            f"the call runs under {mode}", hint="Call the compiled function outside the mode."
        )
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise UnsupportedProgram(
            "the call runs under a functorch transform (vmap, grad, …)", hint="Call it outside."
        )
    for i in range(torch._C._len_torch_function_stack()):
        mode = torch._C._get_function_stack_at(i)
        if not isinstance(mode, DeviceContext):
            raise UnsupportedProgram(
                f"the call runs under the torch function mode {type(mode).__name__}",
                hint="Call it outside the mode.",
            )


def full_ambient_state() -> tuple[Any, ...]:
    """All of it."""
    return (*ambient_key(), *ambient_details())


@dataclass(frozen=True)
class Modes:
    """Grad mode, default dtype, autocast (device, whether it is on, dtype) and how many modes are active."""

    grad: bool
    dtype: torch.dtype
    depth: int
    autocast: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def now(cls) -> Modes:
        """The current state."""
        return cls(
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch._C._len_torch_function_stack(),
            tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in AUTOCAST_DEVICES),
        )

    def autocast_after(self, before: Modes) -> list[tuple[str, bool, torch.dtype]]:
        """The settings of autocast, by device, that are not as they were before."""
        return [now for now, was in zip(self.autocast, before.autocast, strict=True) if now != was]

    def restore(self) -> None:
        """Makes this the current state again."""
        torch._C._set_grad_enabled(self.grad)
        if torch.get_default_dtype() is not self.dtype:
            torch.set_default_dtype(self.dtype)
        while torch._C._len_torch_function_stack() > self.depth:
            torch._C._pop_torch_function_stack()
        for device, enabled, cast_to in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, cast_to)


@contextmanager
def restored() -> Iterator[None]:
    """After the context, grad mode, default dtype, autocast and the stack of modes are what they were,
    whatever happened in it.
    """
    before, keeps_casts = Modes.now(), torch.is_autocast_cache_enabled()
    try:
        yield
    finally:
        before.restore()
        torch.set_autocast_cache_enabled(keeps_casts)
