"""Runs of a program that leave no trace: its tensors get their values back, generators their state."""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Protocol

import torch

import thunder
from thunder.core.pytree import tree_iter
from thunder_bisect.slowness.answer import Times

__all__ = ["Call", "Limits", "Repeated", "measured", "warm"]

#: how far from an object of the program its tensors are looked for
_DEEPEST = 6


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many timed runs of a function there are, and how long they take together, in seconds."""

    seconds: float = 0.5
    fewest: int = 5
    most: int = 60
    #: returns the time in seconds
    clock: Callable[[], float] = time.perf_counter
    #: whether the time in which the thread has waited for a processor is left out, where Linux counts it
    without_waits: bool = False


#: the limits where none are given
LIMITS = Limits()


class Repeated(Protocol):
    """What is measured: a call that is repeated with several functions."""

    def run(self, fn: Callable[..., Any]) -> Any:
        """Call a function, and return what it returns."""

    def restore(self) -> None:
        """Undo what the last run has written."""


@dataclass(kw_only=True)
class Call:
    """One call of a program, which is repeated.

    `fn` is the program as it was written. Its results' gradients are computed with it if one requires grad.
    """

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    #: whether the last run had a backward
    with_backward: bool = False
    #: the names of the tensors that runs have written, and which have their values back
    written: set[str] = field(default_factory=set)
    _saved: list[SavedTensor] = field(default_factory=list)

    def run(self, fn: Callable[..., Any]) -> Any:
        """Call a form of the program, and compute the gradients of its results; return the results."""
        result = fn(*self.args, **self.kwargs)
        sources = [x for x in tree_iter(result) if isinstance(x, torch.Tensor) and x.grad_fn is not None]
        leaves = list(_leaves(sources, tree_iter((self.args, self.kwargs))))
        self.with_backward = bool(leaves)
        if leaves:
            torch.autograd.grad(sources, leaves, [torch.ones_like(x) for x in sources], allow_unused=True)
        return result

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Run within a state that is restored at the end: values of tensors, and of generators of numbers."""
        self._saved = [SavedTensor(name, x) for name, x in self.tensors()]
        gradients = [(saved.tensor, saved.tensor.grad) for saved in self._saved if saved.tensor.is_leaf]
        self._saved += [SavedTensor("a gradient", grad) for _, grad in gradients if grad is not None]
        devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
        numpy = sys.modules.get("numpy")
        states = random.getstate(), numpy.random.get_state() if numpy is not None else None
        try:
            with torch.random.fork_rng(devices), contextlib.redirect_stdout(io.StringIO()):
                yield
        finally:
            random.setstate(states[0])
            if numpy is not None:
                numpy.random.set_state(states[1])
            self.restore()
            for tensor, grad in gradients:
                if tensor.grad is not grad:
                    tensor.grad = grad
            self._saved.clear()

    def forget_unwritten(self) -> None:
        """Release the copies of tensors that a run has not written."""
        self.restore()
        self._saved = [saved for saved in self._saved if saved.name in self.written]

    def restore(self) -> None:
        """Give the tensors that runs have written their values back."""
        self.written |= {saved.name for saved in self._saved if saved.restore()}

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that a call may write, each once: those that arguments and the program reach."""
        parts = [*((f"args[{i}]", value) for i, value in enumerate(self.args)), *self.kwargs.items()]
        seen = set[int]()
        for name, value in (*parts, *_reached(self.fn)):
            yield from _tensors_in(name, value, seen)


class SavedTensor:
    """A tensor with a copy of its values."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.tensor = name, tensor
        self._values, self._version = tensor.detach().clone(), _version(tensor)

    def restore(self) -> bool:
        """Return whether the tensor has been written since, and give it its values back."""
        if _version(self.tensor) == self._version and (
            self._version is not None or torch.equal(self.tensor, self._values)
        ):
            return False
        with torch.no_grad():
            self.tensor.detach().copy_(self._values)
        self._version = _version(self.tensor)
        return True


def _version(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor was written; None for one that does not count it."""
    return None if tensor.is_inference() else tensor._version


def _reached(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a program reaches by name: itself, its object, variables and globals."""
    yield "", fn
    method: Any = None if isinstance(fn, torch.nn.Module) else inspect.unwrap(fn)
    owner = getattr(method, "__self__", None)
    if owner is not None:
        yield "self", owner
    code = getattr(method, "__code__", None)
    if code is not None:
        names = {**method.__globals__, **inspect.getclosurevars(method).nonlocals}
        yield from ((name, names[name]) for name in (*code.co_names, *code.co_freevars) if name in names)


def _tensors_in(name: str, value: Any, seen: set[int], depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in an object of the program, with the names by which it reaches them."""
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            shown = repr(key) if isinstance(key, (str, int)) else "…"
            yield from _tensors_in(f"{name}[{shown}]", item, seen, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors_in(f"{name}[{index}]", item, seen, depth + 1)
    elif isinstance(value, torch.nn.Module):
        for own, x in (*value.named_parameters(), *value.named_buffers()):
            yield from _tensors_in(f"{name}.{own}".removeprefix("."), x, seen, depth + 1)
    elif not isinstance(value, (type, ModuleType, FunctionType)) and isinstance(
        getattr(value, "__dict__", None), dict
    ):
        for key, item in vars(value).items():
            yield from _tensors_in(f"{name}.{key}".removeprefix("."), item, seen, depth + 1)


def _leaves(sources: Iterable[torch.Tensor], given: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors whose gradients a backward computes: leaves, and arguments that have a graph."""
    ends = {x.grad_fn: x for x in given if isinstance(x, torch.Tensor) and x.grad_fn is not None}
    waiting, seen = [x.grad_fn for x in sources], set[Any]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in ends:
            yield ends[node]
        elif hasattr(node, "variable"):
            yield node.variable
        else:
            waiting += [following for following, _ in node.next_functions]


def measured(
    call: Repeated,
    forms: Mapping[str, Callable[..., Any]],
    after: Callable[[str], None] = lambda name: None,
    limits: Limits | None = None,
) -> dict[str, Times]:
    """Return the times of forms of a program, whose runs alternate.

    `after` is called with the name of the form after each run.
    """
    limits = limits or LIMITS
    clock = limits.clock
    walls: dict[str, list[float]] = {name: [] for name in forms}
    cpus: dict[str, list[float]] = {name: [] for name in forms}
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    counting = _waits() if limits.without_waits else nullcontext(lambda: 0.0)
    try:
        with counting as waited:
            begin = clock()
            for done in range(limits.most):
                if done >= limits.fewest and clock() - begin > limits.seconds * len(forms):
                    break
                for name, form in forms.items():
                    call.restore()
                    _wait()
                    cpu, begun = time.process_time(), _running_time(clock, waited)
                    result = call.run(form)
                    _wait()
                    walls[name].append(_running_time(clock, waited) - begun)
                    cpus[name].append(time.process_time() - cpu)
                    del result
                    after(name)
    finally:
        if was_collecting:
            gc.enable()
    return {name: Times(tuple(walls[name]), tuple(cpus[name])) for name in forms}


@contextmanager
def _waits() -> Iterator[Callable[[], float]]:
    """Yield what returns how long this thread has been ready and waited for a processor, in seconds.

    It is 0 where the system does not count it. Linux does (Documentation/scheduler/sched-stats.rst): other
    programs of a busy machine make the time by the clock longer, and not the time without these waits.
    """
    counts = Path("/proc/thread-self/schedstat")
    if not counts.exists():
        yield lambda: 0.0
        return
    with counts.open("rb", buffering=0) as file:

        def waited() -> float:
            file.seek(0)
            return int(file.read().split()[1]) * 1e-9

        yield waited


def _running_time(clock: Callable[[], float], waited: Callable[[], float]) -> float:
    """Return the time by a clock without the waits of this thread until then, in seconds.

    A wait between the two readings would be in one of them alone, and a run could take less than no time: the
    clock is read again until the thread has not waited meanwhile.
    """
    waits = waited()
    while True:
        now, before = clock(), waits
        waits = waited()
        if waits == before:
            return now - waits


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def warm(call: Call, compiled: Any, most: int = 4) -> int:
    """Call a compiled object until a call needs no compile; return how many calls needed one."""
    stats = thunder.compile_stats(compiled)
    assert stats is not None, "it is a compiled object"
    for done in range(most):
        misses = stats.cache_misses
        call.run(compiled)
        call.restore()
        if stats.cache_misses == misses:
            return done
    return most
