"""One stage of a compile, run for the forward and the backward; stages of plugins with their own errors."""

from __future__ import annotations

from collections import Counter
from typing import Any

from thunder.base.errors import PluginError
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import kind_of, plugin_call
from thunder.base.structural_ids import COMMENT, RELEASES
from thunder.compiler.context import Context
from thunder.compiler.copy_on_edit import edit_copy
from thunder.compiler.stages import StageFn, Step
from thunder.executor_base.preferences import preferring
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_plugin_trace, check_same_interface
from thunder.ops.hook_code import call_hook

__all__ = ["run_inserted", "run_step"]


def run_step(step: Step, context: Context) -> None:
    """Run one step for each branch; note whether a transform or plugin changed the backward."""
    for branch in context.branches:
        context.branch = branch
        before = branch.traces[-1]
        with preferring(context.preferences):
            context.append(step.run(before, context), step.name, step.origin)
        if not (step.is_builtin or step.observes) and context.is_backward:
            context.backward_is_changed |= _calls(before) != _calls(branch.traces[-1])
    context.branch = context.forward


def run_inserted(name: str, fn: StageFn, trace: TraceCtx, context: Context) -> TraceCtx:
    """Run a stage that a plugin or a transform inserted; its errors are reported as its own."""
    hint = "A plugin or a transform inserted it; thunder.plugins.disabled(...) leaves a plugin out."
    with plugin_call(f"the stage {name!r}", lambda: origin_of(fn), hint=hint):
        result = edit_copy(trace, lambda copy: call_hook(fn, copy, context), name)
    if not isinstance(result, TraceCtx):
        raise PluginError(f"the stage {name!r} returned {kind_of(result)}", hint="It returns a trace.").blame(
            origin_of(fn)
        )
    if result is not trace:
        check_same_interface(trace, result, name, lambda: origin_of(fn))
    if result is not trace and not context.check:  # with the option, each trace is checked more thoroughly
        check_plugin_trace(result, name, lambda: origin_of(fn))
    return result


def _calls(trace: TraceCtx) -> Counter[tuple[Any, ...]]:
    """Return the calls of a trace in no order, without comments and releases."""
    return Counter(
        (b.sym.id, tuple(p.name for p in b.flat_proxy_args), tuple(p.name for p in b.flat_proxy_outs))
        for b in trace.bound_symbols
        if b.sym.id not in RELEASES and b.sym.id != COMMENT
    )
