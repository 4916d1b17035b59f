"""A program and its gradients before the partition, for planners of what is saved for the backward.

Note [Order of a backward]
A planner returns the calls of a backward in the order in which they run. These are the calls that need a
cotangent, each once, and calls of the forward, which compute their results again, as often as they occur:

    forward             backward                 order                     saved
    h = matmul(x, w)    t0 = mul(g, cos(a))      a = exp(h)                h, which is read before it is
    a = exp(h)          t1 = mul(t0, a)          t0 = mul(g, cos(a))       computed again
    y = sin(a)                                   t1 = mul(t0, a)

A value of the forward that a call reads before the order computes it again is saved, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.autograd.residuals import ForwardGraph, computed_by
from thunder.base.errors import PluginError
from thunder.base.plugin_calls import shown
from thunder.base.tags import OpTags
from thunder.executor_base.region_modes import RegionMode
from thunder.ir.effects import has_effect
from thunder.ir.proxies import AnyProxy, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx

__all__ = ["BackwardPlanner", "JointProgram", "Order", "check_order", "residuals_of_order"]

#: the calls of a backward in their order; None leaves the choice to the option `rematerialization`
Order = Sequence[BoundSymbol] | None


@dataclass(frozen=True, eq=False)
class JointProgram:
    """A program whose forward and backward are not separate yet.

    Attributes:
        inputs: the arguments of the program.
        cotangents: the gradients of its differentiable results.
        forward: the calls that need no cotangent, in their order.
        backward: the calls that need one, in their order.
        results: the proxies in the program's results.
        gradients: those in what the backward returns.
        connecting: values that leave the forward because another node of torch's graph reads them.
        graph: what is known of the forward's values.
        partitioned: splits the program by an order of the backward's calls.
        lower: returns the traces of a forward and a backward as they run.
    """

    inputs: tuple[Any, ...]
    cotangents: tuple[TensorProxy, ...]
    forward: tuple[BoundSymbol, ...]
    backward: tuple[BoundSymbol, ...]
    results: tuple[Any, ...]
    gradients: tuple[Any, ...]
    connecting: tuple[TensorProxy, ...]
    graph: ForwardGraph
    partitioned: Callable[[Order], tuple[TraceCtx, TraceCtx]]
    lower: Callable[[TraceCtx, TraceCtx, RegionMode], tuple[TraceCtx, TraceCtx]] | None = None

    def traces(self, order: Order = None, regions: RegionMode = "compiled") -> tuple[TraceCtx, TraceCtx]:
        """Return the forward and the backward for an order of the backward's calls, as they would run.

        Their calls are claimed and fused; transforms that change a forward or a backward have not run. With
        `regions="sketched"` no region is compiled, so that the traces can be looked at but not run; with
        `"left"` there are none, and each call runs by itself.
        """
        forward, backward = self.partitioned(order)
        return (forward, backward) if self.lower is None else self.lower(forward, backward, regions)

    def can_save(self, value: Any) -> bool:
        """Return whether a value may be saved for the backward; one that may not is computed again."""
        return self.graph.can_save(value)

    def can_run_again(self, bsym: BoundSymbol) -> bool:
        """Return whether a call of the forward may run again in the backward.

        One with an effect may not, nor one that draws random numbers, nor one that returns other objects
        than tensors and numbers.
        """
        if has_effect(bsym) or any(type(p) is AnyProxy for p in bsym.flat_proxy_outs):
            return False
        may_save_all = all(map(self.can_save, computed_by(bsym)))
        return not may_save_all or OpTags.DONT_RECOMPUTE_IN_BACKWARD not in bsym.tags


#: returns the calls of a program's backward in the order in which they run, or None
BackwardPlanner = Callable[[JointProgram], Order]


def check_order(program: JointProgram, order: object) -> None:
    """Raise PluginError for what is not an order of the calls of a backward.

    It may lack no call, have no foreign one, run nothing again that may not, and read no value that may not
    be saved before it is computed again.
    """
    if not isinstance(order, Sequence) or not all(isinstance(bsym, BoundSymbol) for bsym in order):
        raise _wrong(f"it is {shown(order)}")
    _check_calls(program, order)
    for value in residuals_of_order(program, order):
        if not program.can_save(value):
            raise _wrong(f"{value.name}, which may not be saved, is read before it is computed again")


def residuals_of_order(program: JointProgram, order: Sequence[BoundSymbol]) -> list[Any]:
    """Return the values that the forward saves for these calls, in the program's order."""
    again = set(map(id, program.forward))
    computed: set[str] = set()
    saved: set[str] = set()
    for bsym in order:
        saved.update(p.name for p in bsym.flat_proxy_args if p.name not in computed)
        if id(bsym) in again:
            computed.update(p.name for p in computed_by(bsym))
    saved.update(p.name for p in proxies_in(program.gradients) if p.name not in computed)
    return [v for name, v in program.graph.values.items() if name in saved]


def _check_calls(program: JointProgram, order: Sequence[BoundSymbol]) -> None:
    counts = Counter(map(id, order))
    if any(counts.pop(id(bsym), 0) != 1 for bsym in program.backward):
        raise _wrong("each call of the backward has to be in it once")
    for bsym in program.forward:
        if counts.pop(id(bsym), 0) and not program.can_run_again(bsym):
            raise _wrong(f"the call may not run again: {bsym.line}")
    if counts:
        raise _wrong("it has a call that is not one of the program")


def _wrong(reason: str) -> PluginError:
    return PluginError(
        f"the order of a backward's calls is wrong: {reason}",
        hint="It has each call of JointProgram.backward once, and any of JointProgram.forward.",
    )
