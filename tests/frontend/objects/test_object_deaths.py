"""Objects of the caller that a program overwrites: what their death runs is seen as in eager, or refused."""

from __future__ import annotations

import collections
import contextvars
import functools
import importlib
import itertools
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from sweeping import one_in


class Node:
    """An object that others may watch."""

    def __init__(self) -> None:
        self.child: Any = None

    def method(self) -> None:
        """Do nothing."""


class Logged(Node):
    """An object that says when it dies."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def __del__(self) -> None:
        self.log.append("died")


class Slots:
    """An object without a dictionary."""

    __slots__ = ("o",)


class State(types.SimpleNamespace):
    """What a program writes: ``log``, and one more place."""

    def __init__(self) -> None:
        super().__init__(log=[], watch=None)


def with_reference(state: State) -> Any:
    node, log = Node(), state.log
    state.watch = weakref.ref(node, lambda _: log.append("died"))
    return node


def with_reference_to_a_method(state: State) -> Any:
    node, log = Node(), state.log
    state.watch = weakref.WeakMethod(node.method, lambda _: log.append("died"))
    return node


def with_finalizer(state: State) -> Any:
    node = Node()
    weakref.finalize(node, state.log.append, "died")
    return node


def with_finally(state: State) -> Any:
    log = state.log

    def generator() -> Any:
        try:
            yield 1
        finally:
            log.append("died")

    begun = generator()
    next(begun)
    return begun


WATCHED: dict[str, Callable[[State], Any]] = {
    "reference": with_reference,
    "reference to a method": with_reference_to_a_method,
    "finalizer": with_finalizer,
    "finally": with_finally,
    "method": lambda state: Logged(state.log),
}

VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")


def with_cell(o: Any) -> Any:
    def put(value: Any = None, *, deletes: bool = False) -> None:
        nonlocal o
        if deletes:
            del o
        else:
            o = value

    return put


def with_global(o: Any) -> Any:
    namespace = {"G": o}
    exec("def put(value):\n    global G\n    G = value\ndef drop():\n    global G\n    del G", namespace)
    return types.SimpleNamespace(put=namespace["put"], drop=namespace["drop"])


def with_cache(o: Any) -> Any:
    held = [o]
    cached = functools.lru_cache(lambda key: held.pop())
    cached(1)
    return cached


def with_module(o: Any) -> nn.Module:
    module = nn.Module()
    module.o = o
    return module


def with_attribute_of_tensor(o: Any) -> torch.Tensor:
    tensor = torch.ones(2)
    tensor.o = o
    return tensor


def with_module_of_python(o: Any) -> types.ModuleType:
    module = types.ModuleType("written")
    module.o = o
    return module


Release = Callable[[Any], object]
#: where the object is → what makes the place, and the writes that release it
PLACES: dict[str, tuple[Callable[[Any], Any], dict[str, Release]]] = {
    "attribute": (
        lambda o: types.SimpleNamespace(o=o),
        {
            "=": lambda p: setattr(p, "o", None),
            "del": lambda p: delattr(p, "o"),
            "clear": lambda p: vars(p).clear(),
        },
    ),
    "slot": (
        lambda o: (slots := Slots(), setattr(slots, "o", o))[0],
        {"=": lambda p: setattr(p, "o", None), "del": lambda p: delattr(p, "o")},
    ),
    "class": (
        lambda o: type("Kind", (), {"o": o}),
        {"=": lambda p: setattr(p, "o", None), "del": lambda p: delattr(p, "o")},
    ),
    "module": (with_module, {"=": lambda p: setattr(p, "o", None)}),
    "tensor": (with_attribute_of_tensor, {"=": lambda p: setattr(p, "o", None)}),
    "module of Python": (with_module_of_python, {"=": lambda p: setattr(p, "o", None)}),
    "list": (
        lambda o: [o],
        {
            "=": lambda p: p.__setitem__(0, 3),
            "pop": lambda p: p.pop(),
            "clear": lambda p: p.clear(),
            "del": lambda p: p.__delitem__(slice(None)),
        },
    ),
    "dict": (
        lambda o: {"k": o},
        {"=": lambda p: p.update(k=3), "pop": lambda p: p.pop("k"), "clear": lambda p: p.clear()},
    ),
    "key": (lambda o: {o: 1}, {"clear": lambda p: p.clear()}),
    "set": (lambda o: {o}, {"clear": lambda p: p.clear()}),
    "deque": (
        lambda o: collections.deque([o], maxlen=1),
        {"append": lambda p: p.append(3), "pop": lambda p: p.pop()},
    ),
    "ordered": (lambda o: collections.OrderedDict(k=o), {"popitem": lambda p: p.popitem()}),
    "list of a class": (lambda o: type("Items", (list,), {})([o]), {"clear": lambda p: p.clear()}),
    "object": (
        lambda o: types.SimpleNamespace(child=types.SimpleNamespace(o=o)),
        {"=": lambda p: setattr(p, "child", None), "below": lambda p: setattr(p.child, "o", None)},
    ),
    "tuple": (lambda o: types.SimpleNamespace(t=(o,)), {"=": lambda p: setattr(p, "t", None)}),
    "cell": (with_cell, {"=": lambda p: p(3), "del": lambda p: p(deletes=True)}),
    "global": (with_global, {"=": lambda p: p.put(3), "del": lambda p: p.drop()}),
    "cache": (with_cache, {"clear": lambda p: p.cache_clear()}),
    "iterator": (lambda o: iter([o]), {"list": lambda p: len(list(p))}),
    "context variable": (lambda o: VARIABLE.set(o), {"set": lambda p: VARIABLE.set(3)}),
}
RELEASES = [(place, name) for place, (_, releases) in PLACES.items() for name in releases]
Program = Callable[[torch.Tensor, State], Any]


def program_of(release: Release) -> Program:
    def program(x: torch.Tensor, state: State) -> torch.Tensor:
        release(state.place)
        died = len(state.log)
        state.log.append("program")
        return x * (died + 1)

    return program


def run(call: Program, place: str, make: Callable[[State], Any], nested: bool) -> Any:
    """Return the result, and the log, of a call where one place holds the object."""
    state = State()
    held = make(state)
    if nested:
        inner, held = held, Node()
        held.child = inner
        del inner
    made = PLACES[place][0](held)
    del held
    state.place = None if place == "context variable" else made
    del made  # a token holds what a variable has had
    return call(torch.ones(()), state).item(), state.log


CELLS = [  # a generator is refused as a key
    (release, watched, nested)
    for release, watched, nested in itertools.product(RELEASES, WATCHED, (False, True))
    if nested or watched != "finally" or release[0] not in ("key", "set")
]


@pytest.mark.parametrize(("release", "watched", "nested"), one_in(13, CELLS, 3))
def test_what_runs_when_an_overwritten_object_dies_is_seen_in_each_call(
    release: tuple[str, str], watched: str, nested: bool
) -> None:
    place, name = release
    program = program_of(PLACES[place][1][name])
    compiled = thunder.jit(program)

    def check() -> None:
        assert run(compiled, place, lambda state: Node(), nested) == (1.0, ["program"])
        assert run(program, place, WATCHED[watched], nested) == (2.0, ["died", "program"])
        with pytest.raises(thunder.UnsupportedProgram, match="at the write"):
            run(compiled, place, WATCHED[watched], nested)

    contextvars.copy_context().run(check)


def test_one_entry_serves_all_objects_that_die_silently() -> None:
    def program(x: torch.Tensor, state: State) -> torch.Tensor:
        state.o, state.items[0] = x, None
        state.table.pop("k")
        return x * 2

    compiled = thunder.jit(program)
    for old in (Node(), 3.0, "text", torch.ones(2), [Node(), (x for x in [1])], nn.Linear(2, 2), len):
        state = State()
        state.o, state.items, state.table = old, [Node()], {"k": Node()}
        compiled(torch.ones(()), state)
        assert state.items == [None]
    assert thunder.cache_misses(compiled) == 1


def test_a_module_that_a_table_of_torch_knows_dies_silently() -> None:
    """As each module is after torch.compile has run in the process."""
    table = importlib.import_module("torch._dynamo.utils").ExactWeakKeyDictionary()

    def program(x: torch.Tensor, state: State) -> torch.Tensor:
        state.o = x
        return x * 2

    compiled = thunder.jit(program)
    for _ in range(2):
        state = State()
        state.o = nn.Linear(2, 2)
        table[state.o] = 1
        # as guards of torch.compile do
        weakref.finalize(state.o, functools.partial(torch.compiler.is_compiling))
        compiled(torch.ones(()), state)
        assert isinstance(state.o, torch.Tensor)
        assert not table.values
    assert thunder.cache_misses(compiled) == 1


def rotate(state: State) -> Any:
    state.items.append(state.items.pop(0))


def hand_over(state: State) -> Any:
    state.o = state.items.pop()


def return_it(state: State) -> Any:
    return state.items.pop()


def insert_before_it(state: State) -> Any:
    state.items.insert(0, 1)


def put_back(state: State) -> Any:
    token = VARIABLE.set(3)
    VARIABLE.reset(token)


# a program that moves a generator that has begun is refused
@pytest.mark.parametrize("watched", [name for name in WATCHED if name != "finally"])
@pytest.mark.parametrize("move", [rotate, hand_over, return_it, insert_before_it, put_back])
def test_what_a_program_moves_does_not_die(move: Callable[[State], Any], watched: str) -> None:
    def program(x: torch.Tensor, state: State) -> Any:
        return x * 2, move(state)

    def seen(call: Program) -> tuple[Any, ...]:
        state = State()
        state.o, state.items = None, [WATCHED[watched](state), 1]
        VARIABLE.set(state.items[0])
        _, moved = call(torch.ones(()), state)
        result = list(state.log), len(state.items), state.o is None, moved is None
        VARIABLE.set(None)
        return result

    expected, found = (contextvars.copy_context().run(seen, call) for call in (program, thunder.jit(program)))
    assert expected == found
    assert found[0] == []


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_weak_dictionary_that_the_program_reads_loses_the_object_at_the_write(is_seen: bool) -> None:
    held: Any = weakref.WeakValueDictionary()

    def program(x: torch.Tensor, state: State) -> torch.Tensor:
        state.o = None
        return x * len(held) if is_seen else x * 2

    state = State()
    state.o = held["k"] = Node()
    compiled = thunder.jit(program)
    if is_seen:
        with pytest.raises(thunder.UnsupportedProgram, match="at the write"):
            compiled(torch.ones(()), state)
    else:
        assert compiled(torch.ones(()), state) == 2
        assert len(held) == 0
