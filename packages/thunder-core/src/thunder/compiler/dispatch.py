"""Dispatch: from a call to the cache entry whose guards hold, or to a compile."""

from __future__ import annotations

import functools
import threading
import warnings
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

from thunder.base import opaque_results
from thunder.base.collector import collector_paused
from thunder.base.errors import (
    DecisionChanged,
    InternalError,
    NotInitialized,
    PluginError,
    RaisedByProgram,
    RecompileError,
    RecompileWarning,
    SameInputViolation,
)
from thunder.base.forks import renew_lock
from thunder.base.options import CACHE_OPTIONS
from thunder.compiler.compile_events import notify_of_compile
from thunder.compiler.compile_plan import Answers, CompilePlan
from thunder.compiler.entry_compiler import EntryCompiler
from thunder.compiler.failed_calls import RunningCall, undo
from thunder.compiler.idle_extensions import warn_of_idle_extensions
from thunder.compiler.plugin_contributions import PluginContributions, plugin_contributions
from thunder.compiler.python_runs import PythonRun, PythonRuns, disagreement, other_sizes
from thunder.compiler.recompile_reasons import (
    decision_reason,
    failure_of_new_entry,
    limit_text,
    recompile_reason,
    size_reason,
    with_free_sizes,
)
from thunder.compiler.stages import blamed_on
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.compiler.surroundings import Surroundings, is_interrupted
from thunder.compiler.varying_inputs import NO_DIFFERENCES, compare
from thunder.frontend.active_modes import has_active_modes, modes_held
from thunder.frontend.ambient_state import torch_traces
from thunder.frontend.guards import first_failure
from thunder.frontend.ran_code import refuse_another_trace
from thunder.frontend.trace_request import TraceRequest
from thunder.frontend.types.patches import refuse_replaced_builtins
from thunder.plugins.manager import get_manager
from thunder.wrappers.dynamo_boundary import opaque_to_dynamo
from thunder.wrappers.overrides import Overrides


class _Left(NamedTuple):
    """An entry that a call has left, since an answer about data is another one than the entry is for."""

    entry: CacheEntry
    change: DecisionChanged


@dataclass(eq=False)
class _Call:
    """A call on its way to the entry that serves it, and what is known of it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: when it began (ns)
    start: int
    #: entries whose guards do not hold
    refused: tuple[CacheEntry, ...] = ()
    #: its answers to the first questions about data, and the entry that has asked them last
    answers: Answers = ()
    like: CacheEntry | None = None
    #: the entries that it has left, with the reasons
    left: tuple[tuple[CacheEntry, RecompileReason], ...] = ()
    #: whether an entry was compiled for the sizes of this call
    has_compiled: bool = False


class Dispatcher:
    """A compiled function: its cache entries, and the call that tries them: the one that served the
    last two calls, then newest first.

    Calls may run in several threads at once; compiles are serialised.
    """

    def __init__(
        self, data: CompileData, overrides: Overrides | None = None, stats: CompileStats | None = None
    ) -> None:
        self.data, self.overrides = data, overrides
        self.stats = CompileStats() if stats is None else stats
        #: all entries, newest first, and those whose programs the plugins of now would compile too, as tried
        self._stored: tuple[CacheEntry, ...] = ()
        self._entries: tuple[CacheEntry, ...] = ()
        self._contributions = PluginContributions()
        self._compiler = EntryCompiler(data, overrides, self.stats)
        self._lock = threading.RLock()
        renew_lock(self, "_lock")
        self._compiled_for_answers = 0
        self._python = PythonRuns(data, overrides, self.stats)
        self._same_input = data.cache_option is CACHE_OPTIONS.SAME_INPUT
        self._is_automatic = data.cache_option is CACHE_OPTIONS.AUTOMATIC
        self._check_guards = data.debug_options.check_guards
        get_manager().notify(self)

    @opaque_to_dynamo
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        stats = self.stats
        stats.calls += 1
        start = perf_counter_ns()
        entries = self._entries
        for entry in entries:
            try:
                inputs = entry.prologue_fn(*args, **kwargs)
            except PluginError:
                raise
            except Exception as error:
                raise InternalError("a guard failed to evaluate", found={"error": repr(error)}) from error
            if inputs is not None:
                if self._check_guards:
                    self._check_promises(entry, args, kwargs)
                stats.cache_hits += 1
                if entry is stats.last_entry and entry is not entries[0]:
                    self._try_first(entry)
                break
        else:
            if torch_traces():
                return self._python.for_tracer(args, kwargs)
            if has_active_modes():
                stats.calls -= 1
                with modes_held():
                    return self(*args, **kwargs)
            return self._serve(_Call(args, kwargs, start, entries))
        result = self._run(entry, inputs, args, kwargs, start)
        return result if type(result) is not _Left else self._serve(_Call(args, kwargs, start), result)

    def _serve(self, call: _Call, left: _Left | None = None) -> Any:
        """Run a call in the first entry that it does not leave, in a new one, or by Python."""
        while True:
            found: tuple[CacheEntry, Any] | PythonRun | None = left and self._leave(call, left)
            found = found or self._find_or_compile(call)
            if isinstance(found, PythonRun):
                try:
                    return self._python.run(found, call.args, call.kwargs)
                finally:
                    del found, left  # the traceback of an error has this frame
            entry, inputs = found
            del found
            result = self._run(entry, inputs, call.args, call.kwargs, call.start)
            if type(result) is not _Left:
                return result
            left = result

    def _run(
        self, entry: CacheEntry, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any], start: int
    ) -> Any:
        """Run an entry on its inputs; return its result, or that the call has left it, and is undone."""
        stats = self.stats
        entry.last_use = stats.calls
        entry.uses += 1
        stats.last_entry = entry
        ready = perf_counter_ns()
        running = RunningCall(entry.failures, inputs[0]) if entry.can_be_undone else None
        try:
            result = entry.computation_fn(*inputs[0])
        except BaseException as error:
            failure = error
        else:
            if running is not None:
                running.end()
            stats.call_times = (start, ready, perf_counter_ns())
            if entry.epilogue_fn is not None:
                result = entry.epilogue_fn(*result, *inputs[1])
            if entry.failures.decides:
                opaque_results.discard()
            return result
        # Here no exception is being handled: the program, if it runs again, must not see this one.
        try:
            del inputs
            if isinstance(failure, DecisionChanged):
                opaque_results.keep()
                undo(entry.failures, running)
                refuse_another_trace(entry.is_for_one_call)
                return _Left(entry, failure)
            opaque_results.discard(has_failed=True)
            return self._python.after_failure(entry.failures, running, failure, args, kwargs)
        finally:
            del failure  # with its traceback it would be a cycle

    # -- decisions on data -----------------------------------------------------------------------------------

    def _leave(self, call: _Call, left: _Left) -> PythonRun | None:
        """Note what a call shows that leaves an entry; return how Python runs it, or None if an entry may.

        Python runs it where the program raises for these answers, or where two entries differ about one.
        """
        entry, change = left
        reason = self._reason_of_size(entry, change, call.answers)
        if reason is not None:
            call.answers, call.like = (), None
        else:
            assert change.index is not None, "a size that is none of the entry's is a reason"
            answers = (*entry.answers[: change.index], change.answer)
            if change.index < len(call.answers):
                return disagreement(entry, answers)
            if answers in entry.raising and self._python.is_possible():
                return PythonRun(succeeded=functools.partial(entry.raising.discard, answers))
            reason = decision_reason(entry, entry.decisions[len(answers) - 1], answers[-1])
            call.answers, call.like = answers, entry
        call.left = (*call.left, (entry, reason))
        return None

    def _reason_of_size(
        self, entry: CacheEntry, change: DecisionChanged, known: Answers
    ) -> RecompileReason | None:
        """Return why an entry was left if a size is the cause that the computation finds or may find."""
        if change.index is None:
            return size_reason(entry, change.answer)
        decision = entry.decisions[change.index]
        if not self._is_automatic or change.index < len(known):
            return None
        if not self._compiler.varying.note_places([d.size_place for d in entry.decisions[change.index :]]):
            return None
        return decision_reason(entry, decision, change.answer)

    def _find_or_compile(self, call: _Call) -> tuple[CacheEntry, Any] | PythonRun:
        """Return an entry, perhaps of another thread's compile, and its prologue's results.

        Or how Python runs the call: where the program raises while it is traced, or has no state yet; where
        it was compiled for the sizes of this call and computes others; where it was compiled too often.
        """
        with self._lock:
            self._select_entries()
            found = self._find(call)
            if found is not None:
                return found
            if call.left and self._is_at_limit():
                return self._python.at_limit(call.left[-1][1])
            if call.left and call.like is None and call.has_compiled:
                return other_sizes(call.left[-1][1])
            surroundings = Surroundings()
            try:
                found = self._compile(call)
            except RaisedByProgram as raised:
                if call.like is not None:
                    call.like.raising.add(call.answers)
                return PythonRun(raised=raised)
            except NotInitialized as outcome:
                return self._python.initializing(outcome)
            except BaseException as error:
                surroundings.restore()
                opaque_results.discard(has_failed=True)
                if is_interrupted(error):  # see Note [Interrupted compiles]
                    raise KeyboardInterrupt from error
                raise
            call.has_compiled = call.like is None and bool(call.left)
            if call.left:
                self._put_first(found[0])
            return found

    def _find(self, call: _Call) -> tuple[CacheEntry, Any] | None:
        """Return an entry that may serve a call, and its prologue's results."""
        known = {*call.refused, *(entry for entry, _ in call.left)}
        for entry in self._entries:
            if entry in known or not _is_for(entry, call):
                continue
            inputs = entry.prologue_fn(*call.args, **call.kwargs)
            if inputs is not None:
                self.stats.cache_hits += not call.left  # else the call has been counted
                call.has_compiled = False
                if call.left:
                    self._put_first(entry)
                return entry, inputs
        return None

    def _put_first(self, entry: CacheEntry) -> None:
        """Let an entry be the first to be tried: the next call is probably like this one."""
        if not entry.is_for_one_call:
            self._stored = (entry, *(e for e in self._stored if e is not entry))
            self._select_entries()

    def _try_first(self, entry: CacheEntry) -> None:
        """Let an entry that has served two calls in a row be the first to be tried, until one is compiled.

        Of the entries of one compiled module, a loop uses one for many calls, such as those of a decoder's
        tokens. Calls that change from one entry to another leave the order as it is.
        """
        with self._lock:
            generation, entries = get_manager().generation, self._entries
            if entry in entries:  # else plugins have changed, or do now
                self._entries = (entry, *(e for e in entries if e is not entry))
            if get_manager().generation is not generation:
                self._entries = ()

    def _is_at_limit(self) -> bool:
        """Return whether the program has been compiled for as many answers and sizes as it may."""
        limit = self.data.compile_options["recompile_limit"]
        return limit is not None and self._compiled_for_answers >= limit and self._python.is_possible()

    def request(self, plan: CompilePlan) -> TraceRequest:
        """Return what is asked of a trace by a plan, without the arguments of a call."""
        return self._compiler.request(plan)

    def plugins_changed(self) -> None:
        """Set all entries aside; the next call selects those that it may use."""
        self._entries = ()

    def _select_entries(self) -> None:
        """Select the entries that were compiled with what the plugins contribute now."""
        generation = get_manager().generation
        self._contributions = plugin_contributions()
        self._entries = tuple(e for e in self._stored if e.contributions == self._contributions)
        if get_manager().generation is not generation:
            self._entries = ()

    # -- misses ------------------------------------------------------------------------------------------

    def _compile(self, call: _Call) -> tuple[CacheEntry, Any]:
        """Compile an entry and store it; return it and the results of its prologue for this call."""
        refuse_replaced_builtins()
        args, kwargs, like = call.args, call.kwargs, call.like
        stats, options = self.stats, self.data.compile_options
        stats.cache_misses += 1
        if call.left:
            stats.cache_hits -= 1
            self._compiled_for_answers += 1
        else:
            opaque_results.discard()  # those of a program that was traced and has not run
            opaque_results.hold_made()
        known = dict(call.left)
        roots = {"args": args, "kwargs": kwargs}
        comparable = [
            e for e in self._stored if (like is None or e.plan.has_inputs_of(like.plan)) and e not in known
        ]
        compared = {e: compare(e, roots, with_sizes=self._is_automatic) for e in comparable}
        reasons = [
            recompile_reason(e, self._contributions, differences, roots, call.answers)
            for e, differences in compared.items()
        ]
        reasons += known.values()
        stats.last_recompile_reasons = reasons
        if not call.left:
            self._compiler.varying.note_numbers(reasons)
            self._compiler.varying.note_sizes(compared)
        if reasons and options["fail_on_recompile"]:
            raise RecompileError("the call needs another compile", found={"reason": reasons[0]})
        try:
            with collector_paused():
                entry, inputs = self._new_entry(call)
        except Exception as error:
            opaque_results.discard(has_failed=True)
            notify_of_compile(self.data, stats, None, error)
            raise
        if not entry.failures.decides_on_made:
            opaque_results.release_made()
        if self._is_automatic:
            # an entry that the call has left has met its sizes
            stats.last_recompile_reasons = [
                with_free_sizes(r, entry, compared.get(r.entry, NO_DIFFERENCES)) for r in reasons
            ]
        limit = options["recompile_limit"]
        is_over = bool(call.left) and limit is not None and self._compiled_for_answers > limit
        keeps = self.data.cache_option is not CACHE_OPTIONS.NO_CACHING and not entry.is_for_one_call
        if keeps and not (is_over and opaque_results.has_made()):
            self._store(entry)
        notify_of_compile(self.data, stats, entry)
        warn_of_idle_extensions(self.data.executors_list, self.data.transforms)
        if limit is not None and stats.cache_misses == limit + 1 and reasons and not call.left:
            warnings.warn(limit_text(stats, self.data), RecompileWarning, stacklevel=4)
        return entry, inputs

    def _new_entry(self, call: _Call) -> tuple[CacheEntry, Any]:
        """Compile an entry whose guards hold for this call; return it and its prologue's results.

        A compile may import libraries, such as an executor's kernels. That changes facts which the program
        may have read, such as the classes that an abstract base class knows; and a plugin may replace
        functions of these libraries. Then the program is acquired once more, with the libraries loaded.
        """
        args, kwargs = call.args, call.kwargs
        for is_last in (False, True):
            entry = self._compiler.compile(args, kwargs, answers=call.answers, like=call.like)
            inputs = entry.prologue_fn(*args, **kwargs)
            is_last |= entry.is_for_one_call
            if inputs is not None and (is_last or entry.contributions == plugin_contributions()):
                return entry, inputs
        with blamed_on(self.data.transforms):
            raise failure_of_new_entry(entry, args, kwargs)

    def _store(self, entry: CacheEntry) -> None:
        entries = [entry, *self._stored]
        entry.last_use = self.stats.calls
        if len(entries) > self.data.compile_options["max_cache_entries"]:
            entries.remove(min(entries[1:], key=lambda e: e.last_use))
        self._stored = tuple(entries)
        self._select_entries()
        self.stats.interpreter_cache = entries[::-1]

    def replace_entry(self, entry: CacheEntry, by: CacheEntry) -> None:
        """Put an entry with the same guards in the place of one."""
        with self._lock:
            self._stored = tuple(by if e is entry else e for e in self._stored)
            self._select_entries()
            self.stats.interpreter_cache = list(self._stored[::-1])
            if self.stats.last_entry is entry:
                self.stats.last_entry = by

    def _check_promises(self, entry: CacheEntry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise SameInputViolation if a fact has changed of which the user promised that it would not."""
        failure = first_failure(entry.guards, args, kwargs) if self._same_input else None
        by, hint = 'cache="same input"', 'Use cache="constant values".'
        if failure is None:
            failure = first_failure(entry.dropped, args, kwargs)
            by, hint = "the transform that dropped its check", "Leave the transform out."
        if failure is not None:
            fact, actual = failure
            raise SameInputViolation(
                f"{fact} changed, which {by} promised would not",
                found={"expected": fact.expected, "found": actual},
                hint=hint,
            )


def _is_for(entry: CacheEntry, call: _Call) -> bool:
    """Return whether an entry is for the answers of a call, or for all as one without questions is."""
    if call.like is None or not entry.decisions:
        return True
    return entry.plan.has_inputs_of(call.like.plan) and entry.is_for(call.answers)
