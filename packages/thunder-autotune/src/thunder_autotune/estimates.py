"""`placement="estimated"`: what calls would take on a device that need not be here, with the uncertainty.

Tables that packages ship come first: lock files of measurements on the device (hook `thunder_lock_files`).
Else an executor's own cost (`thunder_costs`), and for torch's kernels a roofline (Williams, Waterman and
Patterson, Roofline, 2009). A kernel reaches between a quarter and all of the peak rates, and its launch takes
between 2 and 8 µs: so an estimate is a range, and a choice is made where two ranges do not meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thunder.core.errors import InvalidArgument
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.core.transform_common import Note
from thunder.extend import (
    Executor,
    FusionExecutor,
    Preference,
    Refusal,
    Region,
    RegionPreference,
    answer_as_executor,
    device_profile,
    get_always_executors,
)
from thunder_autotune.entries import CALLS, Entries, Entry, time_text
from thunder_autotune.keys import call_key, described, has_symbolic_sizes, region_key
from thunder_autotune.placement import refusal_of
from thunder_autotune.shipped import shipped_entries
from thunder_distributed.machines import MACHINES, Machine, machine_named
from thunder_distributed.roofline import flops_of, nbytes_of, statement_seconds

__all__ = ["Estimate", "Estimated", "Estimates", "configure"]

#: the part of the peak rates that kernels reach at least, and the time of a launch, in microseconds
_LEAST_RATE, _LAUNCH = 0.25, (2.0, 8.0)
#: how far the cost that an executor declares may be from the time, as a factor
_COST_FACTOR: Final = 1.5


@dataclass(frozen=True)
class Estimate:
    """The time that something would take, in microseconds: at least, and at most."""

    low: float
    high: float

    def is_less_than(self, other: Estimate) -> bool:
        """Return whether the time is shorter, whatever the two times are."""
        return self.high < other.low

    def __str__(self) -> str:
        return f"{time_text(self.low)} to {time_text(self.high)}"


@dataclass(frozen=True)
class Estimates(Note):
    """The estimates of a program for a device, for `thunder.explain` and plans.

    `rows` has for each distinct call with several executors, and each region, the candidates with their
    ranges in microseconds. `why` says why there are none.
    """

    device: str
    rows: tuple[tuple[str, Mapping[str, Estimate]], ...]
    why: str = ""

    def facts(self) -> Mapping[str, Any]:
        """Return the facts as the JSON of `thunder.explain` has them."""
        rows = {what: {name: [e.low, e.high] for name, e in found.items()} for what, found in self.rows}
        return {"estimated for": self.device, "us": rows, "why": self.why}

    def __str__(self) -> str:
        head = f"estimated for {self.device}" + (f": {self.why}" if self.why else "")
        lines = [
            f"  {what}: " + ", ".join(f"{name} {estimate}" for name, estimate in found.items())
            for what, found in self.rows
        ]
        return "\n".join([head, *lines])


class Estimated:
    """The preferences of one compile, from estimates for the device on which its tensors are.

    Args:
        context: that of the compile.
        shipped: measurements that packages ship.
    """

    def __init__(self, context: Any, shipped: Entries) -> None:
        self._executors: Sequence[Executor] = context.executors
        self._names = {executor.name for executor in context.executors}
        self._shipped = shipped
        self._rows: dict[str, Mapping[str, Estimate]] = {}
        self._devices: dict[str, None] = {}
        self._unknown: dict[str, None] = {}

    # -- preferences

    def of_call(self, bsym: BoundSymbol) -> Preference | None:
        """Return the executor whose range is below that of the others, or None."""
        key = None if bsym.sym.executor is not None else call_key(bsym)
        device, machine = self._device_of((*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
        if key is None or machine is None:
            return None
        entry = self._measured("call", key, device)
        if entry is not None:
            self._rows[key] = _ranges(entry)
            others = tuple((n, refusal_of(entry, n)) for n in sorted(self._names & {*entry.figures}))
            figure = entry.figures.get(entry.executor)
            return Preference(
                entry.way.executor,
                None if figure is None else figure.us,
                tuple((name, refusal) for name, refusal in others if name != entry.executor),
                entry.way.options,
            )
        found = self._estimates(bsym, machine)
        if len(found) < 2:
            return None
        self._rows[key] = found
        first = min(found.items(), key=lambda item: item[1].high)
        if not all(first[1].is_less_than(e) for name, e in found.items() if name != first[0]):
            return None
        refusals = tuple(
            (name, Refusal("cost", f"estimated {e}, {first[0]} {first[1]}"))
            for name, e in found.items()
            if name != first[0]
        )
        return Preference(first[0], (first[1].low + first[1].high) / 2, refusals)

    def of_region(self, executor: Executor, region: Region) -> RegionPreference | None:
        """Return what was measured of a region, or why it is left: its calls are certainly faster."""
        proxies = (*region.inputs, *region.outputs)
        device, machine = self._device_of(proxies)
        if machine is None or has_symbolic_sizes(proxies):
            return None
        key = region_key(region)
        entry = None if key is None else self._measured("region", key, device)
        if entry is not None:
            self._rows[f"region of {described(region.bsyms)}"] = _ranges(entry)
            way = entry.way
            if way.executor == executor.name:
                return RegionPreference(cuts=way.cuts, options=way.options)
            return RegionPreference(refusal_of(entry, executor.name))
        calls = [_roofline((b,), b.flat_proxy_args, b.flat_proxy_outs, machine) for b in region.bsyms]
        whole = _roofline(region.bsyms, region.inputs, region.outputs, machine)
        if whole is None or any(call is None for call in calls):
            return None
        each = Estimate(sum(c.low for c in calls if c), sum(c.high for c in calls if c))
        self._rows[f"region of {described(region.bsyms)}"] = {executor.name: whole, CALLS: each}
        if each.is_less_than(whole):
            return RegionPreference(Refusal("cost", f"estimated {whole}, call by call {each}"))
        return None

    # -- estimates

    def _device_of(self, proxies: Iterable[Any]) -> tuple[str, Machine | None]:
        """Return the profile's name and the machine of a call's tensors; None where nothing is known."""
        device = next((p.device for p in proxies if isinstance(p, TensorProxy)), None)
        if device is None:
            return "", None
        try:
            name = device_profile(device).name
        except InvalidArgument:
            self._unknown[str(device)] = None
            return str(device), None
        self._devices[name] = None
        known = next((key for key in MACHINES if key in name.lower()), None)
        if known is None:
            self._unknown[name] = None
            return name, None
        return name, machine_named(known)

    def _measured(self, kind: Any, key: str, device: str) -> Entry | None:
        """Return what a package measured on such a device, if its executor is part of the compile."""
        for entry in self._shipped:
            is_it = (entry.kind, entry.key) == (kind, key) and device.lower() in entry.profile.lower()
            if is_it and entry.way.executor in (CALLS, *self._names):
                return entry
        return None

    def _estimates(self, bsym: BoundSymbol, machine: Machine) -> dict[str, Estimate]:
        """Return the executors that accept a call with the times that it would take."""
        found: dict[str, Estimate] = {}
        for executor in self._executors:
            call = executor.as_registered(bsym)
            if isinstance(executor, FusionExecutor) or answer_as_executor(executor, call) is not True:
                continue
            cost = executor.cost_of(call)
            estimate = None
            if cost is not None:
                estimate = Estimate(cost / _COST_FACTOR, cost * _COST_FACTOR)
            elif executor in get_always_executors():
                estimate = _roofline((bsym,), bsym.flat_proxy_args, bsym.flat_proxy_outs, machine)
            if estimate is not None:
                found.setdefault(executor.name, estimate)
        return found

    def note(self) -> Estimates:
        """Return what was estimated."""
        why = ""
        if not self._rows and self._unknown:
            why = f"no rates are known of {', '.join(self._unknown)}"
        return Estimates(", ".join(self._devices or self._unknown), tuple(self._rows.items()), why)


def _roofline(
    bsyms: Iterable[BoundSymbol], inputs: Iterable[Any], outputs: Iterable[Any], machine: Machine
) -> Estimate | None:
    """Return the time of a kernel that computes some calls, or None for products of an unknown dtype."""
    memory = nbytes_of((*inputs, *outputs)) / machine.bandwidth
    products = 0.0
    for bsym in bsyms:
        if flops_of(bsym):
            try:
                products += statement_seconds(bsym, machine, True)
            except InvalidArgument:
                return None
    us = max(memory, products) * 1e6
    return Estimate(_LAUNCH[0] + us, _LAUNCH[1] + us / _LEAST_RATE)


def _ranges(entry: Entry) -> dict[str, Estimate]:
    return {name: Estimate(f.us - f.spread, f.us + f.spread) for name, f in entry.figures.items()}


def configure(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add the stages by which estimates decide, and which note them."""

    def begin(trace: TraceCtx, context: Any) -> TraceCtx:
        context.preferences = Estimated(context, shipped_entries())
        return trace

    def end(trace: TraceCtx, context: Any) -> TraceCtx:
        if isinstance(context.preferences, Estimated) and not context.is_backward:
            context.note(context.preferences.note())
        return trace

    pipeline.add("autotune.placement", begin, before="functionalise")
    pipeline.add("autotune.placement.noted", end, after="codegen")
