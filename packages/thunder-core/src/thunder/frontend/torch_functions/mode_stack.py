"""Lookasides of the functions that enter, leave and query torch function modes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._device import DeviceContext

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.active_modes import HELD, modes_path
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES, READS_SURROUNDINGS
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.torch_functions import override_calls
from thunder.frontend.torch_functions.override_state import Disabled, TorchFunctions
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def enter_held_modes(session: TracingSession) -> None:
    """Enter the modes that are active around the call; what the program reads of them becomes facts."""
    modes = HELD.modes
    if modes:
        path = modes_path()
        session.note(prims.check_len, path, len(modes))
        for i, mode in enumerate(modes):
            session.state(TorchFunctions).push(session.adopt(mode, path.step("index", i)))


def check_modes_left(session: TracingSession, count: int) -> None:
    """Raise UnsupportedProgram if the program has not left as many modes as it entered."""
    if len(session.state(TorchFunctions).modes) != count:
        raise UnsupportedProgram(
            "the program enters a torch function mode and does not leave it, or leaves one of the caller",
            hint="Enter the mode by a with statement.",
        )


# -- the stack of modes --------------------------------------------------------------------------------------


@TABLE.lookaside(torch._C._push_on_torch_function_stack)
def _push(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    if isinstance(args[0], DeviceContext):
        raise UnsupportedProgram(
            "the program enters a DeviceContext of torch by itself", hint="Use with torch.device(…)."
        )
    session.state(TorchFunctions).push(args[0])


@TABLE.lookaside(torch._C._pop_torch_function_stack)
def _pop(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return session.state(TorchFunctions).pop()


@TABLE.lookaside(torch._C._len_torch_function_stack)
def _count(session: TracingSession, args: Args, kwargs: Kwargs) -> int:
    return torch._C._len_torch_function_stack() + len(session.state(TorchFunctions).modes)


@TABLE.with_parameters(torch._C._get_function_stack_at)
def _mode_at(session: TracingSession, index: Any) -> Any:
    below = torch._C._len_torch_function_stack()  # the default device is the outermost mode
    if index < below:
        return torch._C._get_function_stack_at(index)
    return session.state(TorchFunctions).modes[index - below]


@TABLE.lookaside(torch._C._is_torch_function_mode_enabled)
def _has_modes(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    state = session.state(TorchFunctions)
    return state.has_modes or (
        state.disabled is not Disabled.EVERYTHING and torch._C._len_torch_function_stack() > 0
    )


@TABLE.bound_lookaside(vars(torch.device)["__enter__"])
def _enter_device(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Enter ``with torch.device(…)``, which pushes its mode on top of those of the program."""
    state = session.state(TorchFunctions)
    if not state.modes:
        return args[0].__enter__()
    state.push(session.call(DeviceContext, args, {}))
    return args[0]


@TABLE.bound_lookaside(vars(torch.device)["__exit__"])
def _leave_device(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    state = session.state(TorchFunctions)
    if not state.modes:
        return args[0].__exit__(*args[1:])
    state.pop()
    return None


@TABLE.lookaside(torch.get_default_device, effect=READS_SURROUNDINGS)
def _get_default_device(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    if session.state(TorchFunctions).modes:
        return session.machine.generic_call(torch.get_default_device, args, kwargs)
    return torch.get_default_device(
        *args, **kwargs
    )  # of the call: guarded as ambient state; of a region: known


# -- what is disabled ----------------------------------------------------------------------------------------


@TABLE.lookaside(torch._C._is_torch_function_enabled)
def _subclasses_override(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    return session.state(TorchFunctions).subclasses_override


@TABLE.lookaside(torch._C._is_torch_function_all_disabled)
def _all_disabled(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    return session.state(TorchFunctions).disabled is Disabled.EVERYTHING


class _Regions(SessionState):
    """The regions in which the program has disabled overrides: what was disabled around each."""

    def __init__(self, session: TracingSession) -> None:
        self.outer: dict[int, list[Disabled]] = {}


def _region(cls: Any, disabled: Disabled) -> None:
    @TABLE.bound_lookaside(vars(cls)["__enter__"])
    def enter(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        state = session.state(TorchFunctions)
        session.state(_Regions).outer.setdefault(id(args[0]), []).append(state.disabled)
        state.disabled = max(state.disabled, disabled)

    @TABLE.bound_lookaside(vars(cls)["__exit__"])
    def leave(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
        session.state(TorchFunctions).disabled = session.state(_Regions).outer[id(args[0])].pop()
        return False


_region(torch._C.DisableTorchFunctionSubclass, Disabled.SUBCLASSES)
_region(torch._C.DisableTorchFunction, Disabled.EVERYTHING)


@TABLE.lookaside(torch._C._disabled_torch_function_impl)
def _without_subclasses(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Do what ``__torch_function__`` of parameters does: call the function without overrides by classes."""
    function, _, values, *rest = (*args, *kwargs.values())
    state = session.state(TorchFunctions)
    outer, state.disabled = state.disabled, max(state.disabled, Disabled.SUBCLASSES)
    try:
        return session.call(function, tuple(values), dict(rest[0]) if rest and rest[0] else {})
    finally:
        state.disabled = outer


# -- tests and calls of Python functions ---------------------------------------------------------------------


@TABLE.lookaside(torch.overrides.has_torch_function)
def _has_torch_function(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    torch.overrides.has_torch_function(*args, **kwargs)  # raises for wrong arguments
    return override_calls.has_override(session, args[0])


@TABLE.lookaside(torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)
def _any_has_torch_function(session: TracingSession, args: Args, kwargs: Kwargs) -> bool:
    return override_calls.has_override(session, args)


@TABLE.lookaside(torch.overrides.handle_torch_function)
def _handle(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    function, relevant, *rest = args
    if "relevant_args" in kwargs:  # torch's own parameters may be named
        raise UnsupportedProgram("handle_torch_function(relevant_args=…)", hint="Pass it by position.")
    overloaded = override_calls.overloaded_arguments(session, relevant)
    return override_calls.override(session, function, overloaded, tuple(rest), kwargs)


# -- queries of torch's tables -------------------------------------------------------------------------------


def _natively(name: str) -> None:
    fn = getattr(torch.overrides, name)

    @TABLE.lookaside(fn)
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        return fn(*args, **kwargs)  # reads tables of torch alone


for _name in (
    "resolve_name",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "is_tensor_method_or_property",
):
    _natively(_name)
