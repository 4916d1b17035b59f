"""Programs in files, called in one process, changed, and called in another process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from new_processes import run_python

#: calls `program.py` of the folder, and prints results, eager's results and what became of each compile
_CALL = """
import json, sys, warnings
import torch, thunder, thunder_store
from thunder.plugins import get_manager

get_manager().register(thunder_store, "store-under-test")
torch.manual_seed(0)
import program

def plain(value):
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.detach().double().tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return repr(value)

def answers(call):
    found = plain(call())
    state = getattr(program, "state", None)
    return [found, None if state is None else plain(state())]

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    compiled = answers(program.call(lambda fn, **options: thunder.jit(fn, executors=["torch"], **options)))
events = [[e.kind, e.reason] for e in thunder_store.events()]
if hasattr(program, "reset"):
    program.reset()
eager = answers(program.call(lambda fn, **options: fn))
print(json.dumps([compiled, eager, events, [str(w.message) for w in warned]]))
"""


@dataclass(frozen=True)
class Run:
    """What one process has returned: compiled and eager, what became of its compiles, and its warnings."""

    compiled: Any
    eager: Any
    events: list[list[str]]
    warnings: list[str]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events."""
        return [kind for kind, _ in self.events]


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files of a program."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def rewrite_unseen(path: Path, text: str) -> None:
    """Write a file of the same size, with the time that the file has had."""
    status = path.stat()
    assert len(text.encode()) == status.st_size, "the file has another size"
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def call(folder: Path, **variables: str) -> Run:
    """Call the program of a folder in a new process, with the cache of programs in the folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "THUNDER_PROGRAM_CACHE": str(folder / "kept"),
        **variables,
    }
    for compiled in folder.rglob("*.pyc"):  # Python, too, looks at size and time alone
        compiled.unlink()
    ran = run_python("-c", _CALL, env=environment, cwd=folder, imported=("thunder", "thunder_store.entries"))
    assert ran.returncode == 0, ran.stderr
    return Run(*json.loads(ran.stdout.splitlines()[-1]))
