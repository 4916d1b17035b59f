"""What can be asked of a compiled object: its traces, counters, reasons, settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import NeverCalled, NotCompiled
from thunder.base.options import CACHE_OPTIONS
from thunder.compiler.dispatch import Dispatcher
from thunder.compiler.ledger import Explanation
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.ir.trace import TraceCtx
from thunder.wrappers.thunder_module import dispatcher_of


def _dispatcher(fn: Any) -> Dispatcher:
    found = dispatcher_of(fn)
    if found is None:
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        raise NotCompiled(
            f"{name} doesn't seem to be a thunder compiled function.", hint="Pass what thunder.jit returned."
        )
    return found  # type: ignore[no-any-return]


def _last_entry(fn: Any) -> CacheEntry:
    entry = _dispatcher(fn).stats.last_entry
    if entry is None:
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        raise NeverCalled(f"{name} doesn't seem to have been called yet.", hint="Call it first.")
    return entry


def compile_data(fn: Any) -> CompileData | None:
    """The settings of a compiled object; None if it is not compiled."""
    found = dispatcher_of(fn)
    return found.data if found is not None else None


def compile_stats(fn: Any) -> CompileStats | None:
    """The statistics of a compiled object; None if it is not compiled."""
    found = dispatcher_of(fn)
    return found.stats if found is not None else None


def last_traces(fn: Any) -> list[TraceCtx]:
    """The computation of the last call: as acquired, then after each stage that changed it.

    The last one runs.
    """
    return list(_last_entry(fn).computation_traces)


def last_backward_traces(fn: Any) -> list[TraceCtx]:
    """The backward of the last call, stage by stage; empty if it had none."""
    return list(_last_entry(fn).backward_traces)


def last_prologue_traces(fn: Any) -> list[TraceCtx]:
    """The prologue of the last call."""
    return list(_last_entry(fn).prologue_traces)


def last_epilogue_traces(fn: Any) -> list[TraceCtx]:
    """The epilogue of the last call; empty if there is nothing to rebuild or write."""
    return list(_last_entry(fn).epilogue_traces)


def cache_option(fn: Any) -> CACHE_OPTIONS:
    """The cache mode."""
    return _dispatcher(fn).data.cache_option


def cache_hits(fn: Any) -> int:
    """How many calls an existing entry served."""
    return _dispatcher(fn).stats.cache_hits


def cache_misses(fn: Any) -> int:
    """How many calls needed a compile."""
    return _dispatcher(fn).stats.cache_misses


def last_recompile_reasons(fn: Any) -> list[RecompileReason]:
    """For the last miss, why each entry that was tried did not serve it; empty on the first compile."""
    return list(_dispatcher(fn).stats.last_recompile_reasons)


def explain(fn: Any) -> Explanation:
    """The placement ledger of the last call.

    It says who runs each operator, why others that were asked do not, and who was not asked.
    """
    return Explanation.of_entry(_last_entry(fn), _dispatcher(fn).data.executors_list)


def list_transforms(fn: Any) -> list[Any]:
    """The transforms, in order."""
    return list(_dispatcher(fn).data.transforms)


def last_compile_options(fn: Any) -> None:
    """Prints the options that compiles have read, and those that were given and nobody read."""
    options = _dispatcher(fn).data.compile_options
    print("Used compile options:")
    print("\n".join(f"  {name}" for name in options.read) or "  none")
    print("Unused compile options:")
    print("\n".join(f"  {name}" for name in options.unread) or "  none")


def last_interpreted_instructions(fn: Any) -> int:
    """How many bytecode instructions the last compile interpreted."""
    return _dispatcher(fn).stats.last_interpreted_instructions


def last_interpreter_log(fn: Any) -> list[Any]:
    """What the last compile interpreted, an entry an instruction.

    It is empty without ``record_interpreter_history``.
    """
    return list(_dispatcher(fn).stats.last_interpreter_log)


def print_last_interpreter_log(
    fn: Any, /, print_fn: Callable[[str], None] = print, indent: bool = True, max_depth: int | None = None
) -> None:
    """Prints the log of the last compile, or which debug option makes one."""
    log = last_interpreter_log(fn)
    if not log:
        print_fn(
            "There is no log: compile with "
            "debug_options=thunder.DebugOptions(record_interpreter_history=True)."
        )
    for depth, where, operation, argument in log:
        if max_depth is None or depth <= max_depth:
            print_fn(f"{'  ' * depth if indent else ''}{where}  {operation} {argument}".rstrip())
