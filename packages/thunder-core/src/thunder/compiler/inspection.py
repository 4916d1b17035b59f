"""Inspection of compiled objects: traces, counters, recompile reasons, settings."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from typing import Any

from thunder.base.errors import NeverCalled, NotCompiled
from thunder.base.options import CACHE_OPTIONS
from thunder.base.package_files import is_package_file
from thunder.compiler.dispatch import Dispatcher
from thunder.compiler.ledger import Explanation
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.frontend.source_locations import is_torch_file
from thunder.ir.trace import TraceCtx
from thunder.wrappers.thunder_module import dispatcher_of

#: attribute of the functions that `grad`, `value_and_grad` and `vjp` return: what they differentiate
DIFFERENTIATES = "__thunder_differentiates__"


def _inspected(fn: Any) -> Dispatcher | None:
    """Return the dispatcher of a compiled object, also of one that a gradient function differentiates."""
    while DIFFERENTIATES in getattr(fn, "__dict__", {}):
        fn = getattr(fn, DIFFERENTIATES)
    return dispatcher_of(fn)  # type: ignore[no-any-return]


def _dispatcher(fn: Any) -> Dispatcher:
    dispatcher = _inspected(fn)
    if dispatcher is None:
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        raise NotCompiled(
            f"{name} doesn't seem to be a thunder compiled function.", hint="Pass what thunder.jit returned."
        )
    return dispatcher


def _last_entry(fn: Any) -> CacheEntry:
    entry = _dispatcher(fn).stats.last_entry
    if entry is None:
        name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
        raise NeverCalled(f"{name} doesn't seem to have been called yet.", hint="Call it first.")
    return entry


def compile_data(fn: Any) -> CompileData | None:
    """Return the settings of a compiled object; None if it is not compiled."""
    dispatcher = _inspected(fn)
    return dispatcher.data if dispatcher is not None else None


def compile_stats(fn: Any) -> CompileStats | None:
    """Return the statistics of a compiled object; None if it is not compiled."""
    dispatcher = _inspected(fn)
    return dispatcher.stats if dispatcher is not None else None


def last_traces(fn: Any) -> list[TraceCtx]:
    """Return the computation of the last call, as acquired and after each stage.

    The last trace is the one that runs.
    """
    return list(_last_entry(fn).computation_traces)


def last_backward_traces(fn: Any) -> list[TraceCtx]:
    """Return the backward of the last call, stage by stage; empty if it had none."""
    return list(_last_entry(fn).backward_traces)


def last_prologue_traces(fn: Any) -> list[TraceCtx]:
    """Return the prologue of the last call."""
    return list(_last_entry(fn).prologue_traces)


def last_epilogue_traces(fn: Any) -> list[TraceCtx]:
    """Return the epilogue of the last call; empty if there is nothing to rebuild or write."""
    return list(_last_entry(fn).epilogue_traces)


def cache_option(fn: Any) -> CACHE_OPTIONS:
    """Return the cache mode."""
    return _dispatcher(fn).data.cache_option


def cache_hits(fn: Any) -> int:
    """Return the number of calls that an existing entry served."""
    return _dispatcher(fn).stats.cache_hits


def cache_misses(fn: Any) -> int:
    """Return the number of calls that needed a compile."""
    return _dispatcher(fn).stats.cache_misses


def last_recompile_reasons(fn: Any) -> list[RecompileReason]:
    """Return the reason of each entry that the last miss tried; empty on the first compile."""
    return list(_dispatcher(fn).stats.last_recompile_reasons)


def explain(fn: Any) -> Explanation:
    """Return the placement ledger of the last call.

    It lists the executor of each operator, the refusals of others, the executors that were not consulted, and
    the tensors that transforms could not change.
    """
    data = _dispatcher(fn).data
    ledger = Explanation.of_entry(_last_entry(fn), data.executors_list, data.transforms)
    return ledger.with_absent(data.executors_list)


def list_transforms(fn: Any) -> list[Any]:
    """Return the transforms, in order."""
    return list(_dispatcher(fn).data.transforms)


def last_compile_options(fn: Any) -> None:
    """Print the options that compiles have read, and those that were set and never read."""
    options = _dispatcher(fn).data.compile_options
    print("Used compile options:")
    print("\n".join(f"  {name}" for name in options.read) or "  none")
    print("Unused compile options:")
    print("\n".join(f"  {name}" for name in options.unread) or "  none")


def last_interpreted_instructions(fn: Any) -> int:
    """Return the number of bytecode instructions that the last compile interpreted."""
    return _dispatcher(fn).stats.last_interpreted_instructions


def last_interpreter_log(fn: Any) -> list[Any]:
    """Return the log of the last compile, one entry for each interpreted instruction.

    It is empty without ``record_interpreter_history``.
    """
    return list(_dispatcher(fn).stats.last_interpreter_log)


def print_last_interpreter_log(
    fn: Any,
    /,
    print_fn: Callable[[str], Any] = print,
    use_colors: bool = True,
    indent: bool = True,
    max_depth: int | None = None,
    color_internals: bool = False,
    print_source_code: bool = True,
) -> None:
    """Print the log of the last compile, or the debug option that enables it.

    Args:
        print_fn: called with each line.
        use_colors: whether lines of source code are coloured, if they are printed to a terminal.
        indent: whether instructions are indented by the depth of their call.
        max_depth: the depth of the deepest calls whose instructions are printed.
        color_internals: whether source code of torch and thunder is coloured too.
        print_source_code: whether the line of source code is printed before its instructions.
    """
    log = last_interpreter_log(fn)
    if not log:
        print_fn(
            "There is no log: compile with "
            "debug_options=thunder.DebugOptions(record_interpreter_history=True)."
        )
    colors = use_colors and print_fn is print and sys.stdout.isatty()
    line: tuple[int, str] | None = None
    for depth, where, operation, argument in log:
        if max_depth is not None and depth > max_depth:
            continue
        margin = "  " * depth if indent else ""
        if print_source_code and line != (depth, where):
            line = depth, where
            file, _, number = where.rpartition(":")
            text = f"{margin}# {where}  {linecache.getline(file, int(number)).strip()}"
            is_colored = colors and (color_internals or not (is_torch_file(file) or is_package_file(file)))
            print_fn(f"\x1b[36m{text}\x1b[0m" if is_colored else text)
        print_fn(f"{margin}{where}  {operation} {argument}".rstrip())
