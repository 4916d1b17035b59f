"""The process that compiles regions in the background, and what it and its parent say to each other.

It is a process and not a thread, because TorchInductor generates code for seconds in Python, under the lock
of the interpreter for which the program waits at each of its kernels; and because nothing that the program
sets or breaks, and no crash of a compiler, reaches the other.

A message is the length of a pickle in 8 bytes, and the pickle. The process ends when its parent does.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Final

import torch

from .kept_code import CacheWith, KeptCode, changed_settings, open_cache, store_region
from .kernels import Strides, failure
from .sent_regions import region_from
from .settings import Settings

__all__ = ["Answer", "Request", "Surroundings", "main", "message_of", "surroundings"]

#: seconds without a request after which the process ends, which occupies some 400 MB
_MOST_IDLE_SECONDS: Final = 60


@dataclass(frozen=True)
class Surroundings:
    """What decides, beside a region and its settings, what TorchInductor generates.

    Attributes:
        path: where modules are found.
        environment: the variables of the environment.
        threads: the threads of a kernel.
        default_dtype: that of new tensors.
        changes: the settings of TorchInductor that the process has changed.
        versions: the versions of the cache of regions, which are equal if all this has arrived.
    """

    path: tuple[str, ...]
    environment: Mapping[str, str]
    threads: int
    default_dtype: torch.dtype
    changes: Mapping[str, Any]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Request:
    """Regions to compile: the bytes of each, with the strides (elements) of its inputs."""

    number: int
    regions: tuple[tuple[bytes, tuple[Strides, ...]], ...]
    settings: Settings
    surroundings: Surroundings


@dataclass(frozen=True)
class Answer:
    """The code of each region of a request, or the text of an error; with the artefacts that they need."""

    number: int
    codes: tuple[KeptCode | str, ...]
    artefacts: Mapping[str, bytes]


def surroundings(versions: Mapping[str, str]) -> Surroundings:
    """Return the surroundings of a compile that runs now. `versions` are those of its cache."""
    return Surroundings(
        path=tuple(sys.path),
        environment=dict(os.environ),
        threads=torch.get_num_threads(),
        default_dtype=torch.get_default_dtype(),
        changes=changed_settings(),
        versions=dict(versions),
    )


def message_of(content: object) -> bytes:
    """Return the message of a request or an answer; raises what pickle raises."""
    pickled = pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
    return len(pickled).to_bytes(8, "little") + pickled


def _message_in(file: BinaryIO) -> Any:
    """Return the next message. Raises EOFError where the other process has ended."""
    length = int.from_bytes(_read(file, 8), "little")
    return pickle.loads(_read(file, length))


def _read(file: BinaryIO, length: int) -> bytes:
    content = file.read(length)
    if len(content) < length:
        raise EOFError("the other process has ended")
    return content


# -- in the process


def main() -> None:
    """Answer requests from standard input on standard output, until the parent ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed goes where errors go
    waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    try:
        request = waiting.get()
        while True:
            answers.write(message_of(_answer(request)))
            answers.flush()
            request = waiting.get(timeout=_MOST_IDLE_SECONDS)
    except (KeyboardInterrupt, BrokenPipeError, queue.Empty):
        os._exit(0)  # without the daemon thread, which waits for standard input


def _listen(requests: BinaryIO, waiting: queue.SimpleQueue[Request]) -> None:
    """Take requests at any time, so that the parent never waits; interrupt the compile when it ends."""
    try:
        while True:
            waiting.put(_message_in(requests))
    except EOFError:
        os.kill(os.getpid(), signal.SIGINT)  # which ends the C++ compiler and removes its folder
        time.sleep(5)
        os._exit(1)


def _answer(request: Request) -> Answer:
    try:
        with _same_surroundings(request.surroundings):
            cache = CacheWith(open_cache().versions)
            _check_versions(cache.versions, request.surroundings.versions)
            inductor = import_module("thunder_inductor.compiler")
            regions = [(region_from(content), strides) for content, strides in request.regions]
            results = inductor.compile_regions(regions, request.settings, cache)
            for (region, strides), result in zip(regions, results, strict=True):
                if not isinstance(result, Exception):  # kept also for a parent that has ended
                    store_region(cache, region, strides, request.settings, result[1])
    except Exception as error:  # of any class: it is reported for each region
        return Answer(request.number, (failure(error),) * len(request.regions), {})
    codes = [failure(result) if isinstance(result, Exception) else result[1] for result in results]
    return Answer(request.number, tuple(codes), cache.artefacts)


@contextmanager
def _same_surroundings(wanted: Surroundings) -> Iterator[None]:
    """Within the context, code is generated as it would be in the parent."""
    os.environ.clear()
    os.environ.update(wanted.environment)
    sys.path[:] = wanted.path
    torch.set_num_threads(wanted.threads)
    torch.set_default_dtype(wanted.default_dtype)
    config = import_module("torch._inductor.config")
    with config.patch(dict(wanted.changes)):
        yield


def _check_versions(here: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    differing = [name for name, value in here.items() if wanted.get(name) != value]
    if differing:
        raise RuntimeError(f"the process that compiles in the background differs in {', '.join(differing)}")
