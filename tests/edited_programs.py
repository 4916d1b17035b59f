"""A plugin of pytest: each program that is compiled is printed, and what is read of that runs in its place.

    hatch run sweep edited-programs

So the programs of the suites judge that a text which nobody has changed is the program. Both the program as
it was acquired and what runs are taken, in turn. `THUNDER_EDITED_LOG` names a file for the reasons of those
that cannot be edited.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import thunder
from thunder.compiler.entry_compiler import EntryCompiler
from thunder.compiler.stats import CacheEntry
from thunder_store.edited.recompile import edited_entry, edits_for
from thunder_store.edited.refusals import EditedProgramError, OtherSignature
from thunder_store.edited.texts import definitions_of

_compile = EntryCompiler._compile
#: how many programs were edited, and how many were not for each reason
counts: Counter[str] = Counter()
#: refusals that a text without a change may have
_EXPECTED = ("the program cannot be edited", "has no type, and")
#: what is shown of an entry, and does not run: some tests compare it
_SHOWN = (
    *("computation_traces", "backward_traces", "epilogue_traces"),
    *("ledger", "backward_ledger", "notes"),
)
#: tests that count the stages of a compile, which run twice for an edited program
_OF_STAGES = frozenset(
    {
        "test_formulas_of_a_package_run_for_each_call",
        "test_formulas_that_look_at_the_program_run_for_each_call",
        "test_hooks_are_called_forward_then_backward_transform_by_transform",
        "test_without_gradients_there_is_one_trace_and_no_joint_one",
        "test_a_transform_prints_proxies",
    }
)


def edited(entry: CacheEntry, data: Any) -> CacheEntry:
    """Return an entry whose program is what it prints."""
    what = ("acquired", "runs")[sum(counts.values()) % 2]
    traces = [entry.computation_traces[0 if what == "acquired" else -1]]
    if what == "runs":
        traces += entry.backward_traces[-1:]
    text = "\n\n".join(map(str, traces))
    try:
        edits = edits_for(entry, definitions_of(text, what), what)
        found = edited_entry(entry, edits, data, check=False)
    except OtherSignature as reason:
        counts[f"{what}: {reason}"[:150]] += 1
        return entry
    except EditedProgramError as error:
        if not any(words in str(error) for words in _EXPECTED):
            raise
        counts[str(error).split("\n")[0][:150] + str(error).split("\n")[1][:60]] += 1
        return entry
    counts[what] += 1
    for name in _SHOWN:
        setattr(found, name, getattr(entry, name))
    return found


@contextmanager
def running_what_is_printed() -> Iterator[None]:
    """Within the context, each new entry has the program that is read of what it prints."""

    def compile_and_edit(self: EntryCompiler, plan: Any, call: Any, choice: Any) -> tuple[CacheEntry, Any]:
        entry, keep = _compile(self, plan, call, choice)
        return (entry if call.device is not None else edited(entry, self.data)), keep

    EntryCompiler._compile = compile_and_edit  # type: ignore[method-assign]
    try:
        yield
    finally:
        EntryCompiler._compile = _compile  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test with programs that are edited."""
    assert thunder.jit is not None
    if item.name in _OF_STAGES:
        pytest.skip("it counts stages, which run twice for an edited program")
    with running_what_is_printed():
        return (yield)


def pytest_sessionfinish() -> None:
    """Write how many programs were edited, and why others were not."""
    file = os.environ.get("THUNDER_EDITED_LOG")
    if file:
        lines = [f"{count} {reason}" for reason, count in counts.most_common()]
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")
