"""Marks for other compilers and for the profiler, on which nothing of a compiled program depends.

    with torch.profiler.record_function("attention"):     →   the body
    torch.compiler.disable(fn)(x), torch.compile(fn)(x)   →   fn(x), traced as part of the program
    torch._dynamo.mark_dynamic(x, 0)                      →   nothing

A function that cannot be traced is marked by ``thunder.opaque``; ``torch.compiler.disable`` does not do that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.base.errors import UnsupportedProgram
from thunder.base.size_wishes import mark_dynamic
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession

TABLE = LookasideTable(COMPUTES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


# -- the profiler --------------------------------------------------------------------------------------------


@TABLE.lookaside(torch.autograd.profiler.record_function.__enter__)
def _begin_label(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Return the context: operators of a compiled program have no labels."""
    return args[0]


@TABLE.lookaside(torch.autograd.profiler.record_function.__exit__)
def _end_label(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Do nothing."""


@TABLE.lookaside(
    torch.autograd.profiler.profile.__init__,
    torch.autograd.profiler.profile.__enter__,
    torch.profiler.profile.__init__,
    torch.profiler.profile.__enter__,
    torch.profiler.profile.start,
    torch.autograd.profiler.emit_nvtx.__enter__,
)
def _profile(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    raise UnsupportedProgram(
        "the program starts a profiler", hint="Start it around the call of the compiled function."
    )


@TABLE.lookaside(TorchDispatchMode.__enter__)
def _enter_dispatch_mode(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    mode = f"{type(args[0]).__module__}.{type(args[0]).__qualname__}"
    raise UnsupportedProgram(
        f"the program enters {mode}, a mode that handles operators as they run",
        hint="Enter it around the call of the compiled function, which Python then runs as it was written; "
        "a TorchFunctionMode is followed within a program too.",
    )


# -- other compilers -----------------------------------------------------------------------------------------

_DYNAMO = "torch._dynamo.eval_frame"


@TABLE.named_closure_lookaside(_DYNAMO, "DisableContext.__call__.<locals>._fn")
@TABLE.named_closure_lookaside(_DYNAMO, "_TorchDynamoContext.__call__.<locals>.compile_wrapper")
@TABLE.named_closure_lookaside(_DYNAMO, "_TorchDynamoContext.__call__.<locals>._fn")
def _call_original(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    """Call the function that ``torch.compile`` or ``torch.compiler.disable`` has wrapped."""
    wrapper, *values = args
    return session.call(session.load_attr(wrapper, "_torchdynamo_orig_callable"), tuple(values), kwargs)


def _ignore(name: str) -> None:
    @TABLE.named_lookaside("torch._dynamo.decorators", name)
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
        """Do nothing: shapes are facts, and a program is compiled as one."""


for _name in ("graph_break", "mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_static_address"):
    _ignore(_name)


@TABLE.lookaside(mark_dynamic)
def _mark_dynamic(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    raise UnsupportedProgram("a compiled program marks a tensor as dynamic", hint="Mark it before the call.")


@TABLE.lookaside(torch.compiler.cudagraph_mark_step_begin)
def _mark_step(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Do nothing: a compiled program begins no graph of its own."""
