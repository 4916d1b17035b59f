"""`thunder.plan`: compile for hardware that need not be present."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, overload

from thunder.base.collector import collector_paused
from thunder.base.errors import InvalidArgument, RaisedByProgram
from thunder.base.plugin_calls import shown
from thunder.base.text_tables import byte_text
from thunder.compiler.entry_compiler import EntryCompiler
from thunder.compiler.jit import jit
from thunder.compiler.ledger import Explanation
from thunder.compiler.memory_estimate import MemoryEstimate, estimate_memory
from thunder.compiler.stats import CacheEntry, CompileStats
from thunder.executor_base.executor import Executor
from thunder.extend import assuming_device, profile_named
from thunder.ir.trace import TraceCtx
from thunder.ops.layouts import without_touching_device
from thunder.passes.transform import Transform
from thunder.plugins.contributions import isolated, mesh_planner
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import DeviceProfile
from thunder.wrappers.thunder_module import dispatcher_of

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """A compiled program that does not run: traces, ledger, and a memory estimate.

    `str()` is a summary. `device` is None if no device was assumed for the tensors.
    """

    device: DeviceProfile | None
    ledger: Explanation
    memory: MemoryEstimate
    traces: list[TraceCtx]
    backward_traces: list[TraceCtx]
    prologue_traces: list[TraceCtx]
    epilogue_traces: list[TraceCtx]
    executors: tuple[Executor, ...]
    #: the entry that was compiled, and its compiler, for a package that keeps plans; None for another kind
    origin: tuple[CacheEntry, EntryCompiler] | None = field(default=None, repr=False, compare=False)

    def explain(self) -> Explanation:
        """Return the placement ledger, as `thunder.explain` does after a call."""
        with nullcontext() if self.device is None else assuming_device(self.device):
            return self.ledger.with_absent(self.executors)

    @property
    def fits(self) -> bool | None:
        """Whether the estimated peak fits into the device's memory; None if its size is not known."""
        if self.device is None or self.device.memory_bytes is None:
            return None
        return self.memory.peak <= self.device.memory_bytes

    def __str__(self) -> str:
        calls = Counter(row.claimed_by for row in self.ledger.rows if row.claimed_by is not None)
        claims = ", ".join(f"{name} {n}" for name, n in calls.most_common())
        lines = [
            f"device    {self._device_text()}",
            f"calls     {claims or 'none'}",
            f"peak      {byte_text(self.memory.peak)}{self._share_text()}",
            f"inputs    {byte_text(self.memory.inputs)}",
            f"forward   {byte_text(self.memory.forward)}",
        ]
        if self.backward_traces:
            lines += [
                f"saved     {byte_text(self.memory.saved)}",
                f"backward  {byte_text(self.memory.backward)}",
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
        return f" of {byte_text(self.device.memory_bytes)} ({share:.1%})"


@overload
def plan(
    fn: Callable[..., Any],
    /,
    *args: Any,
    device: DeviceProfile | str | None = None,
    executors: Executor | str | Sequence[Executor | str] | None = None,
    transforms: Transform | Sequence[Transform] | None = None,
    mesh: None = None,
    **options: Any,
) -> Plan: ...
@overload
def plan(
    fn: Callable[..., Any],
    /,
    *args: Any,
    device: DeviceProfile | str | None = None,
    executors: Executor | str | Sequence[Executor | str] | None = None,
    transforms: Any = None,
    mesh: Any,
    **options: Any,
) -> Any: ...
def plan(
    fn: Callable[..., Any],
    /,
    *args: Any,
    device: DeviceProfile | str | None = None,
    executors: Executor | str | Sequence[Executor | str] | None = None,
    transforms: Any = None,
    mesh: Any = None,
    **options: Any,
) -> Any:
    """Compile `fn` for the arguments `args`, and run nothing.

    `fn` and the further arguments are those of `thunder.jit`; `fn` may also be a compiled object, which has
    its settings already. The tensors may be meta tensors.

    Args:
        device: a profile or its name, such as `"h200"` (`thunder.extend.known_profiles()` lists all). All
            existing tensors (arguments, parameters, globals) are assumed to be on such a device, checkers
            see its profile, and so does the program where it queries `torch.cuda`. No device is touched.
            With None each tensor is on its own device.
        mesh: the sizes of a mesh of such devices. A plugin plans the program of one of its processes (hook
            `thunder_mesh_planner`), and returns a plan of its own kind; `transforms` and `options` are what
            that plugin takes.

    Raises InvalidArgument for an unknown device, and for a mesh if no plugin plans for one; and any error of
    compiling.
    """
    if mesh is not None:
        settings = {"device": device, "executors": executors, "transforms": transforms}
        given = {name: value for name, value in settings.items() if value is not None}
        return _planner()(fn, *args, mesh=mesh, **given, **options)
    with _assume_device(device) as profile, collector_paused():
        compiler = _compiler(fn, executors, transforms, options)
        entry = _entry(compiler, args, profile)
    return _as_plan(entry, profile, compiler)


def _planner() -> Callable[..., Any]:
    """Return the function of a plugin that plans for a mesh."""
    manager = get_manager()
    planner = isolated(manager, lambda: mesh_planner(manager))
    if planner is None:
        raise InvalidArgument(
            "thunder.plan received mesh=, and no installed plugin plans programs for a mesh of devices",
            hint="Install a package of distributed transforms, with the hook thunder_mesh_planner.",
        )
    return planner


def _entry(compiler: EntryCompiler, args: tuple[Any, ...], profile: DeviceProfile | None) -> CacheEntry:
    try:
        return compiler.compile(args, {}, profile)
    except RaisedByProgram as raised:
        error = raised.error
    raise error  # outside of the handler, which would become its __context__


def _as_plan(entry: CacheEntry, profile: DeviceProfile | None, compiler: EntryCompiler) -> Plan:
    data = compiler.data
    backward = entry.backward_traces[-1] if entry.backward_traces else None
    return Plan(
        device=profile,
        ledger=Explanation.of_entry(entry, data.executors_list, data.transforms),
        memory=estimate_memory(entry.computation_traces[-1], backward),
        traces=entry.computation_traces,
        backward_traces=entry.backward_traces,
        prologue_traces=entry.prologue_traces,
        epilogue_traces=entry.epilogue_traces,
        executors=data.executors_list,
        origin=(entry, compiler),
    )


def _compiler(fn: Any, executors: Any, transforms: Any, options: dict[str, Any]) -> EntryCompiler:
    """Return a compiler of entries that leaves compiled objects as they are."""
    compiled = dispatcher_of(fn)
    if compiled is None:
        compiled = dispatcher_of(jit(fn, executors=executors, transforms=transforms, **options))
    elif executors is not None or transforms is not None or options:
        settings = {"executors": executors, "transforms": transforms, **options}
        raise InvalidArgument(
            "thunder.plan received a compiled object, and settings for a compile",
            found={"settings": ", ".join(name for name, value in settings.items() if value is not None)},
            hint="Give the settings to thunder.jit, or pass the function itself.",
        )
    return EntryCompiler(compiled.data, compiled.overrides, CompileStats())


@contextmanager
def _assume_device(device: DeviceProfile | str | None) -> Iterator[DeviceProfile | None]:
    if device is None:
        yield None
        return
    if not isinstance(device, DeviceProfile | str):
        raise InvalidArgument(
            f"thunder.plan got device={shown(device)}",
            hint='Give the name of a profile, such as "h200", or a thunder.plugins.DeviceProfile.',
        )
    profile = profile_named(device) if isinstance(device, str) else device
    with assuming_device(profile), without_touching_device(profile.type):
        yield profile
