"""Runs functions in processes that communicate by gloo, all of them in one launch."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from documents.blocks import examples
from sweeping import one_in

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "packages" / "thunder-distributed" / "README.md"
EXAMPLE = ROOT / "examples" / "distributed_training.py"
#: the example's options for a model of a few thousand parameters
TINY = (
    *("--steps", "3", "--timed", "1", "--layers", "2", "--width", "24", "--length", "8"),
    *("--batch", "2", "--microbatches", "2"),
)
#: the functions by name
CASES: dict[str, Callable[[], Any]] = {}
#: the names of those that only a sweep runs
SWEPT: set[str] = set()
#: the timeout of the groups of forks
FORKED_SECONDS = 3.0
#: functions that are run in forks of the processes, with a group of their own: they may be killed
FORKED: dict[str, Callable[[Path], Any]] = {}
MODULES = (
    "distributed.training_cases",
    "distributed.operator_cases",
    "distributed.module_cases",
    "distributed.agreement_cases",
    "distributed.context_cases",
    "distributed.expert_cases",
    "distributed.killed_cases",
    "distributed.tensor_cases",
    "distributed.checkpoint_cases",
    "distributed.plan_cases",
    "distributed.rank_cases",
    "distributed.kept_cases",
    "distributed.bisect_cases",
    "distributed.pipeline_cases",
)


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


def sliced(
    step: int, cases: Mapping[str, Callable[..., Any]], start: int = 0, table: dict[str, Any] | None = None
) -> list[Any]:
    """Add functions to a table, that of cases if none is given; return their names as parameters of a test.

    A default run has one in `step` of them.
    """
    (CASES if table is None else table).update(cases)
    names = one_in(step, cases, start)
    SWEPT.update(parameter.values[0] for parameter in names if not isinstance(parameter, str))
    return names


def forked_case(fn: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Add a function to those that are run in forks; it gets a folder that all processes share."""
    FORKED[fn.__name__] = fn
    return fn


def message(function: Callable[..., Any], *args: Any) -> str:
    """Return the class and the text of the error that a call raises."""
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def shared_folder() -> Path:
    """Return a new folder that all processes know."""
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names, 0)
    return Path(str(names[0]))


@dataclass
class Launch:
    """Processes that run the cases of some modules; each saves its outcomes in a folder.

    They are forks of one that has imported the modules. With `whole` the cases of a sweep run, too.
    """

    size: int
    folder: Path
    modules: tuple[str, ...] = MODULES
    whole: bool = True

    def begin(self, *kept: int) -> subprocess.Popen[bytes]:
        """Begin the processes, which keep these file descriptors open, and return the first one."""
        first = ", ".join(map(repr, (self.size, str(self.folder), self.modules, self.whole)))
        program = f"from distributed import launching; launching.first_process({first})"
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "THUNDER_CACHE_DIR": str(self.folder / "artefacts"),
        }
        with open(self.folder / "printed", "wb") as printed:
            return subprocess.Popen(
                [sys.executable, "-c", program],
                env=os.environ | variables,
                pass_fds=kept,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    def outcomes(self) -> dict[str, list[Outcome]]:
        """Return what each case returned in each process, when all have ended.

        Raises RuntimeError with what they printed if one has failed.
        """
        files = [self.folder / f"rank{rank}.pt" for rank in range(self.size)]
        if not all(file.exists() for file in files):
            raise RuntimeError((self.folder / "printed").read_text(encoding="utf-8", errors="replace"))
        outcomes = [torch.load(file, weights_only=False) for file in files]
        return {name: [outcome[name] for outcome in outcomes] for name in outcomes[0]}


def launched(size: int, folder: Path, modules: tuple[str, ...]) -> dict[str, list[Outcome]]:
    """Return what each case of some modules returned in each of `size` processes."""
    launch = Launch(size, folder, modules)
    launch.begin().wait()
    return launch.outcomes()


def first_process(size: int, folder: str, modules: tuple[str, ...], whole: bool) -> None:
    """Import the modules, and fork for each process. Raises RuntimeError for one that fails."""
    ports = [_free_port(), _free_port()]
    for name in modules:
        import_module(name)
    manager = import_module("thunder.plugins").get_manager()
    for package in ("distributed", "store"):
        manager.register(import_module(f"thunder_{package}"), f"{package}-under-test")
    if not whole:
        for name in SWEPT:
            CASES.pop(name, None)
            FORKED.pop(name, None)
    children = {}
    for rank in range(size):
        child = os.fork()
        if not child:
            status = 1
            try:
                _process(rank, size, folder, ports)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children[child] = rank
    for _ in range(size):
        child, status = os.wait()
        rank = children.pop(child)
        if status:
            for other in children:
                os.kill(other, signal.SIGKILL)
            raise RuntimeError(f"rank {rank} ended with status {status}")


def _process(rank: int, size: int, folder: str, ports: list[int]) -> None:
    """Run the cases in one process; an error ends its case alone."""
    torch.set_num_threads(1)
    faulthandler.enable()
    os.environ["LOCAL_RANK"] = str(rank)
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
    for name, function in FORKED.items():
        outcomes[name] = _in_a_fork(rank, size, Path(folder) / name.replace(" ", "_"), function)
    if size == 2:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "localhost"}
        readme = Path(folder) / f"readme{rank}.py"
        readme.write_text(examples(README)[0].source, encoding="utf-8")
        outcomes["readme"] = _printed(readme, ports[0])
        outcomes["example"] = _printed(EXAMPLE, ports[1], *TINY, "--strategies", "zero2", "1f1b")
    torch.save(outcomes, Path(folder) / f"rank{rank}.pt")


def _in_a_fork(rank: int, size: int, folder: Path, function: Callable[[Path], Any]) -> Outcome:
    """Return what a function returned in a fork of this process; its error is "killed" if it did not."""
    folder.mkdir(exist_ok=True)
    (folder / f"begins{rank}").touch()
    while not all((folder / f"begins{other}").exists() for other in range(size)):
        time.sleep(0.01)
    result = folder / f"result{rank}.pt"
    child = os.fork()
    if not child:
        try:
            store = f"file://{folder}/store"
            seconds = timedelta(seconds=FORKED_SECONDS)
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=seconds)
            outcome = Outcome(function(folder))
        except Exception:
            outcome = Outcome(error=traceback.format_exc())
        torch.save(outcome, result)
        os._exit(0)
    os.waitpid(child, 0)
    if not result.exists():
        return Outcome(error="killed")
    outcome = torch.load(result, weights_only=False)
    assert isinstance(outcome, Outcome), "a fork saves its outcome"
    return outcome


def _printed(program: Path, port: int, *arguments: str) -> Outcome:
    """Run a program as torchrun starts it, but for what this process has imported; return what it prints."""
    os.environ["MASTER_PORT"] = str(port)
    sys.argv, sys.path[:0] = [str(program), *arguments], [str(program.parent)]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(program), run_name="__main__")
    except Exception:
        return Outcome(error=traceback.format_exc())
    return Outcome(printed.getvalue())


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port: int = listening.getsockname()[1]
        return port
