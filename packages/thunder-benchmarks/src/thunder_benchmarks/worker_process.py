"""A worker, seen from the process that makes the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .ways import WAYS

__all__ = ["Failure", "Interpreters", "Worker"]


class Failure(Exception):
    """A request that a worker could not carry out; the text says why."""


class Interpreters:
    """The interpreters of workers: this one, and the peer's where there is one.

    The peer's processes find this package through a folder with a link to it, and none of this environment's
    other packages: both thunders have the same import name.
    """

    def __init__(self, peer: str | None, threads: int = 1) -> None:
        self.peer, self.threads = peer, threads
        self._folder = tempfile.TemporaryDirectory(prefix="thunder-benchmarks-")
        (Path(self._folder.name) / "thunder_benchmarks").symlink_to(Path(__file__).parent)

    def command(self, way: str) -> list[str]:
        """Return the command of a worker. Raises Failure for a way of a peer that is absent."""
        program = sys.executable
        if WAYS[way].of_peer:
            if self.peer is None:
                raise Failure("absent: --peer-python names no interpreter")
            program = self.peer
        return [program, "-m", "thunder_benchmarks.worker", way]

    def environment(self, way: str, caches: Path) -> dict[str, str]:
        """Return the environment of a worker: its threads, the caches on disk in a folder."""
        environment = dict(os.environ)
        environment |= {"OMP_NUM_THREADS": str(self.threads), "PYTHONHASHSEED": "0"}
        environment |= {
            "THUNDER_CACHE_DIR": str(caches / "thunder"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        }
        if WAYS[way].of_peer:
            environment["PYTHONPATH"] = self._folder.name
        else:
            # The package may be one of a checkout, which only this process has on its path.
            paths = (os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1]))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return environment


class Worker:
    """A process that runs one way; leaving the context ends it."""

    def __init__(self, interpreters: Interpreters, way: str, caches: Path) -> None:
        command = interpreters.command(way)
        self.way = way
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in __exit__)
        self._process = subprocess.Popen(
            command,
            env=interpreters.environment(way, caches),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def send(self, do: str, **arguments: Any) -> None:
        """Send a request without waiting for its reply."""
        assert self._process.stdin is not None, "it is a pipe"
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failure(self._last_words()) from None

    def receive(self) -> dict[str, Any]:
        """Return the reply to the request before. Raises Failure if the worker failed or ended."""
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise Failure(self._last_words())
        reply = json.loads(line)
        if "failed" in reply:
            raise Failure(reply["failed"])
        result: dict[str, Any] = reply["ok"]
        return result

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Return the reply to a request. Raises Failure."""
        self.send(do, **arguments)
        return self.receive()

    def _last_words(self) -> str:
        """Return how the process ended, with the last line of its error output."""
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f"the process ended with status {status}: {lines[-1] if lines else 'no output'}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        self._errors.close()
