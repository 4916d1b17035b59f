"""A plugin of pytest: each program that is compiled is kept, and what is read of it runs in its place.

    hatch run sweep kept-programs

So the programs of the suites judge that a kept entry is the entry: its guards see each change, and its
results, writes and gradients are eager's. `THUNDER_KEPT_LOG` names a file for the reasons of those that
are not kept.
"""

from __future__ import annotations

import json
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
from thunder.frontend.trace_request import TraceRequest
from thunder_store.entries import read_entry, write_entry
from thunder_store.reasons import NotKept
from thunder_store.settings import settings_of

_compile = EntryCompiler._compile
#: how many programs were kept, and how many were not for each reason
counts: Counter[str] = Counter()
#: tests of what no entry that was read can have → why
_LEFT_OUT = {
    "test_a_constant_of_code_is_one_object_in_all_calls": "a constant that was read is an equal one",
    "test_a_check_that_raises_is_the_cause_of_the_internal_error_of_a_new_entry": "its checks never hold",
    "test_a_check_that_raises_in_a_new_entry_too_is_an_internal_error": "its checks never hold",
}


class _Substituting:
    """A store that reads what it keeps, once."""

    def __init__(self) -> None:
        self.last: CacheEntry | None = None

    def keep(self, entry: CacheEntry, request: TraceRequest, data: Any) -> None:
        """Write and read an entry."""
        self.last = None
        try:
            settings_of(request, data)
            document = json.loads(json.dumps(write_entry(entry, request, data)))
        except NotKept as reason:
            counts[str(reason)[:150]] += 1
            return
        for program in document["programs"].values():
            names = program["names"] if isinstance(program, dict) and "names" in program else {}
            counts.update(" ".join(form) for form in names.values() if form[0] == "helper")
        self.last = read_entry(document, request, data)
        self.last.contributions, self.last.plan = entry.contributions, entry.plan
        counts["kept"] += 1


@contextmanager
def running_what_is_kept() -> Iterator[None]:
    """Within the context, each new entry is written, and what is read of it is the entry."""
    import thunder.compiler.entry_compiler as module

    store = _Substituting()
    keep, find = module.keep_entry, module.kept_entry

    def compile_and_read(self: EntryCompiler, *args: Any) -> tuple[CacheEntry, Any]:
        store.last = None
        entry, keep = _compile(self, *args)
        if keep is not None:
            keep()
        read, store.last = store.last, None
        return (entry, keep) if read is None else (read, lambda: None)

    module.keep_entry, module.kept_entry = store.keep, lambda *args: None
    EntryCompiler._compile = compile_and_read  # type: ignore[method-assign]
    try:
        yield
    finally:
        module.keep_entry, module.kept_entry = keep, find
        EntryCompiler._compile = _compile  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test with programs that are kept."""
    assert thunder.jit is not None
    if item.name in _LEFT_OUT:
        pytest.skip(_LEFT_OUT[item.name])
    with running_what_is_kept():
        return (yield)


def pytest_sessionfinish() -> None:
    """Write how many programs were kept, and why others were not."""
    file = os.environ.get("THUNDER_KEPT_LOG")
    if file:
        lines = [f"{count} {reason}" for reason, count in counts.most_common()]
        Path(file).write_text("\n".join(lines) + "\n", encoding="utf-8")
