"""Locks, thread-local objects and counters of ``itertools`` in compiled programs."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import UnsupportedProgram


class Tables:
    """Scales under a lock, and a counter of the objects made."""

    def __init__(self, lock: Any = None) -> None:
        self.lock = threading.RLock() if lock is None else lock
        self.scales = {"a": 2.0}
        self.ids = itertools.count(3, 2)
        self.last = 0


def read(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    with tables.lock:
        return x * tables.scales["a"]


def test_what_is_read_under_a_lock_is_a_fact():
    tables, compiled = Tables(), thunder.jit(read)
    assert compiled(torch.ones(1), tables) == 2
    tables.scales["a"] = 5.0
    assert compiled(torch.ones(1), tables) == 5
    assert compiled(torch.ones(1), tables) == 5
    assert thunder.cache_misses(compiled) == 2
    tables.lock = threading.Lock()
    assert compiled(torch.ones(1), tables) == 5


def test_a_call_waits_for_a_lock_that_another_thread_has():
    tables, compiled = Tables(threading.Lock()), thunder.jit(read)
    compiled(torch.ones(1), tables)
    results = []
    with tables.lock:
        thread = threading.Thread(target=lambda: results.append(compiled(torch.ones(1), tables)))
        thread.start()
        thread.join(0.05)
        assert not results
        tables.scales["a"] = 7.0
    thread.join()
    assert results[0] == 7


def write(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    with tables.lock:
        tables.scales["b"] = 1.0
    return x


def write_in_place(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    with tables.lock:
        x.add_(1)
    return x


def keep(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    tables.lock.acquire()
    return x


def wait_for_itself(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    with tables.lock, tables.lock:
        return x


def try_it(x: torch.Tensor, tables: Tables) -> Any:
    return x if tables.lock.acquire(False) else None


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (write, "writes while it has a lock"),
        (write_in_place, "writes while it has a lock"),
        (keep, "ends while it has a lock"),
        (wait_for_itself, "waits for a lock that it has"),
        (try_it, "without waiting"),
    ],
)
def test_what_a_lock_would_have_to_protect_at_run_time_is_refused(program, reason):
    tables = Tables(threading.Lock())
    with pytest.raises(UnsupportedProgram, match=reason):
        thunder.jit(program)(torch.ones(1), tables)
    assert tables.lock.acquire(False), "tracing has not taken the lock"


def test_locks_and_events_of_the_program_are_made_again():
    def program(x, tables):
        tables.lock, ready = threading.Lock(), threading.Event()
        ready.set()
        with tables.lock:
            return x * ready.is_set()

    tables, compiled = Tables(), thunder.jit(program)
    locks = {id(tables.lock)}
    held = [tables.lock]
    for _ in range(2):
        assert compiled(torch.ones(1), tables) == 1
        held.append(tables.lock)
        locks.add(id(tables.lock))
    assert len(locks) == 3


class Settings(threading.local):
    """Settings of a thread."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.depth = 0


settings = Settings()
plain = threading.local()


def scaled(x: torch.Tensor) -> Any:
    settings.depth += 1
    plain.calls = getattr(plain, "calls", 0) + 1
    try:
        return x * settings.scale * settings.depth, plain.calls, len(vars(settings)), hasattr(plain, "other")
    finally:
        settings.depth -= 1


def test_what_a_thread_local_object_holds_is_that_of_the_calling_thread():
    compiled = thunder.jit(scaled)
    assert compiled(torch.ones(1)) == (torch.full((1,), 2.0), 1, 2, False)
    assert compiled(torch.ones(1))[1] == 2
    assert (plain.calls, settings.depth) == (2, 0)
    settings.scale = 3.0
    assert compiled(torch.ones(1))[0] == 3
    results = []
    thread = threading.Thread(target=lambda: results.append(compiled(torch.ones(1))))
    thread.start()
    thread.join()
    assert results == [(torch.full((1,), 2.0), 1, 2, False)], "the other thread has its own"
    del plain.calls
    settings.scale = 2.0


def test_a_counter_goes_on_where_it_is():
    def program(x, tables):
        tables.last = next(tables.ids)
        return x * next(tables.ids), list(zip(tables.ids, "ab", strict=False))

    tables, eager = Tables(), Tables()
    compiled = thunder.jit(program)
    for _ in range(3):
        assert compiled(torch.ones(1), tables) == program(torch.ones(1), eager)
        assert (repr(tables.ids), tables.last) == (repr(eager.ids), eager.last)
    next(tables.ids), next(eager.ids)
    assert compiled(torch.ones(1), tables) == program(torch.ones(1), eager)


def test_counters_of_other_numbers_are_advanced_in_each_call():
    counter = itertools.count(0.5)
    compiled = thunder.jit(lambda x: x * next(counter))
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [0.5, 1.5, 2.5]
    assert next(counter) == 3.5


def test_a_counter_is_where_the_program_left_it_when_it_raised():
    def numbered(x, ids, fails):
        number = next(ids)
        if fails:
            raise KeyError(number)
        return x * number

    ids, compiled = itertools.count(), thunder.jit(numbered)
    assert compiled(torch.ones(1), ids, False) == 0
    for number in (1, 2):
        with pytest.raises(KeyError, match=str(number)):
            compiled(torch.ones(1), ids, True)
    assert compiled(torch.ones(1), ids, False) == 3
