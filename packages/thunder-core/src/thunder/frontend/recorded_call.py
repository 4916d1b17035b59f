"""The call of a program that is interpreted: its arguments under their roots, its result or its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.base.errors import (
    NotInitialized,
    OperatorError,
    RaisedByProgram,
    ThunderError,
    UnsupportedProgram,
)
from thunder.base.provenance import own_name, root
from thunder.frontend import ambient_state
from thunder.frontend.active_modes import HELD
from thunder.frontend.decisions.early_run import RaisedEarly
from thunder.frontend.decisions.made_decisions import decides_on_made, has_other_effects
from thunder.frontend.inner_transforms import dual_numbers
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.program_recorder import ProgramRecorder
from thunder.frontend.raised_errors import carries_values, name_tensors
from thunder.frontend.ran_code import RanCode
from thunder.frontend.session import TracingSession
from thunder.frontend.source_locations import locations_of
from thunder.frontend.torch_functions import mode_stack
from thunder.frontend.traced_replacements import ReplacedCalls
from thunder.interpreter import Machine
from thunder.ir.effects import has_effect
from thunder.ir.trace import tracectx
from thunder.ops import prims
from thunder.ops.data_errors import may_raise_on_data

__all__ = ["recorded_call"]


def recorded_call(
    session: TracingSession,
    machine: Machine,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return the value of the call, recorded into the trace; errors name the program's lines."""
    try:
        with tracectx(session.trace, recorder=ProgramRecorder(session)):
            rooted = _rooted_call(session, fn, args, kwargs)
            mode_stack.enter_held_modes(session)
            result = machine.call(*rooted)
            mode_stack.check_modes_left(session, len(HELD.modes))
            dual_numbers.check_level_left(session)
        if session.speculation is not None and session.speculation.refusal is not None:
            raise session.speculation.refusal
        return result
    except OperatorError as error:  # torch raises here too
        raise _raised(session, error.add_locations(locations_of(error))) from None
    except RaisedEarly as early:
        raise _raised(session, early.error) from None
    except NotInitialized as error:
        error.add_locations(locations_of(error))
        # Python would run them again, or read what code has changed that ran once
        if session.state(OpaqueCalls).calls or session.state(RanCode).has_changed_facts:
            raise UnsupportedProgram(
                error.asked, found=error.found, where=error.where, hint=error.hint
            ) from error.__cause__
        raise
    except ThunderError as error:
        raise error.add_locations(locations_of(error)) from error.__cause__
    except KeyboardInterrupt:  # the user's, who wants an end
        raise
    except BaseException as error:  # the program's own
        raise _raised(session, error) from None


def _rooted_call(
    session: TracingSession, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The call with its function and arguments adopted, each under its root."""
    objects = session.objects
    name = "self" if isinstance(fn, torch.nn.Module) else own_name(fn, "__name__") or "fn"
    function_path = objects.object_root(fn, name)
    if isinstance(fn, torch.nn.Module):
        objects.name_members(fn, function_path)
    function = objects.adopt(fn, function_path)
    args_path, kwargs_path = root("args"), root("kwargs")
    objects.note(prims.check_len, args_path, len(args))
    objects.note(prims.check_keys, kwargs_path, tuple(kwargs))
    values = tuple(objects.adopt(a, args_path.step("index", i)) for i, a in enumerate(args))
    keywords = {k: objects.adopt(v, kwargs_path.step("key", k)) for k, v in kwargs.items()}
    return function, values, keywords


def _raised(session: TracingSession, error: BaseException) -> RaisedByProgram:
    """Return the error of a program; Python runs one again that raises after a decision."""
    name_tensors(error)
    written, calls = session.writes.names(), session.trace.bound_symbols
    may_raise_earlier = any(map(may_raise_on_data, calls))
    noticed = may_raise_earlier or written or any(map(has_effect, calls)) or session.machine.has_generators
    decided = session.speculation is not None and session.speculation.has_run
    noticed = noticed or decided or carries_values(error)
    if noticed and decides_on_made(calls):  # Python would make other values
        if written or has_other_effects(calls) or carries_values(error):
            raise UnsupportedProgram(
                "the program raises after it has decided on a value that it makes in each call, "
                "and has other effects",
                found={"error": repr(error)},
                hint="Make the value before the call, and pass it.",
            ) from error
        noticed = False
    return RaisedByProgram(
        error,
        written,
        runs_again=not (session.calls_symbols or session.state(ReplacedCalls).calls)
        and bool(noticed or ambient_state.Modes.now() != session.modes),
        handles=decided or (may_raise_earlier and session.handles_errors),
    )
