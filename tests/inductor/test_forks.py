"""A process that is forked while another thread compiles regions can compile regions."""

from __future__ import annotations

import os
import threading

import pytest

from soak.worker_processes import in_child
from thunder_inductor import compiler, library_builds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(("module", "name"), [(compiler, "_generating"), (library_builds, "_header_lock")])
def test_a_lock_that_another_thread_holds_is_free_in_a_fork(module: object, name: str) -> None:
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with getattr(module, name):
            held.set()
            assert end.wait(60)

    def acquires() -> None:
        assert getattr(module, name).acquire(timeout=10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        assert in_child(acquires) is None
    finally:
        end.set()
        thread.join()
