"""Estimates of statements: operations, bytes, and the time of a roofline.

The formulas are those of `thunder_distributed.roofline`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from thunder import TensorProxy, TraceCtx
from thunder.core.dtypes import to_torch_dtype
from thunder.core.prims import OpTags
from thunder.core.symbol import BoundSymbol
from thunder.examine.memory_calculation import allocations_of
from thunder_distributed.machines import MACHINES, Machine, machine_named
from thunder_distributed.roofline import computes_memory, flops_of, nbytes_of, statement_seconds
from thunder_report.model import StatementCost
from thunder_report.statements import shown_statements

__all__ = ["RatedMachine", "bytes_of_call", "costs_of", "machine_of"]

#: rows of the square matrices, and bytes of the copy, with which a CPU is measured
_ROWS, _COPIED = 768, 1 << 26


@dataclass(frozen=True)
class RatedMachine:
    """A machine and a sentence about it; None if no figures are known, so that times are not estimated."""

    machine: Machine | None
    text: str

    @property
    def rates(self) -> tuple[float, ...]:
        """Operations per second of the fastest dtype, and bytes per second; empty if they are not known."""
        return () if self.machine is None else (max(self.machine.flops.values()), self.machine.bandwidth)


def machine_of(traces: Iterable[TraceCtx], *, measures: bool, device: str | None) -> RatedMachine:
    """Return the machine on which the tensors of traces are.

    Of a GPU the figures are its maker's (`thunder_distributed.machines`). A CPU is measured if `measures`: a
    product of matrices for each dtype, and a copy. `device` is the profile for which a program was planned.
    """
    if device is not None and device in MACHINES:
        return RatedMachine(machine_named(device), f"{device}, peak rates of its maker")
    tensors = [p for trace in traces for p in _tensors(trace)]
    types = {p.device.type for p in tensors}
    if "cuda" in types and torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        known = next((key for key in MACHINES if key in name.lower()), None)
        if known is None:
            return RatedMachine(None, f"{name}: its peak rates are not known")
        return RatedMachine(machine_named(known), f"{name}, peak rates of its maker")
    if types <= {"cpu"} and tensors and measures:
        dtypes = sorted({p.dtype.shortname() for p in tensors if p.dtype.shortname() in _MEASURED})
        flops = {name: _cpu_flops(name) for name in dtypes}
        bandwidth = _cpu_bandwidth()
        rates = ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in flops.items())
        text = (
            f"this CPU with {torch.get_num_threads()} threads, measured: {rates}, {bandwidth / 1e9:.1f} GB/s"
        )
        return RatedMachine(Machine(flops=flops, bandwidth=bandwidth, within=1.0, between=1.0), text)
    return RatedMachine(None, "")


def _tensors(trace: TraceCtx) -> list[TensorProxy]:
    values = [*trace.args, *(p for bsym in trace.bound_symbols for p in bsym.flat_proxy_outs)]
    return [p for p in values if isinstance(p, TensorProxy)]


_MEASURED: Mapping[str, torch.dtype] = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}


def _shortest(run: Callable[[], Any], repeats: int = 4) -> float:
    """Return the time of the fastest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@cache
def _cpu_flops(dtype: str) -> float:
    """Return the operations per second of a product of matrices."""
    a = torch.ones(_ROWS, _ROWS, dtype=_MEASURED[dtype])
    return 2 * _ROWS**3 / _shortest(lambda: a @ a)


@cache
def _cpu_bandwidth() -> float:
    """Return the bytes per second that a copy reads and writes."""
    source, target = torch.ones(_COPIED, dtype=torch.uint8), torch.ones(_COPIED, dtype=torch.uint8)
    return 2 * _COPIED / _shortest(lambda: target.copy_(source))


def bytes_of_call(bsym: BoundSymbol) -> int:
    """Return the bytes of the arguments and results of a statement, each counted once."""
    return nbytes_of((*bsym.flat_proxy_args, *bsym.flat_proxy_outs))


def costs_of(trace: TraceCtx, machine: Machine | None) -> tuple[StatementCost | None, ...]:
    """Return the estimate of each statement of a final trace; None for one that writes nothing."""
    storages = allocations_of(trace).storages
    costs: list[StatementCost | None] = []
    for _, bsym in shown_statements(trace):
        if not (computes_memory(bsym, storages) or OpTags.IN_PLACE in bsym.tags):
            costs.append(None)
            continue
        flops = flops_of(bsym)
        seconds = _seconds(bsym, machine, flops)
        costs.append(StatementCost(flops, bytes_of_call(bsym), None if seconds is None else seconds * 1e9))
    return tuple(costs)


def _seconds(bsym: BoundSymbol, machine: Machine | None, flops: int) -> float | None:
    if machine is None:
        return None
    if flops and not all(
        p.dtype.shortname() in machine.flops
        for p in bsym.flat_proxy_args
        if isinstance(p, TensorProxy) and to_torch_dtype(p.dtype).is_floating_point
    ):
        return None
    return statement_seconds(bsym, machine, computes=True)
