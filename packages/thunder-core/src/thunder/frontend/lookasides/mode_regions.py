"""Grad mode, inference mode, default dtype, default device and autocast inside a program.

While tracing, torch's own state is changed, so that every query of it gives eager's result; it is restored at
the end. The trace must do the same when it runs. There are three ways, by what the state does to operators:

    grad mode, default dtype, inference mode   statements in the trace change the state where the program did
    default device                             factories are recorded with an explicit device
    autocast                                   operators are recorded with explicit casts
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import _device_constructors

from thunder.base.langctx import TORCH
from thunder.base.tags import OpTags
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES, WRITES, Place
from thunder.frontend.session import SessionState, TracingSession
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)


class InferenceModes(SessionState):
    """The regions of inference mode that the program has entered."""

    def __init__(self, session: TracingSession) -> None:
        self.outer: list[tuple[bool, bool]] = []  # the inference and grad modes to return to, innermost last
        self.is_on = False
        self.had_regions = False
        self.had_grad = False  # whether gradients were enabled inside of inference mode
        session.place.add_state(Place.INFERENCE, lambda: self.is_on)


Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@TABLE.lookaside(torch._C._set_grad_enabled)
def _set_grad_enabled(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    mode = bool(args[0])
    session.state(InferenceModes).had_grad |= mode and session.state(InferenceModes).is_on
    if mode != torch.is_grad_enabled():
        torch._C._set_grad_enabled(mode)
        prims.set_grad_enabled(mode)


@TABLE.lookaside(torch.set_default_dtype, effect=WRITES)
def _set_default_dtype(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    torch.set_default_dtype(*args, **kwargs)
    prims.set_default_dtype(torch.get_default_dtype())


# -- inference mode ------------------------------------------------------------------------------------------


@TABLE.lookaside(torch.inference_mode.__enter__)
def _enter_inference_mode(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    _begin_inference_mode(session, bool(session.load_attr(args[0], "mode")))


def _begin_inference_mode(session: TracingSession, mode: bool) -> None:
    session.state(InferenceModes).outer.append((session.state(InferenceModes).is_on, torch.is_grad_enabled()))
    session.state(InferenceModes).is_on = mode
    session.state(InferenceModes).had_regions = True
    torch._C._set_grad_enabled(torch.is_grad_enabled() and not mode)
    prims.enter_inference_mode(mode)


@TABLE.lookaside(torch.inference_mode.__exit__)
def _exit_inference_mode(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    session.state(InferenceModes).is_on, grad = session.state(InferenceModes).outer.pop()
    torch._C._set_grad_enabled(grad)
    prims.leave_inference_mode()


@TABLE.lookaside(torch.autograd.grad_mode._enter_inference_mode)  # in graphs of torch.compile
def _enter_by_function(session: TracingSession, args: Args, kwargs: Kwargs) -> torch.inference_mode:
    """Enter inference mode; return a region, which ``_exit_inference_mode`` takes."""
    (mode,) = (*args, *kwargs.values())
    _begin_inference_mode(session, bool(mode))
    return torch.inference_mode(bool(mode))


@TABLE.lookaside(torch.autograd.grad_mode._exit_inference_mode)
def _exit_by_function(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    _exit_inference_mode(session, args, kwargs)


@TABLE.lookaside(torch.is_inference_mode_enabled)
def _is_inference_mode_enabled(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    inherited = torch.is_inference_mode_enabled(*args, **kwargs)
    modes = session.state(InferenceModes)
    return modes.is_on if modes.outer else inherited


# -- default device ------------------------------------------------------------------------------------------

#: functions that create tensors
FACTORIES = frozenset(_device_constructors())


def with_defaults(fn: Any, kwargs: Kwargs, default_dtype: torch.dtype) -> Kwargs:
    """Return a factory's keyword arguments, with the defaults that the program has changed."""
    if (
        kwargs.get("dtype") is None
        and torch.get_default_dtype() is not default_dtype
        and OpTags.DEFAULT_DTYPE in getattr(TORCH.functions.get(fn), "tags", ())
    ):
        kwargs = {**kwargs, "dtype": torch.get_default_dtype()}
    return with_default_device(fn, kwargs)


def with_default_device(fn: Any, kwargs: Kwargs) -> Kwargs:
    """Return a factory's keyword arguments, with the device of the innermost ``torch.device``."""
    if not torch._C._len_torch_function_stack() or kwargs.get("device") is not None or fn not in FACTORIES:
        return kwargs
    return {**kwargs, "device": torch.get_default_device()}


# -- functions under a mode ----------------------------------------------------------------------------------


_rename = getattr(torch.utils._contextlib, "_set_stack_frame_name", None)


@TABLE.lookaside(_rename)
def _set_stack_frame_name(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Rename the code of the wrapper of ``torch.no_grad()(fn)``, as torch 2.15 does."""
    assert _rename is not None, "the program called it"
    _rename(*args, **kwargs)


# -- autocast ------------------------------------------------------------------------------------------------


def _natively(fn: Callable[..., Any]) -> None:
    @TABLE.lookaside(fn)
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        session.note_autocast()
        return fn(*args, **kwargs)


for _name in (
    "set_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_cache_enabled",
    "autocast_increment_nesting",
    "autocast_decrement_nesting",
):
    _natively(getattr(torch, _name))


@TABLE.lookaside(torch.clear_autocast_cache)
def _clear_autocast_cache(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    torch.clear_autocast_cache()
    session.autocast.forget()
