"""Runs functions in processes that communicate by gloo, all of them in one launch."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from documents.blocks import examples

README = Path(__file__).resolve().parents[2] / "packages" / "thunder-distributed" / "README.md"
#: the functions by name
CASES: dict[str, Callable[[], Any]] = {}
MODULES = ("distributed.training_cases", "distributed.operator_cases", "distributed.module_cases")


@dataclass
class Outcome:
    """What a case returned in one process, or the text of the error that it raised."""

    value: Any = None
    error: str | None = None

    def get(self) -> Any:
        """Return the value; raise AssertionError for an error."""
        assert self.error is None, self.error
        return self.value


def case(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Add a function, by its name, to those that are run in every process."""
    CASES[fn.__name__] = fn
    return fn


def launched(size: int, folder: Path, modules: tuple[str, ...] = MODULES) -> dict[str, list[Outcome]]:
    """Return what each case of some modules returned in each of `size` processes."""
    arguments = (size, str(folder), list(sys.path), _free_port(), modules)
    torch.multiprocessing.spawn(_process, arguments, nprocs=size)
    outcomes = [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(size)]
    return {name: [outcome[name] for outcome in outcomes] for name in outcomes[0]}


def _process(rank: int, size: int, folder: str, path: list[str], port: int, modules: tuple[str, ...]) -> None:
    """Run the cases in one process; an error ends its case alone."""
    sys.path[:] = path
    torch.set_num_threads(1)
    faulthandler.enable()
    os.environ["LOCAL_RANK"] = str(rank)
    for name in modules:
        import_module(name)
    manager = import_module("thunder.plugins").get_manager()
    manager.register(import_module("thunder_distributed"), "distributed-under-test")
    store = f"file://{folder}/store"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    outcomes = {}
    for name, function in CASES.items():
        try:
            outcomes[name] = Outcome(function())
        except Exception:
            outcomes[name] = Outcome(error=traceback.format_exc())
    dist.barrier()  # a process that ends first would close the connections of the others
    dist.destroy_process_group()
    if size == 2:
        outcomes["readme"] = _printed_by_readme(rank, size, port)
    torch.save(outcomes, Path(folder) / f"rank{rank}.pt")


def _printed_by_readme(rank: int, size: int, port: int) -> Outcome:
    """Run the program of the README as torchrun starts it; return what it prints."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    (program, *_) = examples(README)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program.source, str(README), "exec"), {"__name__": "__main__"})
    except Exception:
        return Outcome(error=traceback.format_exc())
    return Outcome(printed.getvalue())


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port: int = listening.getsockname()[1]
        return port
