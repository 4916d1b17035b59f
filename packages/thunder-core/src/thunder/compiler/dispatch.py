"""Dispatch: from a call to the cache entry whose guards hold, or to a compile."""

from __future__ import annotations

import threading
import warnings
from time import perf_counter_ns
from typing import Any

from thunder.base import opaque_results
from thunder.base.errors import (
    DecisionChanged,
    InternalError,
    NotInitialized,
    PluginError,
    RaisedByProgram,
    RecompileError,
    RecompileWarning,
    SameInputViolation,
    SizesChanged,
)
from thunder.base.options import CACHE_OPTIONS
from thunder.compiler.collector import collector_paused
from thunder.compiler.compile_events import notify_of_compile
from thunder.compiler.entry_compiler import EntryCompiler
from thunder.compiler.failed_calls import (
    RunningCall,
    undo,
)
from thunder.compiler.idle_extensions import warn_of_idle_extensions
from thunder.compiler.plugin_contributions import PluginContributions, plugin_contributions
from thunder.compiler.python_runs import PythonRuns
from thunder.compiler.recompile_reasons import (
    decision_reason,
    failure_of_new_entry,
    limit_text,
    recompile_reason,
    size_reason,
    with_free_sizes,
)
from thunder.compiler.stages import blamed_on
from thunder.compiler.stats import Answers, CacheEntry, CompileData, CompileStats, RecompileReason
from thunder.compiler.varying_sizes import differing_sizes
from thunder.frontend.active_modes import has_active_modes, modes_held
from thunder.frontend.ambient_state import torch_traces
from thunder.frontend.guards import first_failure
from thunder.frontend.ran_code import refuse_another_trace
from thunder.frontend.types.patches import refuse_replaced_builtins
from thunder.plugins.manager import get_manager
from thunder.wrappers.dynamo_boundary import opaque_to_dynamo
from thunder.wrappers.overrides import Overrides

#: entries that a call has left since its sizes are others, with the reasons
Left = tuple[tuple[CacheEntry, RecompileReason], ...]


class Dispatcher:
    """A compiled function: its cache entries, and the call that tries them, newest first.

    Calls may run in several threads at once; compiles are serialised.
    """

    def __init__(
        self, data: CompileData, overrides: Overrides | None = None, stats: CompileStats | None = None
    ) -> None:
        self.data, self.overrides = data, overrides
        self.stats = CompileStats() if stats is None else stats
        #: all entries, newest first, and those whose programs the plugins of now would compile too
        self._stored: tuple[CacheEntry, ...] = ()
        self._entries: tuple[CacheEntry, ...] = ()
        self._contributions = PluginContributions()
        self._compiler = EntryCompiler(data, overrides, self.stats)
        self._lock = threading.RLock()
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
        for entry in self._entries:
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
                break
        else:
            if torch_traces():
                return self._python.for_tracer(args, kwargs)
            if has_active_modes():
                stats.calls -= 1
                with modes_held():
                    return self(*args, **kwargs)
            outcome = self._find_or_compile(args, kwargs)
            if isinstance(outcome, Exception):
                try:
                    return self._python.without_entry(outcome, args, kwargs)
                finally:
                    del outcome  # its traceback has this frame
            entry, inputs = outcome
        return self._run(entry, inputs, args, kwargs, start)

    def _run(
        self,
        entry: CacheEntry,
        inputs: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        start: int,
        known: Answers = (),
        left: Left = (),
        *,
        is_new: bool = False,
    ) -> Any:
        """Run an entry on its inputs. ``known`` are answers that other entries have found in this call.

        ``left`` are the entries that it has left. ``is_new``: the entry was compiled for sizes of this call.
        """
        stats = self.stats
        entry.last_use = stats.calls
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
                reason = self._reason_of_size(entry, failure, known)
                if reason is not None:
                    return self._run_for_sizes((*left, (entry, reason)), args, kwargs, start, is_new)
                answers = (*entry.answers[: failure.index], failure.answer)
                if failure.index < len(known):
                    return self._python.after_disagreement(entry, answers, args, kwargs)
                return self._run_for_answers(entry, answers, args, kwargs, start, left)
            opaque_results.discard(has_failed=True)
            return self._python.after_failure(entry.failures, running, failure, args, kwargs)
        finally:
            del failure  # with its traceback it would be a cycle

    # -- decisions on data -----------------------------------------------------------------------------------

    def _run_for_answers(
        self,
        entry: CacheEntry,
        answers: Answers,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        start: int,
        left: Left,
    ) -> Any:
        """Run a call that has other answers to questions about data than ``entry``, whose guards hold.

        Python runs it where the program raises for these answers, or may not be compiled for more answers;
        not after the call has advanced an iterator of the caller.
        """
        may_repeat = not opaque_results.is_advanced()
        if may_repeat and answers in entry.raising:
            return self._python.with_answers(entry, answers, args, kwargs)
        if may_repeat and self._is_full(answers):
            self._python.warn_of_answers(entry.decisions[len(answers) - 1].question_text)
            return self._python.with_answers(entry, answers, args, kwargs)
        reason = decision_reason(entry, entry.decisions[len(answers) - 1], answers[-1])
        left = (*left, (entry, reason))
        outcome = self._find_or_compile(args, kwargs, answers, entry, left)
        if isinstance(outcome, Exception):
            if isinstance(outcome, RaisedByProgram):
                entry.raising.add(answers)
            try:
                return self._python.without_entry(outcome, args, kwargs)
            finally:
                del outcome  # its traceback has this frame
        entry, inputs = outcome
        self._put_first(entry)
        return self._run(entry, inputs, args, kwargs, start, answers, left)

    def _reason_of_size(
        self, entry: CacheEntry, change: DecisionChanged, known: Answers
    ) -> RecompileReason | None:
        """Return why an entry was left if a size is the cause that the computation finds or may find."""
        if isinstance(change, SizesChanged):
            return size_reason(entry, change)
        decision = entry.decisions[change.index]
        if not self._is_automatic or change.index < len(known):
            return None
        if not self._compiler.sizes.note_places([d.size_place for d in entry.decisions[change.index :]]):
            return None
        return decision_reason(entry, decision, change.answer)

    def _run_for_sizes(
        self, left: Left, args: tuple[Any, ...], kwargs: dict[str, Any], start: int, is_new: bool
    ) -> Any:
        """Run a call in another entry than those that it has left, the last one since sizes are others.

        Python runs it where that one is new, since the program then computes other sizes than its early run,
        and where the program has been compiled too often.
        """
        with self._lock:
            self._select_entries()
            tried = [entry for entry, _ in left]
            ready = ((e, e.prologue_fn(*args, **kwargs)) for e in self._entries if e not in tried)
            found: Any = next((item for item in ready if item[1] is not None), None)
            if found is None and self._is_at_limit() and not opaque_results.is_advanced():
                self._python.warn_of_answers(str(left[-1][1]))
                return self._python.call(args, kwargs)
            if found is None and is_new:
                return self._python.after_other_sizes(left[-1][1], args, kwargs)
            is_new = found is None
            if found is None:
                try:
                    found = self._compile(args, kwargs, (), None, left)
                except (RaisedByProgram, NotInitialized) as outcome:
                    found = outcome
        if isinstance(found, RaisedByProgram | NotInitialized):
            try:
                return self._python.without_entry(found, args, kwargs)
            finally:
                del found  # its traceback has this frame
        entry, inputs = found
        self._put_first(entry)
        return self._run(entry, inputs, args, kwargs, start, left=left, is_new=is_new)

    def _put_first(self, entry: CacheEntry) -> None:
        """Let an entry be the first to be tried: the next call is probably like this one."""
        if entry.is_for_one_call:
            return
        with self._lock:
            self._stored = (entry, *(e for e in self._stored if e is not entry))
            self._select_entries()

    def _is_at_limit(self) -> bool:
        """Return whether the program has been compiled for as many answers and sizes as it may."""
        limit = self.data.compile_options["recompile_limit"]
        return limit is not None and self._compiled_for_answers >= limit and self._python.is_possible()

    def _is_full(self, answers: Answers) -> bool:
        """Return whether the program has been compiled for too many answers, and not for these."""
        return self._is_at_limit() and not any(e.is_for(answers) for e in self._entries)

    def _find_or_compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answers: Answers = (),
        like: CacheEntry | None = None,
        left: Left = (),
    ) -> tuple[CacheEntry, Any] | RaisedByProgram | NotInitialized:
        """Return an entry, perhaps of another thread's compile, and its prologue's results.

        ``answers`` are those of the call to the first questions that the program asks about data, as the
        entry ``like`` has found them. ``left`` are entries that the call has left.
        """
        tried = [entry for entry, _ in left]
        with self._lock:
            self._select_entries()
            for entry in self._entries:
                # an entry without questions is for all answers
                usable = like is None or not entry.decisions or _asks_same(entry, like, answers)
                usable = usable and entry not in tried
                inputs = entry.prologue_fn(*args, **kwargs) if usable else None
                if inputs is not None:
                    self.stats.cache_hits += not answers  # else the call has been counted
                    return entry, inputs
            try:
                return self._compile(args, kwargs, answers, like, left)
            except (RaisedByProgram, NotInitialized) as outcome:
                return outcome

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

    def _compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answers: Answers,
        like: CacheEntry | None,
        left: Left = (),
    ) -> tuple[CacheEntry, Any]:
        """Compile an entry and store it; return it and the results of its prologue for this call."""
        refuse_replaced_builtins()
        stats, options = self.stats, self.data.compile_options
        stats.cache_misses += 1
        is_after_others = bool(answers or left)
        if is_after_others:
            stats.cache_hits -= 1
            self._compiled_for_answers += 1
        else:
            opaque_results.discard()  # those of a program that was traced and has not run
        known = dict(left)
        comparable = [e for e in self._stored if (like is None or e.has_inputs_of(like)) and e not in known]
        reasons = [recompile_reason(e, self._contributions, args, kwargs, answers) for e in comparable]
        reasons += known.values()
        stats.last_recompile_reasons = reasons
        roots: dict[str, Any] = {"args": args, "kwargs": kwargs}
        compared = {e: differing_sizes(e, roots) for e in comparable} if self._is_automatic else {}
        if not is_after_others:
            self._compiler.varying.note(reasons)
            self._compiler.sizes.note(compared)
        if reasons and options["fail_on_recompile"]:
            raise RecompileError("the call needs another compile", found={"reason": reasons[0]})
        try:
            with collector_paused():
                entry, inputs = self._new_entry(args, kwargs, answers, like)
        except BaseException as error:
            opaque_results.discard(has_failed=True)
            if isinstance(error, Exception):
                notify_of_compile(self.data, stats, None, error)
            raise
        if self._is_automatic:
            # an entry that the call has left has met its sizes
            stats.last_recompile_reasons = [
                with_free_sizes(r, entry, compared.get(r.entry, {})) for r in reasons
            ]
        if self.data.cache_option is not CACHE_OPTIONS.NO_CACHING and not entry.is_for_one_call:
            self._store(entry)
        notify_of_compile(self.data, stats, entry)
        warn_of_idle_extensions(self.data.executors_list, self.data.transforms)
        limit = options["recompile_limit"]
        if limit is not None and stats.cache_misses == limit + 1 and reasons and not is_after_others:
            warnings.warn(limit_text(stats, self.data), RecompileWarning, stacklevel=4)
        return entry, inputs

    def _new_entry(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        answers: Answers,
        like: CacheEntry | None,
    ) -> tuple[CacheEntry, Any]:
        """Compile an entry whose guards hold for this call; return it and its prologue's results.

        A compile may import libraries, such as an executor's kernels. That changes facts which the program
        may have read, such as the classes that an abstract base class knows; and a plugin may replace
        functions of these libraries. Then the program is acquired once more, with the libraries loaded.
        """
        for is_last in (False, True):
            entry = self._compiler.compile(args, kwargs, answers=answers, like=like)
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


def _asks_same(entry: CacheEntry, like: CacheEntry, answers: Answers) -> bool:
    """Return whether these answers, which ``like`` has found, are the first that an entry is for."""
    return entry.has_inputs_of(like) and entry.is_for(answers)
