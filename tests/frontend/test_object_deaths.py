"""Objects of the caller that a program overwrites: what their death runs is seen as in eager, or refused."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Result = tuple[torch.Tensor, list[str]]


class Node:
    """An object that others may watch."""

    def __init__(self) -> None:
        self.child: Any = None


class Logged(Node):
    """An object that says when it dies."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def __del__(self) -> None:
        self.log.append("died")


class State:
    """What a program writes; one of the places holds the object."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.o: Any = None
        self.items: list[Any] = [None]
        self.table: dict[str, Any] = {"k": None}
        self.watch: Any = None


def with_reference(state: State) -> Node:
    node, log = Node(), state.log
    state.watch = weakref.ref(node, lambda _: log.append("died"))
    return node


def with_finalizer(state: State) -> Node:
    node = Node()
    weakref.finalize(node, state.log.append, "died")
    return node


WATCHED: dict[str, Callable[[State], Node]] = {
    "reference": with_reference,
    "finalizer": with_finalizer,
    "method": lambda state: Logged(state.log),
}


def put_attribute(state: State, value: Any) -> None:
    state.o = value


def put_item(state: State, value: Any) -> None:
    state.items[0] = value


def put_value(state: State, value: Any) -> None:
    state.table["k"] = value


def overwrite(state: State) -> None:
    state.o = None


def delete(state: State) -> None:
    del state.o


def pop(state: State) -> None:
    state.items.pop()


def clear(state: State) -> None:
    state.items.clear()


def replace(state: State) -> None:
    state.items[0] = 3


def pop_value(state: State) -> None:
    state.table.pop("k")


def delete_value(state: State) -> None:
    del state.table["k"]


RELEASES = [
    (put_attribute, overwrite),
    (put_attribute, delete),
    (put_item, pop),
    (put_item, clear),
    (put_item, replace),
    (put_value, pop_value),
    (put_value, delete_value),
]


def program_of(release: Callable[[State], None]) -> Callable[[torch.Tensor, State], torch.Tensor]:
    def program(x: torch.Tensor, state: State) -> torch.Tensor:
        release(state)
        died = len(state.log)
        state.log.append("program")
        return x * (died + 1)

    return program


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("watched", WATCHED)
@pytest.mark.parametrize(("put", "release"), RELEASES, ids=lambda f: f.__name__)
def test_what_runs_when_an_overwritten_object_dies_is_seen_in_each_call(
    put: Any, release: Any, watched: str, nested: bool
) -> None:
    program = program_of(release)
    compiled = thunder.jit(program, executors="torch")

    def run(call: Any, make: Callable[[State], Node]) -> Result:
        state, holder = State(), Node()
        holder.child = made = make(state)
        put(state, holder if nested else made)
        del holder, made
        return call(torch.ones(()), state), state.log

    for _ in range(2):  # an object that nobody watches
        assert run(compiled, lambda state: Node()) == run(program, lambda state: Node())
    assert thunder.cache_misses(compiled) == 1
    assert run(program, WATCHED[watched]) == (torch.tensor(2.0), ["died", "program"])
    with pytest.raises(thunder.UnsupportedProgram, match="at the write"):
        run(compiled, WATCHED[watched])


def rotate(state: State) -> Any:
    state.items.append(state.items.pop(0))


def hand_over(state: State) -> Any:
    state.o = state.items.pop()


def return_it(state: State) -> Any:
    return state.items.pop()


@pytest.mark.parametrize("watched", WATCHED)
@pytest.mark.parametrize("move", [rotate, hand_over, return_it])
def test_what_a_program_moves_does_not_die(move: Callable[[State], Any], watched: str) -> None:
    def program(x: torch.Tensor, state: State) -> Any:
        return x * 2, move(state)

    seen = []
    for call in (program, thunder.jit(program)):
        state = State()
        state.items[0] = WATCHED[watched](state)
        _, moved = call(torch.ones(()), state)
        seen.append((list(state.log), len(state.items), state.o is None, moved is None))
        del state.log[:]
    assert seen[0] == seen[1]
    assert seen[0][0] == []


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
