"""Processes that are forked, also in the middle of another thread's compile, or spawned."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import thunder

#: seconds that a child may take before it counts as one that hangs
PATIENCE = 60.0


def _augmented(x: torch.Tensor, k: int) -> torch.Tensor:
    return torch.stack([(x + i).sin() * k for i in range(2)]).mean(0)


class Augmented(torch.utils.data.Dataset[torch.Tensor]):
    """A data set whose samples a compiled function makes: compiled in the worker, or before it is forked."""

    def __init__(self, size: int, *, is_compiled: bool) -> None:
        self.size, self.function = size, None
        if is_compiled:
            self.function = thunder.jit(_augmented, executors=["torch"])
            self.function(torch.ones(4), 2)

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return sample ``index``, ``(4,)``."""
        if self.function is None:
            self.function = thunder.jit(_augmented, executors=["torch"])
        result: torch.Tensor = self.function(torch.full((4,), float(index)), 2 + index % 2)
        return result


def loaded_by_workers(method: str, workers: int, size: int) -> dict[str, int]:
    """Let a DataLoader's workers compile or call; fail for a wrong sample."""
    for is_compiled in (False, True) if method == "fork" else (False,):
        data = Augmented(size, is_compiled=is_compiled)
        loader = torch.utils.data.DataLoader(
            data,
            batch_size=2,
            num_workers=workers,
            multiprocessing_context=multiprocessing.get_context(method),
        )
        found = torch.cat(list(loader))
        expected = torch.stack([_augmented(torch.full((4,), float(i)), 2 + i % 2) for i in range(size)])
        torch.testing.assert_close(found, expected)
    return {f"samples by {method}": size}


def in_child(check: Callable[[], None]) -> str | None:
    """Fork and run a check in the child; return what failed there."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        text = ""
        try:
            check()
        except BaseException:
            text = traceback.format_exc()
        os.write(write, text.encode()[-4000:])
        os._exit(0)
    os.close(write)
    started = time.monotonic()
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() - started > PATIENCE:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(read)
            return "the child hangs"
        time.sleep(0.001)
    with os.fdopen(read, "rb") as answer:
        return answer.read().decode() or None


def forked_while_compiling(forks: int) -> dict[str, int]:
    """Fork while another thread compiles the same module and others; the children call and compile."""
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)
    )
    settings: dict[str, Any] = {
        "executors": ["torch"], "cache": "constant values", "max_cache_entries": 4, "recompile_limit": None
    }  # fmt: skip
    compiled = thunder.jit(model, **settings)
    compiled(torch.ones(3, 4))
    limit, has_ended = sys.getrecursionlimit(), threading.Event()
    depth = []

    def compile_on() -> None:
        for i in range(10**9):
            if has_ended.is_set():
                return
            compiled(torch.ones(1 + i % 50, 4))
            thunder.jit(lambda a, k=i: a * k, executors=["torch"])(torch.ones(2))
            depth.append(i)

    def check(rows: int) -> None:
        with torch.no_grad():
            x = torch.ones(rows, 4)
            torch.testing.assert_close(compiled(x), model(x))
            torch.testing.assert_close(thunder.jit(torch.sin, executors=["torch"])(x), x.sin())
        assert gc.isenabled(), "the collector is paused for ever"
        assert sys.getrecursionlimit() == limit, "the recursion limit is another one"

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        faults = [fault for i in range(forks) if (fault := in_child(partial(check, 2 + i % 7))) is not None]
    finally:
        has_ended.set()
        thread.join()
    assert faults == [], f"{len(faults)} of {forks} children failed:\n{faults[0]}"
    return {"forks": forks, "compiles meanwhile": len(depth)}
