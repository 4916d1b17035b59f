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
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

import thunder
from thunder.core.pytree import tree_iter
from thunder_bisect.slowness.answer import Times

__all__ = ["Call", "measured", "warm"]

#: how long the timed runs of one function take together, in seconds, and how many there are
_TIME, _FEWEST, _MOST = 0.5, 5, 60


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
    _saved: dict[str, tuple[torch.Tensor, torch.Tensor, int]] = field(default_factory=dict)

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
        tensors = dict(self._tensors())
        self._saved = {name: (x, x.detach().clone(), x._version) for name, x in tensors.items()}
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
            self._saved.clear()

    def forget_unwritten(self) -> None:
        """Release the copies of tensors that a run has not written."""
        self.restore()
        self._saved = {name: saved for name, saved in self._saved.items() if name in self.written}

    def restore(self) -> None:
        """Give the tensors that runs have written their values back."""
        for name, (x, values, version) in self._saved.items():
            if x._version != version:
                self.written.add(name)
                with torch.no_grad():
                    x.detach().copy_(values)
                self._saved[name] = (x, values, x._version)

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that a call may write: of arguments, and of modules that it uses."""
        for name, value in (*((f"args[{i}]", a) for i, a in enumerate(self.args)), *self.kwargs.items()):
            for x in tree_iter(value):
                if isinstance(x, torch.Tensor) and not x.is_inference():
                    yield name, x
        for name, value in _reached(self.fn):
            if isinstance(value, torch.nn.Module):
                for own, x in (*value.named_parameters(), *value.named_buffers()):
                    yield f"{name}.{own}".removeprefix("."), x
            elif isinstance(value, torch.Tensor):
                yield name, value


def _reached(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a program reaches by name: itself, its object, variables and globals."""
    yield "", fn
    method: Any = None if isinstance(fn, torch.nn.Module) else inspect.unwrap(fn)
    owner = getattr(method, "__self__", None)
    if owner is not None:
        yield "", owner
        yield from getattr(owner, "__dict__", {}).items()
    code = getattr(method, "__code__", None)
    if code is not None:
        names = {**method.__globals__, **inspect.getclosurevars(method).nonlocals}
        yield from ((name, names[name]) for name in (*code.co_names, *code.co_freevars) if name in names)


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
    call: Call, forms: Mapping[str, Callable[..., Any]], after: Callable[[str], None] = lambda name: None
) -> dict[str, Times]:
    """Return the times of forms of a program, whose runs alternate.

    `after` is called with the name of the form after each run.
    """
    walls: dict[str, list[float]] = {name: [] for name in forms}
    cpus: dict[str, list[float]] = {name: [] for name in forms}
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        for done in range(_MOST):
            if done >= _FEWEST and time.perf_counter() - begin > _TIME * len(forms):
                break
            for name, form in forms.items():
                call.restore()
                _wait()
                cpu, wall = time.process_time(), time.perf_counter()
                result = call.run(form)
                _wait()
                walls[name].append(time.perf_counter() - wall)
                cpus[name].append(time.process_time() - cpu)
                del result
                after(name)
    finally:
        if was_collecting:
            gc.enable()
    return {name: Times(tuple(walls[name]), tuple(cpus[name])) for name in forms}


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
