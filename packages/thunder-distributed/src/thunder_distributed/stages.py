"""The stages of the pipeline that each distributing transform needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder.core.trace import TraceCtx

from .buckets import with_collectives
from .division.programs import divided, inlined
from .overlap import overlapped
from .program_sequences import with_agreement
from .sequences.ring_stage import with_rings

__all__ = ["add_division", "add_stages"]

COLLECTIVES = "distributed.collectives"
RING = "distributed.ring"


@dataclass(frozen=True)
class _Stage:
    """A stage of the pipeline that passes no dtype or device of a proxy to torch's functions.

    A function as a stage would be interpreted, because it may do so.
    """

    run: Callable[[TraceCtx, Any], TraceCtx]

    def __call__(self, trace: TraceCtx, context: Any) -> TraceCtx:
        return self.run(trace, context)


def add_stages(pipeline: Any) -> None:
    """Add the stages that divide programs, make collectives, overlap them, and compare them, once."""
    if COLLECTIVES not in pipeline.names():
        pipeline.add("distributed.division", _Stage(divided), after="cse", before="autograd")
        pipeline.add("distributed.layouts", _Stage(inlined), after="autograd", before=COLLECTIVES)
        pipeline.add(COLLECTIVES, _Stage(with_collectives), after="autograd", before="transforms_joint")
        pipeline.add(RING, _Stage(with_rings), after="transforms_pre_execution", before="claim")
        pipeline.add("distributed.overlap", _Stage(overlapped), after=RING, before="claim")
        pipeline.add(
            "distributed.agreement",
            _Stage(with_agreement),
            after="transforms_post_optimization",
            before="codegen",
        )


def add_division(pipeline: Any, name: str, divide: Callable[[TraceCtx, Any], TraceCtx]) -> None:
    """Add a stage that divides a program, after the transforms that change its inputs."""
    pipeline.add(name, _Stage(divide), after="transforms_pre_prologue", before="dce")
