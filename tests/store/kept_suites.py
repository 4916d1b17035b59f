"""Programs of the suites, kept by one process and called in another one, which has called nothing before."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from first_programs import ROOT, SUITES, answers_of, are_alike
from new_processes import run_python

_PROGRAM = """
import sys
import first_programs, thunder_store
from thunder.plugins import get_manager
from thunder_store import artefacts, outcomes, program_cache

get_manager().register(thunder_store, "store-under-test")

def note(kind, name, reason=""):
    with open({log!r}, "a") as file:
        print(kind, reason.replace(chr(10), " "), file=file)

program_cache.note = note
first_programs.answer({suite!r}, {name!r}, "compiled", {path!r})
"""


def called(suite: str, name: str, folder: Path) -> tuple[list[tuple[str, Any]], list[str]]:
    """Call a program in a new process that keeps programs in a folder; return its answers and the events."""
    modules = ("first_programs", *SUITES[suite].modules, "thunder_store.program_cache")
    paths = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "THUNDER_PLUGINS": "",
        "THUNDER_PROGRAM_CACHE": str(folder / "programs"),
    }
    path, log = str(folder / "answers"), folder / "log"
    log.unlink(missing_ok=True)
    text = _PROGRAM.format(log=str(log), suite=suite, name=name, path=path)
    done = run_python("-c", text, env=environment, imported=modules)
    if done.returncode != 0:
        raise AssertionError(f"{suite} {name}:\n{done.stdout}\n{done.stderr}")
    answers, _ = torch.load(path, weights_only=False)
    return answers, log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def difference(suite: str, name: str, counts: Counter[str]) -> str | None:
    """Return what two processes with a common cache answer that is not eager's, or None.

    A program may be refused in both. ``counts`` has the numbers of events of the second process.
    """
    expected, _ = answers_of(suite, name, "eager")
    with tempfile.TemporaryDirectory() as folder:
        first, kept = called(suite, name, Path(folder))
        second, events = called(suite, name, Path(folder))
    counts.update(event.partition(" ")[0] if event.startswith("hit") else event[:90] for event in events)
    counts.update(f"first: {event[:90]}" for event in kept if not event.startswith("not used"))
    for number, (wanted, once, again) in enumerate(zip(expected, first, second, strict=True), 1):
        if "refused" in (once[0], again[0]):
            if once[0] != again[0]:
                return f"call {number}: {str(again)[:300]} in place of {str(once)[:300]}"
        elif not are_alike(wanted, again) or not are_alike(wanted, once):
            return (
                f"call {number}: {str(again)[:300]} in place of {str(wanted)[:300]}; first {str(once)[:200]}"
            )
    return None
