"""`thunder.plan`: what a program would become on hardware that need not be here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import InvalidArgument, RaisedByProgram
from thunder.compiler.dispatch import Dispatcher, collector_paused
from thunder.compiler.jit import jit
from thunder.compiler.ledger import Explanation
from thunder.compiler.memory_estimate import MemoryEstimate, estimate_memory
from thunder.compiler.stats import CacheEntry
from thunder.executor_base.executor import Executor
from thunder.extend import assuming_device, profile_named
from thunder.ir.trace import TraceCtx
from thunder.ops.layouts import untouched
from thunder.passes.transform import Transform
from thunder.plugins.specs import DeviceProfile
from thunder.wrappers.thunder_module import dispatcher_of

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """A compiled program that does not run: its traces, who runs what and why, and the memory that it needs.

    `str()` is a summary. `device` is None if each tensor was taken to be where it is.
    """

    device: DeviceProfile | None
    ledger: Explanation
    memory: MemoryEstimate
    traces: list[TraceCtx]
    backward_traces: list[TraceCtx]
    prologue_traces: list[TraceCtx]
    epilogue_traces: list[TraceCtx]

    def explain(self) -> Explanation:
        """The placement ledger, as `thunder.explain` gives it for a compiled object that was called."""
        return self.ledger

    @property
    def fits(self) -> bool | None:
        """Whether the estimated peak is within the device's memory; None if the device says nothing of it."""
        if self.device is None or self.device.memory_bytes is None:
            return None
        return self.memory.peak <= self.device.memory_bytes

    def __str__(self) -> str:
        calls = Counter(row.claimed_by for row in self.ledger.rows if row.claimed_by is not None)
        claims = ", ".join(f"{name} {n}" for name, n in calls.most_common())
        lines = [
            f"device    {self._device_text()}",
            f"calls     {claims or 'none'}",
            f"peak      {_size(self.memory.peak)}{self._share_text()}",
            f"inputs    {_size(self.memory.inputs)}",
            f"forward   {_size(self.memory.forward)}",
        ]
        if self.backward_traces:
            lines += [
                f"saved     {_size(self.memory.saved)}",
                f"backward  {_size(self.memory.backward)}",
            ]
        return "\n".join(lines)

    __repr__ = __str__

    def _device_text(self) -> str:
        if self.device is None:
            return "where the tensors are"
        capability = ".".join(map(str, self.device.capability))
        return self.device.name + (f", compute capability {capability}" if capability else "")

    def _share_text(self) -> str:
        if self.device is None or not self.device.memory_bytes:
            return ""
        share = self.memory.peak / self.device.memory_bytes
        return f" of {_size(self.device.memory_bytes)} ({share:.1%})"


def plan(
    fn: Callable[..., Any],
    /,
    *args: Any,
    device: DeviceProfile | str | None = None,
    executors: Executor | str | Sequence[Executor | str] | None = None,
    transforms: Transform | Sequence[Transform] | None = None,
    **options: Any,
) -> Plan:
    """Compiles `fn` for the arguments `args`, and runs nothing.

    `fn` and the further arguments are those of `thunder.jit`; `fn` may also be what `thunder.jit` returned,
    which has its settings already. The tensors may be meta tensors.

    Args:
        device: a profile or its name, such as `"h200"` (`thunder.extend.known_profiles()` has all). All
            tensors that are there already (arguments, parameters, globals) are taken to lie on such a device,
            checkers see its profile, and the program itself is told of it where it asks `torch.cuda`. No
            device is touched. None leaves each tensor where it is.

    Raises InvalidArgument for a device that is not known, and what compiling raises.
    """
    dispatcher = _dispatcher(fn, executors, transforms, options)
    with _assumed(device) as profile, collector_paused():
        entry = _entry(dispatcher, args, profile)
    return _as_plan(entry, profile, dispatcher.data.executors_list)


def _entry(dispatcher: Dispatcher, args: tuple[Any, ...], profile: DeviceProfile | None) -> CacheEntry:
    try:
        return dispatcher.make_entry(args, {}, profile)
    except RaisedByProgram as raised:
        error = raised.error
    raise error  # here, where it gets no other context than the program gave it


def _as_plan(entry: CacheEntry, profile: DeviceProfile | None, executors: Sequence[Executor]) -> Plan:
    backward = entry.backward_traces[-1] if entry.backward_traces else None
    return Plan(
        device=profile,
        ledger=Explanation.of_entry(entry, executors),
        memory=estimate_memory(entry.computation_traces[-1], backward),
        traces=entry.computation_traces,
        backward_traces=entry.backward_traces,
        prologue_traces=entry.prologue_traces,
        epilogue_traces=entry.epilogue_traces,
    )


def _dispatcher(fn: Any, executors: Any, transforms: Any, options: dict[str, Any]) -> Dispatcher:
    """A dispatcher of its own, so that a compiled object's statistics and entries stay as they are."""
    compiled = dispatcher_of(fn)
    if compiled is None:
        compiled = dispatcher_of(jit(fn, executors=executors, transforms=transforms, **options))
    elif executors is not None or transforms is not None or options:
        given = {"executors": executors, "transforms": transforms, **options}
        raise InvalidArgument(
            "thunder.plan was given a compiled object, and settings for a compile",
            found={"settings": ", ".join(name for name, value in given.items() if value is not None)},
            hint="Give the settings to thunder.jit, or pass the function itself.",
        )
    return Dispatcher(compiled.data, compiled.overrides)


@contextmanager
def _assumed(device: DeviceProfile | str | None) -> Iterator[DeviceProfile | None]:
    if device is None:
        yield None
        return
    if not isinstance(device, DeviceProfile | str):
        raise InvalidArgument(
            f"thunder.plan got device={device!r}, of type {type(device).__name__}",
            hint='Give the name of a profile, such as "h200", or a thunder.plugins.DeviceProfile.',
        )
    profile = profile_named(device) if isinstance(device, str) else device
    with assuming_device(profile), untouched(profile.type):
        yield profile


def _size(count: int) -> str:
    """Bytes in the largest unit of which there is at least one."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        power = {"TiB": 40, "GiB": 30, "MiB": 20, "KiB": 10}[unit]
        if count >= 1 << power:
            return f"{count / (1 << power):.2f} {unit}"
    return f"{count} B"
