"""The process that compiles in the background, as its parent sees it: requests out, answers in."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any, Protocol

from .compile_process import Answer, Request, message_of

__all__ = ["Client", "Process"]

_COMMAND = "import sys; sys.path[:] = {path!r}; from thunder_inductor.compile_process import main; main()"
#: seconds for the process to end a compiler and remove its files, when the interpreter ends
_SECONDS_TO_END = 1.0


class Client(Protocol):
    """Who has sent a request."""

    def receive(self, answer: Answer) -> None:
        """Take the answer."""

    def fail(self, text: str) -> None:
        """Note that there is no answer, and why."""


class Process:
    """A process that compiles. Nothing here waits for it except `wait` and `end`.

    Attributes:
        has_answered: whether it has ever answered.
        has_ended: whether it takes no more requests.
    """

    def __init__(self) -> None:
        self.has_answered = self.has_ended = False
        self._clients: dict[int, Client] = {}
        self._number = 0
        self._outgoing, self._incoming = bytearray(), bytearray()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the process lives)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _COMMAND.format(path=sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,  # an interrupt from the terminal is for the program
        )
        assert self._process.stdin is not None, "it has pipes"
        assert self._process.stdout is not None, "it has pipes"
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        atexit.register(self.end)

    def send(self, client: Client, request: Callable[[int], Request]) -> None:
        """Send a request, made from its number; the client receives the answer in a later `look`."""
        self._number += 1
        self._outgoing += message_of(request(self._number))
        self._clients[self._number] = client
        self.look()

    def look(self) -> None:
        """Write what can be written, and give the answers that are here to the clients."""
        if self.has_ended:
            return
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._in, self._outgoing[: 1 << 16])]
        except BlockingIOError:
            pass  # the process has not read the last one yet
        except BrokenPipeError:
            self._fail()
            return
        try:
            while content := os.read(self._out, 1 << 20):
                self._incoming += content
        except BlockingIOError:
            self._answers()
        else:
            self._answers()
            self._fail()

    def wait(self, seconds: float) -> None:
        """Wait until an answer comes, the process ends, or these seconds are over."""
        if not self.has_ended:
            select.select([self._out], [self._in] if self._outgoing else [], [], seconds)

    def _answers(self) -> None:
        while len(self._incoming) >= 8:
            end = 8 + int.from_bytes(self._incoming[:8], "little")
            if len(self._incoming) < end:
                return
            answer: Any = pickle.loads(self._incoming[8:end])
            del self._incoming[:end]
            self.has_answered = True
            self._clients.pop(answer.number).receive(answer)

    def _fail(self) -> None:
        """Tell those that wait that the process has ended. After an idle time they are to ask another one."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.end()
        reason = lines[-1] if lines else f"exit status {self._process.returncode}"
        clients, self._clients = self._clients, {}
        if self.has_answered and self._process.returncode == 0:
            return
        for client in clients.values():
            client.fail(f"the process that compiles regions in the background has ended: {reason}")

    def end(self) -> None:
        """End the process and its compilers; at most a second."""
        if self.has_ended:
            return
        atexit.unregister(self.end)
        self.forget()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
            started = time.monotonic()
            while self._process.poll() is None and time.monotonic() - started < _SECONDS_TO_END:
                time.sleep(0.01)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def forget(self) -> None:
        """Close the pipes, as a fork does, which has no child process."""
        self.has_ended = True
        for file in (self._process.stdin, self._process.stdout, self._errors):
            assert file is not None, "it has pipes"
            file.close()
