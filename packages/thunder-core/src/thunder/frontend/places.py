"""The special places of a program: its parts that are recorded again, run at another time, or are mapped."""

from __future__ import annotations

from thunder.frontend.checkpoints.region_state import RegionState
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.inner_transforms.inner_programs import InnerPrograms
from thunder.frontend.session import TracingSession

__all__ = ["place_of"]


def place_of(session: TracingSession) -> str | None:
    """Return the special place in which the program is now, in words; None for its own level."""
    if session.state(BackwardState).stack:
        return "a backward"
    if session.state(InnerPrograms).stack:
        return "a mapped or differentiated function"
    if session.state(RegionState).stack:
        return "a checkpointed region, which runs twice"
    if len(session.trace.scopes) > 1:
        return "the decomposition of an operator"
    return None
