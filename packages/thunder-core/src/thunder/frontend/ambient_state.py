"""Torch's ambient state: what every prologue guards, and how acquisition restores it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from thunder.base.autocast_state import AUTOCAST_DEVICES
from thunder.base.errors import UnsupportedProgram
from thunder.frontend.active_modes import has_active_modes
from thunder.wrappers.traced_source import FX, is_symbolic_tracing


def _dual_level() -> int:
    """Return the level of dual numbers, of forward derivatives, that is open; -1 for none."""
    return forward_ad._current_level


#: the cheap reads, done at each call: the name in generated code → the function
AMBIENT_QUERIES = {
    "is_grad_enabled": torch.is_grad_enabled,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
    "get_default_dtype": torch.get_default_dtype,
    "is_any_autocast_enabled": torch._C._is_any_autocast_enabled,
    "len_torch_function_stack": torch._C._len_torch_function_stack,
    "len_torch_dispatch_stack": torch._C._len_torch_dispatch_stack,
    "dual_level": _dual_level,
    "is_torch_function_enabled": torch._C._is_torch_function_enabled,
}


def ambient_key() -> tuple[Any, ...]:
    """Return what the queries of torch's ambient state give in the call that is acquired, in their order."""
    answers = {name: read() for name, read in AMBIENT_QUERIES.items()}
    # Acquisition disables overrides; a call around which they are disabled is not acquired (torch_traces).
    return tuple((answers | {"is_torch_function_enabled": True}).values())


def ambient_details() -> tuple[Any, ...]:
    """Return the dtypes of autocast by device, and the default device.

    They matter where autocast is on or a mode is active.
    """
    return (*autocast_settings(), _default_device())


def autocast_settings() -> tuple[Any, ...]:
    """Return autocast's settings by kind of device, and whether it caches casts of weights."""
    settings = tuple(
        s for d in AUTOCAST_DEVICES for s in (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d))
    )
    return (*settings, torch.is_autocast_cache_enabled())


def _default_device() -> str:
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return ", ".join(f"{type(m).__name__}({getattr(m, 'device', '')})" for m in modes)


def needs_details(quick: tuple[Any, ...]) -> bool:
    """Return whether the details must be guarded as well."""
    return bool(quick[3] or quick[4] or quick[5])


def torch_traces() -> bool:
    """Return whether torch itself traces the operators of the call, one by one, or computes something else.

    ``torch.jit.trace``, ``torch.export``, ``make_fx`` and ``torch.fx`` trace, and modes of
    ``TorchDispatchMode`` such as ``FakeTensorMode`` and ``FlopCounterMode``; ``torch.vmap``,
    ``torch.func.grad`` and dual numbers transform; with ``torch._C.DisableTorchFunctionSubclass`` no override
    is called. With none of them a guard holds.
    """
    return (
        torch._C._is_tracing()
        or torch.compiler.is_exporting()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or _dual_level() >= 0
        or not torch._C._is_torch_function_enabled()
        or is_symbolic_tracing()
    )


def tracing_tool() -> str | None:
    """Return which tool of torch traces the call to keep what it traces as a program, or None."""
    if torch.compiler.is_exporting():
        return "torch.export"
    if torch._C._is_tracing():
        return "torch.jit.trace"
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        return "make_fx"
    return FX if is_symbolic_tracing() else None


def refuse_foreign_modes() -> None:
    """Refuse to trace under modes that change the meaning of torch's calls.

    These are FakeTensorMode, vmap, and the other transforms of functorch.
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
    if has_active_modes():  # a compiled function's call holds them
        mode = type(torch._C._get_function_stack_at(torch._C._len_torch_function_stack() - 1)).__name__
        raise UnsupportedProgram(
            f"the program is acquired under the torch function mode {mode}",
            hint="Acquire it outside the mode.",
        )


def full_ambient_state() -> dict[str, Any]:
    """Return the whole ambient state by name."""
    autocast = (f"autocast{what} on {d}" for d in AUTOCAST_DEVICES for what in ("", "'s dtype"))
    names = (*AMBIENT_QUERIES, *autocast, "is_autocast_cache_enabled", "default device")
    return dict(zip(names, (*ambient_key(), *ambient_details()), strict=True))


@dataclass(frozen=True)
class Modes:
    """Grad mode, default dtype, autocast by device, its cache, and the number of active modes."""

    grad: bool
    dtype: torch.dtype
    depth: int
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    keeps_casts: bool

    @classmethod
    def now(cls) -> Modes:
        """Return the current state."""
        return cls(
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch._C._len_torch_function_stack(),
            tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in AUTOCAST_DEVICES),
            torch.is_autocast_cache_enabled(),
        )

    def autocast_after(self, before: Modes) -> list[str]:
        """Return the statements that set what of autocast differs from before."""
        lines: list[str] = []
        for now, was in zip(self.autocast, before.autocast, strict=True):
            if now != was:
                device, enabled, cast_to = now
                lines += (
                    f"torch.set_autocast_enabled({device!r}, {enabled})",
                    f"torch.set_autocast_dtype({device!r}, {cast_to})",
                )
        if self.keeps_casts != before.keeps_casts:
            lines.append(f"torch.set_autocast_cache_enabled({self.keeps_casts})")
        return lines

    def restore(self) -> None:
        """Make this the current state again."""
        torch._C._set_grad_enabled(self.grad)
        if torch.get_default_dtype() is not self.dtype:
            torch.set_default_dtype(self.dtype)
        while torch._C._len_torch_function_stack() > self.depth:
            torch._C._pop_torch_function_stack()
        for device, enabled, cast_to in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, cast_to)
        torch.set_autocast_cache_enabled(self.keeps_casts)


@contextmanager
def restored() -> Iterator[None]:
    """Restore grad mode, default dtype, autocast and the stack of modes after the context."""
    before = Modes.now()
    try:
        yield
    finally:
        before.restore()
