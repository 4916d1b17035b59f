"""KeyboardInterrupts in the middle of compiles and calls: afterwards everything is as it was, and usable.

Python runs the handler of a signal between any two calls. `at_event` raises there, at an event of
`sys.setprofile` that is chosen by its number, so that a fault is found again; `by_timer` uses real signals.
"""

from __future__ import annotations

import contextvars
import gc
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import nn

import thunder
from thunder.base import opaque_results, overwritten
from thunder.frontend.active_modes import HELD
from thunder.interpreter.machine import deep_recursions
from thunder.ops.prims.modes import inference_depth

EVENTS = ("call", "return", "c_return")


class Layers(nn.Module):
    """A model that reads lists and numbers, and counts its calls in a buffer."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros(()))
        self.factors, self.options = [1, 2], {"shift": 1.5}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(n, 2)``."""
        h = self.norm(nn.functional.gelu(self.a(x)))
        for factor in self.factors:
            h = h * factor + self.options["shift"]
        self.calls += 1
        return self.b(h.sin() if h.shape[0] > 2 else h).softmax(-1)


class Deciding(Layers):
    """The same, with a question about data and a region without gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(n, 2)``."""
        with torch.no_grad():
            scale = x.abs().mean() + 1
        y = super().forward(x / scale)
        return y * 2 if y.sum() > 0 else y


class Mapped(Layers):
    """The same, with a mapped function and an inner gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(n, 2)``."""
        y = super().forward(x)
        return y + torch.vmap(torch.func.grad(lambda row: (row**3).sum()))(x)[:, :2]


KINDS: dict[str, type[Layers]] = {"layers": Layers, "deciding": Deciding, "mapped": Mapped}


def surroundings() -> dict[str, Any]:
    """Return the state of this thread and process that a compile may change while it runs."""
    held = contextvars.copy_context()
    return {
        "the collector": gc.isenabled(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": (torch.is_inference_mode_enabled(), inference_depth()),
        "default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), HELD.modes),
        "torch functions": torch._C._is_torch_function_enabled(),
        "recursion": (sys.getrecursionlimit(), deep_recursions()),
        "filters of warnings": list(warnings.filters),
        "warnings": warnings.showwarning,
        "standard output": (sys.stdout, sys.stderr),
        "variables": {
            variable.name
            for variable, value in held.items()
            if variable.name.startswith("thunder_") and value is not contextvars.Context().run(variable.get)
        },
        "results": (len(opaque_results._results.entries), opaque_results._results.made is None),
        "overwritten": len(overwritten._calls.kept),
    }


class Interrupted:
    """A compiled model, a call of which was interrupted, and an equal one in eager."""

    def __init__(self, kind: str, *, is_warm: bool = False) -> None:
        torch.manual_seed(0)
        self.model, self.eager, self.x = KINDS[kind](), KINDS[kind](), torch.randn(3, 4)
        self.eager.load_state_dict(self.model.state_dict())
        self.compiled = thunder.jit(self.model, executors=["torch"])
        if is_warm:
            self.compiled(self.x)
        self.before = surroundings()
        self.members = {name: id(value) for name, value in vars(self.model).items()}

    def train(self) -> None:
        """Call it, with its backward."""
        self.compiled(self.x).sum().backward()

    def faults(self) -> list[str]:
        """Return what is not as it was, or does not work in this thread and in another one."""
        after = surroundings()
        found = [
            f"{what}: {was!r} before, {after[what]!r} after"
            for what, was in self.before.items()
            if was != after[what]
        ]
        members = {name: id(value) for name, value in vars(self.model).items()}
        found += [
            f"the member {name} is another" for name in members if members[name] != self.members.get(name)
        ]
        gc.enable()
        done = threading.Event()

        def use() -> None:
            try:
                found.extend(self._wrong())
            except Exception as error:
                found.append(f"in a thread: {type(error).__name__}: {error}")
            done.set()

        threading.Thread(target=use, daemon=True).start()
        if not done.wait(60):
            return [*found, "another thread waits for ever"]
        try:
            return [*found, *self._wrong()]
        except Exception as error:
            return [*found, f"{type(error).__name__}: {error}"]

    def _wrong(self) -> list[str]:
        self.eager.load_state_dict(self.model.state_dict())
        self.model.zero_grad()
        self.eager.zero_grad()
        result, expected = self.compiled(self.x), self.eager(self.x)
        torch.testing.assert_close(result, expected)
        result.sum().backward()
        expected.sum().backward()
        for parameter, other in zip(self.model.parameters(), self.eager.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, other.grad)
        torch.testing.assert_close(self.model.calls, self.eager.calls)
        misses = thunder.cache_misses(self.compiled)
        return [f"it was compiled {misses} times"] if misses > 4 else []


def events_of(run: Callable[[], object]) -> list[tuple[object, ...]]:
    """Return a key for each event of a run, equal for events at the same place of the source."""
    found: list[tuple[object, ...]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event in EVENTS:
            back = frame.f_back if event == "call" else None
            place = None if back is None else (back.f_code, back.f_lineno)
            found.append((event, frame.f_code, frame.f_lineno, place))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def at_event(run: Callable[[], object], number: int) -> BaseException | None:
    """Run, and raise a KeyboardInterrupt at an event; return what the run raised."""
    count = 0

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in EVENTS:
            count += 1
            if count == number:
                sys.setprofile(None)
                raise KeyboardInterrupt

    try:
        sys.setprofile(interrupt)
        run()
    except BaseException as error:
        return error
    finally:
        sys.setprofile(None)
    return None


def _tried(kind: str, number: int, *, is_warm: bool) -> list[str]:
    tried = Interrupted(kind, is_warm=is_warm)
    error = at_event(tried.train, number)
    # None: the event was in a generator that is closed, or a finalizer, where Python ignores errors
    lost = [] if error is None or isinstance(error, KeyboardInterrupt) else [f"raised {error!r}"]
    return lost + tried.faults()


def interrupted(kind: str, count: int, seed: int, *, is_warm: bool = False) -> dict[str, int]:
    """Interrupt ``count`` runs, each at another place of the source; fail for what is not as it was."""
    first = Interrupted(kind, is_warm=is_warm)
    first.train()
    places: dict[tuple[object, ...], list[int]] = {}
    for number, key in enumerate(events_of(Interrupted(kind, is_warm=is_warm).train), 1):
        places.setdefault(key, []).append(number)
    draw = random.Random(seed)
    chosen = draw.sample(list(places), min(count, len(places)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in chosen:
            number = draw.choice(places[key])
            faults = _tried(kind, number, is_warm=is_warm)
            assert faults == [], f"interrupted at event {number}, {key}:\n" + "\n".join(faults)
    return {"interrupts": len(chosen), "places": len(places)}


def by_timer(kind: str, count: int, seed: int) -> dict[str, int]:
    """Interrupt ``count`` first calls by SIGINT from a timer, after a time that is drawn."""
    draw, interrupts = random.Random(seed), 0
    handler = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for _ in range(count):
            tried = Interrupted(kind)
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.1))
                tried.train()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            faults = tried.faults()
            assert faults == [], "\n".join(faults)
    finally:
        signal.signal(signal.SIGALRM, handler)
    return {"calls": count, "interrupts": interrupts}
