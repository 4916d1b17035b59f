"""What the stages of one compile share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunder.autograd.joint_trace import Tape
from thunder.autograd.lowering import Differentiated
from thunder.executor_base.executor import Executor
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_trace
from thunder.passes.placement import Placement
from thunder.passes.transform import Transform

__all__ = ["Context", "Gradient", "Line"]


@dataclass
class Line:
    """One trace on its way through the stages, with what they leave behind."""

    #: the trace as the line began, then one for each stage that changed it
    traces: list[TraceCtx] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    fn: Callable[..., Any] | None = None


@dataclass
class Gradient:
    """What the autograd stage hands to the partition, and the partition to the end."""

    tape: Tape
    outputs: tuple[TensorProxy, ...]
    #: the names of inputs that the tail overwrites
    written: frozenset[str]
    #: what runs behind the function that torch's autograd sees, if anything
    tail: TraceCtx | None
    program: Differentiated | None = None


@dataclass
class Context:
    """What the stages of one compile share: their inputs, and the records that they leave behind.

    The attributes ``traces``, ``placements`` and ``fn`` are those of the line that is in work: ``forward``
    (which is all there is without gradients), or ``backward``.
    """

    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    #: whether each new trace is verified, and each result compared with its proxy when it is computed
    check: bool = False
    prologue: TraceCtx | None = None
    epilogue: TraceCtx | None = None
    forward: Line = field(default_factory=Line)
    backward: Line | None = None
    gradient: Gradient | None = None
    #: whether a transform computes in the backward what the gradient rules alone do not
    backward_is_changed: bool = False
    #: stage → ns
    stage_times: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.line = self.forward

    traces = property(lambda self: self.line.traces, doc="The traces of the line in work.")

    @property
    def lines(self) -> tuple[Line, ...]:
        """The forward, and the backward if there is one."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)

    def record(self, trace: TraceCtx, stage: str) -> None:
        """Appends a new trace to the line in work, and verifies it if asked."""
        if self.traces and self.traces[-1] is trace:
            return
        if self.check:
            check_trace(trace, stage=stage)
        self.traces.append(trace)

    @property
    def facts(self) -> dict[str, Any]:
        """The keyword arguments of every trace hook."""
        return {"executors_list": self.executors, "options": self.options}
