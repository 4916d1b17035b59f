"""Checks of cases: a program and its world are built twice, one is run by torch eager, one by the compiler.

All that can be observed of both must agree, before and after one fact of the world is changed. A *world* is
a program with everything that it reads; a *case* builds a world and names the facts to change; `check_case`
plays a case. Nothing here knows how the compiler works: it needs `jit` and `cache_hits`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
import torch

from comparison.errors import describe, error_difference, is_a
from recorded_refusals import refusals_as_recorded
from soundness.graph import Slot
from soundness.object_facts import differences, object_facts, reachable


class Compiler(Protocol):
    """What the judge asks of a compiler; the `thunder` module is one."""

    def jit(self, fn: Callable[..., Any], /, **options: Any) -> Callable[..., Any]: ...

    def cache_hits(self, fn: Callable[..., Any]) -> int: ...


class Bag:
    """An object of a user's class that holds what it is given as attributes."""

    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


@dataclass
class World:
    """A program, the arguments of its next call, and the context in which the call is made."""

    program: Callable[..., Any]
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    within: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def roots(self) -> Iterator[Slot]:
        """The places from which everything in the world is reached."""
        name = "self" if isinstance(self.program, torch.nn.Module) else "program"
        yield Slot("args", self.args, functools.partial(setattr, self, "args"))
        yield Slot("kwargs", self.kwargs, functools.partial(setattr, self, "kwargs"))
        yield Slot(name, self.program, functools.partial(setattr, self, "program"))


Mutation = Callable[[World], object]


def world(program: Callable[..., Any], /, *args: Any, **kwargs: Any) -> World:
    """The world in which `program` is called with these arguments."""
    return World(program, list(args), kwargs)


def without_grad(w: World) -> World:
    """The same world with its calls made under `torch.no_grad()`."""
    w.within = torch.no_grad
    return w


def ramp(*shape: int, start: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of distinct, exactly representable numbers: start, start + 1/4, …"""
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float64) / 4 + start).reshape(shape).to(dtype)


def with_globals(function: types.FunctionType, /, **names: Any) -> types.FunctionType:
    """`function` over a global namespace of its own (torch and `names`), so that worlds share no globals."""
    namespace = {"__builtins__": __builtins__, "__name__": "world", "torch": torch, **names}
    twin = types.FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    return twin


def arg(index: int, value: Any) -> Mutation:
    """The mutation that passes a copy of `value` as positional argument `index`."""
    return lambda w: w.args.__setitem__(index, copy.deepcopy(value))


def kwarg(name: str, value: Any) -> Mutation:
    """The mutation that passes a copy of `value` as keyword argument `name`."""
    return lambda w: w.kwargs.__setitem__(name, copy.deepcopy(value))


def attr(name: str, value: Any) -> Mutation:
    """The mutation that sets an attribute of the program (a module or other object), by dotted name."""

    def mutate(w: World) -> None:
        *owners, last = name.split(".")
        setattr(functools.reduce(getattr, owners, w.program), last, copy.deepcopy(value))

    return mutate


def under(context: Callable[[], contextlib.AbstractContextManager[Any]]) -> Mutation:
    """The mutation that makes the next calls within `context()`."""
    return lambda w: setattr(w, "within", context)


@dataclass(frozen=True)
class Case:
    """A world to build and the facts to change in it.

    `hits`: the unchanged second call must be served from the cache. `refused`: the compiler must raise this
    error class. `may_refuse`: it may raise this class, in the calls for which that is recorded (in
    `recorded_refusals.json`), and else must be right. `options` go to `jit`.
    """

    name: str
    build: Callable[[], World]
    mutations: Mapping[str, Mutation]
    hits: bool = True
    refused: str | None = None
    may_refuse: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Cases(list[Case]):
    """A table of cases; calling it gives the decorator that adds a row."""

    def __call__(
        self,
        *,
        hits: bool = True,
        refused: str | None = None,
        may_refuse: str | None = None,
        options: Mapping[str, Any] | None = None,
        **mutations: Mutation,
    ) -> Callable[[Callable[[], World]], Callable[[], World]]:
        """Return the decorator that adds a factory of worlds as a case; a keyword for each fact to change."""

        def add(build: Callable[[], World]) -> Callable[[], World]:
            self.append(Case(build.__name__, build, mutations, hits, refused, may_refuse, options or {}))
            return build

        return add

    def parametrize(self) -> pytest.MarkDecorator:
        """One test for each fact of each case; a case without facts is called again unchanged."""
        rows = [
            pytest.param(case, change, id="-".join(filter(None, (case.name, change))))
            for case in self
            for change in (case.mutations or [None])
        ]
        return pytest.mark.parametrize(("case", "change"), rows)


@dataclass(frozen=True)
class Outcome:
    """What one call did: its value or error, what it printed, and the ambient state that it left."""

    value: Any
    error: Exception | None
    printed: str
    ambient: tuple[Any, ...]


def ambient() -> tuple[Any, ...]:
    """The process state that a call may change or must leave alone; the random state comes as bytes."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch._C._len_torch_function_stack(),
        torch._C._functorch.peek_interpreter_stack() is None,
        torch.get_rng_state().numpy().tobytes(),
    )


AMBIENT_NAMES = (
    "grad mode",
    "inference mode",
    "default dtype",
    "default device",
    "autocast",
    "autocast dtype",
    "deterministic mode",
    "matmul precision",
    "torch function stack",
    "functorch stack",
    "random state",
)


def call(function: Callable[..., Any], w: World) -> Outcome:
    """Calls `function` on the arguments of `w`, with the random state that every call starts from."""
    printed = io.StringIO()
    torch.manual_seed(20)
    value, error = None, None
    with w.within(), contextlib.redirect_stdout(printed):
        try:
            value = function(*w.args, **w.kwargs)
        except Exception as raised:
            error = raised
        state = ambient()
    return Outcome(value, error, printed.getvalue(), state)


def compare(eager: Outcome, theirs: World, compiled: Outcome, ours: World) -> list[str]:
    """What differs between the eager call in `theirs` and the compiled one in `ours`, one line each."""
    if eager.error is not None or compiled.error is not None:
        return compare_errors(eager, compiled)
    lines = []
    if eager.printed != compiled.printed:
        lines.append(f"printed {compiled.printed!r}, eager prints {eager.printed!r}")
    for name, expected, found in zip(AMBIENT_NAMES, eager.ambient, compiled.ambient, strict=True):
        if expected != found:
            lines.append(
                f"{name} differs after the call"
                + (f": {found}, {expected} in eager" * (name != "random state"))
            )
    return lines + differences(observed(theirs, eager), observed(ours, compiled))


def compare_errors(eager: Outcome, compiled: Outcome) -> list[str]:
    """An error must be eager's: of its class or derived from it, with its text first."""
    expected, found = eager.error, compiled.error
    if expected is None:
        return [f"raised {describe(found)}, eager returns"]
    if found is None:
        return [f"returned {compiled.value!r}, eager raises {describe(expected)}"]
    difference = error_difference(expected, found)
    return [] if difference is None else [difference]


def observed(w: World, outcome: Outcome | None = None) -> dict[str, object]:
    """The facts of a world and, named after it, of what a call in it returned."""
    result = [] if outcome is None else [Slot("result", outcome.value, lambda new: None)]
    return object_facts([*w.roots(), *result])


def proxies_in(w: World, outcome: Outcome) -> list[str]:
    """Types of the compiler's stand-ins for values that are still reachable from the user's objects."""
    held = reachable([w.args, w.kwargs, w.program, outcome.value], object)
    return sorted({type(x).__name__ for x in held if is_stand_in(type(x))})


def is_stand_in(cls: type) -> bool:
    """Whether `cls` is a proxy class of the compiler."""
    return any(base.__name__ == "Proxy" or base.__name__ == "TensorProxy" for base in cls.__mro__)


def steps(case: Case, change: str | None) -> list[tuple[str, Mutation | None]]:
    """The calls of a case: two unchanged, then two after the change if there is one."""
    calls: list[tuple[str, Mutation | None]] = [("the first call", None), ("the unchanged second call", None)]
    if change is not None:
        calls += [
            (f"the call after '{change}'", case.mutations[change]),
            (f"the second call after '{change}'", None),
        ]
    return calls


def check_case(case: Case, change: str | None, compiler: Compiler) -> None:
    """Plays `case` with one change; raises AssertionError that lists each difference from eager."""
    if case.may_refuse is None:
        check_calls(case, change, compiler)
        return
    file = case.build.__module__.rpartition(".")[2]
    with refusals_as_recorded("cases", f"{file}, {case.name}, {change}") as refusals:
        refused = check_calls(case, change, compiler)
        if refused is not None:
            refusals.add(*refused)


def check_calls(case: Case, change: str | None, compiler: Compiler) -> tuple[str, Exception] | None:
    """Judge the calls of a case; return the call that was refused with its error, or None."""
    theirs, ours = case.build(), case.build()
    alike = differences(observed(theirs), observed(ours))
    assert not alike, f"{case.name} builds two different worlds: {alike}"
    compiled = compiler.jit(ours.program, **case.options)
    for number, (step, mutate) in enumerate(steps(case, change), 1):
        if mutate is not None:
            mutate(theirs)
            mutate(ours)
        before = observed(ours)
        expected, found = call(theirs.program, theirs), call(compiled, ours)
        refusal = case.refused or case.may_refuse
        if refusal and is_a(found.error, refusal):
            check_refusal(case, step, before, ours, found)
            assert found.error is not None, "a refusal is an error"
            return step, found.error
        assert not case.refused, (
            f"{step} must be refused with {case.refused}, but gave {describe(found.error)}"
        )
        lines = compare(expected, theirs, found, ours)
        if found.error is not None:
            after = differences(observed(theirs), observed(ours))
            lines += [f"after the error {line}" for line in after]
        lines += [f"a {name} is reachable from the user's objects" for name in proxies_in(ours, found)]
        assert not lines, "\n".join([f"{case.name}: {step} differs from eager:", *lines])
        if number == 2 and case.hits and found.error is None:
            assert compiler.cache_hits(compiled) == 1, f"{step} was not served from the cache"
    return None


def check_refusal(case: Case, step: str, before: dict[str, object], ours: World, found: Outcome) -> None:
    """A refused call leaves the world as it was."""
    lines = differences(before, observed(ours))
    lines += [f"a {name} is reachable from the user's objects" for name in proxies_in(ours, found)]
    assert not lines, "\n".join([f"{case.name}: {step} was refused and left:", *lines])
