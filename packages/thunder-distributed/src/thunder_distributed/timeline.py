"""The predicted time of a step: the statements of the final traces, on one stream of each kind.

    compute   ──linear──  ──linear──  …wait…  ──linear──
    network   ══gather══════════════════════  ══reduce══

A statement begins when the one before it has ended; a collective when it is issued and the one before it has
ended. `wait` begins when both have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thunder.core.trace import TraceCtx
from thunder.examine.memory_calculation import allocations_of

from .collectives import COLLECTIVES, wait
from .communication import collective_of
from .exchanges import EXCHANGES
from .machines import Machine
from .roofline import collective_seconds, computes_memory, flops_of, statement_seconds

__all__ = ["Timeline", "predicted"]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The time of a trace in seconds.

    Attributes:
        total: from the first statement to the end of the last one.
        compute: in which statements compute.
        communication: in which collectives run.
        flops: the operations of matrix products.
    """

    total: float
    compute: float
    communication: float
    flops: int

    @property
    def exposed(self) -> float:
        """The time in which statements wait for collectives."""
        return self.total - self.compute


def predicted(trace: TraceCtx, ranks: Mapping[str, tuple[int, ...]], machine: Machine) -> Timeline:
    """Return the time of a final trace; `ranks` are those of the groups by name."""
    memory = allocations_of(trace)
    now = network = compute = communication = 0.0
    arrives: dict[str, float] = {}
    flops = 0
    for bsym in trace.bound_symbols:
        if bsym.sym.id in COLLECTIVES | EXCHANGES:
            collective = collective_of(bsym, "")
            seconds = collective_seconds(collective, ranks[collective.group], machine)
            network = max(now, network) + seconds
            communication += seconds
            arrives[bsym.output.name] = network
            if bsym.args[-1] is not True:
                now = network
            continue
        if bsym.sym.id == wait.id:
            now = max(now, arrives[bsym.args[0].name])
            continue
        seconds = statement_seconds(bsym, machine, computes_memory(bsym, memory.storages))
        now += seconds
        compute += seconds
        flops += flops_of(bsym) if seconds else 0
    return Timeline(total=max(now, network), compute=compute, communication=communication, flops=flops)
