"""A program that saves in forks, each killed at another operation on files; it prints what is loaded.

    killed_saves.py {asynchronous | synchronous} STEP

The first checkpoint is number 0, and complete. Fork n saves numbers 2 n - 1 and 2 n, and is killed at an
operation on files, each at one STEP later than the last one. The last fork is not killed. A row of the result
has the last number whose save returned, the values that are loaded, and whether the fork was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from thunder.distributed.checkpoint import async_save, load, save

#: events that the interpreter reports before a file or a folder is opened or changed
OPERATIONS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir"})


def saves(path: Path, begin: int, asynchronous: bool) -> None:
    """Save two checkpoints; write the number of each one whose save has returned."""
    for number in (begin, begin + 1):
        tensors = {"a": torch.full((3,), float(number)), "b": torch.full((2, 2), float(number))}
        if asynchronous:
            future = async_save(tensors, path, no_dist=True)
            tensors["a"].fill_(-1.0)
            future.result()
        else:
            save(tensors, path, no_dist=True)
        path.with_name("returned").write_text(str(number))


def killed_at(moment: int, path: Path, begin: int, asynchronous: bool) -> bool:
    """Save in a fork that is killed at an operation; return whether it came to that operation."""
    child = os.fork()
    if not child:
        count = [0]

        def killed(event: str, arguments: tuple[object, ...]) -> None:
            if event in OPERATIONS and str(arguments[0]).startswith(str(path)):
                count[0] += 1
                if count[0] == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(killed)
        saves(path, begin, asynchronous)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def loaded(path: Path) -> list[float]:
    """Return the different values of the tensors that are loaded."""
    tensors = {"a": torch.zeros(3), "b": torch.zeros(2, 2)}
    load(tensors, path, no_dist=True)
    return sorted({value for tensor in tensors.values() for value in tensor.flatten().tolist()})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    asynchronous, step = sys.argv[1] == "asynchronous", int(sys.argv[2])
    results = []
    path = Path(tempfile.mkdtemp()) / "run"
    saves(path, -1, asynchronous)
    moment, begin, killed = 1, 1, True
    while killed:
        killed = killed_at(moment, path, begin, asynchronous)
        results.append((int(path.with_name("returned").read_text()), loaded(path), killed))
        moment, begin = moment + step, begin + 2
    print(json.dumps(results))
