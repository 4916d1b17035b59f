"""New processes of Python in which `import torch` takes no time: forks of one that has imported it.

A fork is like a process that begins with `import torch`: it has its own `__main__`, `sys.argv`, `sys.path`,
environment and working directory, and no module of thunder. Three things differ: warnings of `import torch`
are not shown, torch has read the environment that the tests run in, and the seed of hashes is that of the
first process. Where one of them is tested, the test starts a process with `subprocess`.

With `imported`, the first process has imported more modules, such as thunder and those of programs, and has
called nothing: a fork makes the first call of all (tests/first_programs.py).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

#: variables that the first process has read: those of a fork would have no effect
READ_AT_START = ("PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _FirstProcess:
    """The process that has imported torch, and other modules; it forks for each line that it reads."""

    def __init__(self, imported: tuple[str, ...], variables: Mapping[str, str]) -> None:
        environment = {**os.environ, **variables}
        if not imported:
            environment.pop("PYTHONPATH", None)
        pipe, command = subprocess.PIPE, [sys.executable, __file__, *imported]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment)
        atexit.register(self.end)

    def run(self, request: Mapping[str, Any]) -> tuple[int, float]:
        """Run Python in a fork; return its exit status, negative for a signal, and its seconds of CPU."""
        assert self.process.stdin is not None, "it has pipes"
        assert self.process.stdout is not None, "it has pipes"
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        status, seconds = self.process.stdout.readline().split()
        return int(status), float(seconds)

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


_first: dict[tuple[str, ...], _FirstProcess] = {}
_seconds_of_forks: list[float] = []


def cpu_seconds() -> float:
    """Return the seconds of CPU of this process, of its processes that have ended, and of all forks."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + sum(_seconds_of_forks)


def run_python(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    check: bool = False,
    imported: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments (`-W …`, then `-c`, `-m` or a file) in a new process.

    With ``imported``, these modules have been imported, in the environment of the first such call.

    Raises CalledProcessError if the process fails and `check` is set, ValueError for a variable in `env` that
    has no effect any more.
    """
    environment = dict(os.environ if env is None else env)
    for name in READ_AT_START:
        if name in environment and environment[name] != os.environ.get(name):
            raise ValueError(f"{name} has no effect in a fork: start a process with subprocess")
    if imported not in _first:
        _first[imported] = _FirstProcess(imported, environment if imported else {})
    with tempfile.TemporaryDirectory() as folder:
        printed = [str(Path(folder, name)) for name in ("stdout", "stderr")]
        request = {
            "arguments": arguments, "env": environment, "cwd": str(cwd or Path.cwd()), "printed": printed
        }  # fmt: skip
        status, seconds = _first[imported].run(request)
        _seconds_of_forks.append(seconds)
        stdout, stderr = (Path(path).read_text(encoding="utf-8") for path in printed)
    done = subprocess.CompletedProcess([sys.executable, *arguments], status, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def another_seed() -> str:
    """Return a `PYTHONHASHSEED` that forks of `run_python` do not have; without the variable it is drawn."""
    return "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"


# -- in the first process ------------------------------------------------------------------------------------


def serve(requests: IO[bytes], statuses: IO[bytes]) -> dict[str, Any] | None:
    """Fork for each request and write the exit status of the fork and its seconds of CPU.

    Return the request in the fork, None at the end of the requests.
    """
    for requested in requests:
        pid = os.fork()
        if pid == 0:
            request: dict[str, Any] = json.loads(requested)
            return request
        _, status, used = os.wait4(pid, 0)
        line = f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}\n"
        statuses.write(line.encode())
        statuses.flush()
    return None


def enter(request: Mapping[str, Any], path: list[str]) -> None:
    """Make this process that of a request: its files, environment, folder and modules' path."""
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for descriptor, name in enumerate(request["printed"], 1):
        with open(name, "wb") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    more = os.environ.get("PYTHONPATH")
    sys.path[:] = [*(os.path.abspath(p) for p in (more.split(os.pathsep) if more else ())), *path]
    sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]  # a file's, as a new process has it


def execute(arguments: list[str]) -> None:
    """Run what arguments of Python say, as `__main__`."""
    while arguments[0] == "-W":
        warnings.simplefilter(arguments[1])  # type: ignore[arg-type]
        sys.warnoptions.append(arguments[1])
        arguments = arguments[2:]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if arguments[0] == "-c":
        sys.argv[:], sys.path[:0] = ["-c", *arguments[2:]], [""]
        exec(compile(arguments[1], "<string>", "exec", dont_inherit=True), vars(main))
    elif arguments[0] == "-m":
        sys.argv[:], sys.path[:0] = arguments[1:], [os.getcwd()]
        runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]  # which `-m` itself calls
    else:
        sys.argv[:], sys.path[:0] = arguments, [str(Path(arguments[0]).resolve().parent)]
        main.__file__ = arguments[0]
        program = compile(Path(arguments[0]).read_bytes(), arguments[0], "exec", dont_inherit=True)
        exec(program, vars(main))


def _main() -> None:
    import torch  # noqa: F401  (only here: the tests' own process imports this module without it)

    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    path = sys.path[1:]
    answers = os.fdopen(os.dup(1), "wb")
    request = serve(sys.stdin.buffer, answers)
    if request is not None:
        answers.close()
        enter(request, path)
        execute(request["arguments"])


if __name__ == "__main__":
    _main()
