"""The cache entry that a compile makes of a program's traces."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.compiler.compile_plan import CompilePlan
from thunder.compiler.failed_calls import effects_of, plan_for_failures
from thunder.compiler.pipeline import Compiled
from thunder.compiler.plugin_contributions import PluginContributions
from thunder.compiler.stats import CacheEntry, ProgramOrigin
from thunder.frontend.acquire import Acquisition
from thunder.frontend.facts import Fact
from thunder.ir.trace import TraceCtx

__all__ = ["dropped_facts", "new_entry"]


def new_entry(
    program: Acquisition,
    compiled: Compiled,
    baked: Sequence[str],
    contributions: PluginContributions,
    prologues: Sequence[TraceCtx],
    facts: tuple[Fact, ...],
    dropped: tuple[Fact, ...],
    plan: CompilePlan,
) -> CacheEntry:
    """Return the cache entry of a program that was compiled.

    Args:
        baked: what the program read without a guard, by the option for sharp edges.
        contributions: those of plugins, while which are the same the entry is used.
        prologues: the traces of the prologue, the last of which runs.
        facts: what that prologue checks.
        dropped: facts of the program that it does not check.
        plan: which sizes and numbers are inputs.
    """
    epilogue = compiled.epilogue or program.epilogue
    values = {} if program.sizes is None else program.sizes.all_values()
    failures = plan_for_failures(
        program, [traces[-1] for traces in (compiled.traces, compiled.connected_traces) if traces]
    )
    return CacheEntry(
        prologue_fn=prologues[-1].python_callable(),
        prologue_traces=list(prologues),
        computation_fn=compiled.fn,
        computation_traces=compiled.traces,
        backward_fn=compiled.backward_fn,
        backward_traces=compiled.backward_traces,
        epilogue_fn=epilogue.python_callable() if epilogue is not None else None,
        epilogue_traces=[*compiled.connected_traces, *([epilogue] if epilogue is not None else [])],
        ledger=compiled.ledger,
        backward_ledger=compiled.backward_ledger,
        notes=tuple(compiled.notes),
        input_writes=tuple(compiled.writes),
        below_autograd=compiled.below_autograd,
        guards=facts,
        dropped=dropped,
        baked=tuple(baked),
        failures=failures,
        can_be_undone=failures.can_be_undone,
        is_for_one_call=program.is_for_one_call,
        contributions=contributions,
        replaced=program.replaced,
        decisions=program.decisions,
        written=program.written,
        origin=ProgramOrigin(
            code=program.code, effects=effects_of(program), grad_requests=program.grad_requests
        ),
        plan=plan,
        free_sizes=frozenset(n for n, value in values.items() if value is None),
        fixed_sizes=frozenset(n for n, value in values.items() if value is not None),
    )


def dropped_facts(before: Sequence[Fact], after: Sequence[Fact]) -> tuple[Fact, ...]:
    """Return the facts of a program that a prologue which transforms changed does not check."""
    checked = {(fact.sym, fact.path.source) for fact in after}
    return tuple(fact for fact in before if (fact.sym, fact.path.source) not in checked)
