"""Hooks on the tensors that are saved for a backward, as programs set and forbid them.

    with save_on_cpu(): …                        →   the body
    with disable_saved_tensors_hooks(text): …    →   the body, where the other two raise RuntimeError(text)
    with saved_tensors_hooks(pack, unpack): …    →   refused

What is saved, and where, is decided for the whole program. Whether the caller forbids such hooks is a fact of
programs that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import SessionState, TracingSession

TABLE = LookasideTable(COMPUTES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

_autograd = torch._C._autograd


class SavedTensorHooks(SessionState):
    """The text with which hooks on saved tensors are forbidden, and the depth of regions with hooks."""

    def __init__(self, session: TracingSession) -> None:
        self.message = _fact(session, _autograd._saved_tensors_hooks_get_disabled_error_message)
        self.depth = 0


def _fact(session: TracingSession, query: Callable[[], Any]) -> Any:
    """Return the answer of torch to a question without arguments, which is a fact."""
    answer = query()
    session.note_state(query, f"torch._C._autograd.{query.__name__}()", answer)
    return answer


def _has_hooks() -> bool:
    return _autograd._top_saved_tensors_default_hooks(False) is not None


@TABLE.lookaside(_autograd._saved_tensors_hooks_get_disabled_error_message)
def _get_message(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return session.state(SavedTensorHooks).message


@TABLE.with_parameters(_autograd._saved_tensors_hooks_disable)
def _disable(session: TracingSession, error_message: str, fail_if_non_empty: bool = True) -> None:
    """Forbid hooks; raises RuntimeError, as torch does, where there are some."""
    hooks = session.state(SavedTensorHooks)
    if fail_if_non_empty and (hooks.depth or _fact(session, _has_hooks)):
        raise RuntimeError(error_message)
    hooks.message = error_message


@TABLE.lookaside(_autograd._saved_tensors_hooks_enable)
def _enable(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    session.state(SavedTensorHooks).message = None


@TABLE.lookaside(save_on_cpu.__init__)
def _save_on_cpu(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Do nothing: what is saved for the backward, and where, is decided for the whole program."""


@TABLE.lookaside(saved_tensors_hooks.__enter__)
def _begin(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """Begin a region of ``save_on_cpu``; raises UnsupportedProgram for other hooks."""
    if type(args[0]) is not save_on_cpu:
        _refuse(session, args, kwargs)
    hooks = session.state(SavedTensorHooks)
    if hooks.message is not None:
        raise RuntimeError(hooks.message)
    hooks.depth += 1


@TABLE.lookaside(saved_tensors_hooks.__exit__)
def _end(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    """End a region of ``save_on_cpu``."""
    session.state(SavedTensorHooks).depth -= 1


@TABLE.lookaside(_autograd._push_saved_tensors_default_hooks, _autograd._pop_saved_tensors_default_hooks)
def _refuse(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    raise UnsupportedProgram(
        "the program sets hooks on the tensors that are saved for its backward",
        hint="Set them around the call of the compiled function, or mark the function that sets them by "
        "thunder.opaque.",
    )
