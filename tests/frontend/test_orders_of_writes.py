"""The order in which a program writes, where Python shows it: names in dictionaries, iterators of lists."""

from __future__ import annotations

import itertools
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in

#: what is done with a name: set, deleted, read; a name that is absent is only set
Step = tuple[str, str]


def steps_of(seed: int, names: str = "abcd", present: str = "ab") -> list[Step]:
    """Return random steps of which each is possible after those before."""
    chosen, there, steps = random.Random(seed), set(present), []
    for _ in range(chosen.randint(3, 8)):
        name = chosen.choice(names)
        act = chosen.choice(("set", "delete", "read")) if name in there else "set"
        steps.append((act, name))
        (there.discard if act == "delete" else there.add)(name)
    return steps


def program_of_steps(steps: list[Step], texts: dict[str, str], declares: str = "pass") -> Callable[..., Any]:
    """Return a function with these steps, written for one kind of names."""
    lines = [texts[act].format(name=name, value=i + 10) for i, (act, name) in enumerate(steps)]
    body = "\n    ".join((declares, "seen = []", *lines, "return x * (1 + sum(seen))"))
    namespace: dict[str, Any] = {"a": 1, "b": 2}
    exec(f"def program(x, o):\n    {body}", namespace)
    program: Callable[..., Any] = namespace["program"]
    return program


ATTRIBUTES = {"set": "o.{name} = {value}", "delete": "del o.{name}", "read": "seen.append(o.{name})"}
ITEMS = {"set": "o['{name}'] = {value}", "delete": "del o['{name}']", "read": "seen.append(o['{name}'])"}
BY_DICT = {
    "set": "vars(o)['{name}'] = {value}",
    "delete": "vars(o).pop('{name}')",
    "read": "seen.append(vars(o)['{name}'])",
}
VARIABLES = {"set": "{name} = {value}", "delete": "del {name}", "read": "seen.append({name})"}
KINDS: dict[str, tuple[dict[str, str], str, Callable[[], Any]]] = {
    "attributes": (ATTRIBUTES, "pass", lambda: types.SimpleNamespace(a=1, b=2)),
    "class attributes": (ATTRIBUTES, "pass", lambda: type("Kind", (), {"a": 1, "b": 2})),
    "items": (ITEMS, "pass", lambda: {"a": 1, "b": 2}),
    "attributes by dict": (BY_DICT, "pass", lambda: types.SimpleNamespace(a=1, b=2)),
    "globals": (VARIABLES, "global a, b, c, d", lambda: None),
    "module attributes": (ATTRIBUTES, "pass", lambda: types.ModuleType("written")),
}


def names_of(o: Any, program: Any) -> list[tuple[str, Any]]:
    held = program.__globals__ if o is None else o if isinstance(o, dict) else vars(o)
    return [(name, value) for name, value in held.items() if name in tuple("abcd")]


@pytest.mark.parametrize(("kind", "seed"), one_in(17, itertools.product(KINDS, range(30))))
def test_names_are_in_the_order_of_the_program(kind: str, seed: int) -> None:
    texts, declares, make = KINDS[kind]
    steps = steps_of(seed)

    def run(compiles: bool) -> list[Any]:
        program, o = program_of_steps(steps, texts, declares), make()
        if kind == "module attributes":
            o.a, o.b = 1, 2
        call = thunder.jit(program) if compiles else program
        seen = []
        for _ in range(2):
            try:
                seen.append(float(call(torch.ones(()), o)))
            except (NameError, AttributeError, KeyError) as error:
                seen.append(type(error))
            seen.append(names_of(o, program))
        return seen

    assert run(True) == run(False), steps


ITERATORS: dict[str, Callable[[list[int]], Any]] = {
    "iter": iter,
    "enumerate": enumerate,
    "reversed": reversed,
    "zip": lambda xs: zip(xs, xs, strict=False),
    "cycle": itertools.cycle,
}
CHANGES: dict[str, Callable[[list[int], Any], object]] = {
    "next": lambda xs, iterator: next(iterator, None),
    "append": lambda xs, iterator: xs.append(len(xs)),
    "insert": lambda xs, iterator: xs.insert(0, 50),
    "pop": lambda xs, iterator: xs.pop() if xs else None,
    "clear": lambda xs, iterator: xs.clear(),
    "item": lambda xs, iterator: xs.__setitem__(slice(0, 1), [70]),
}


@pytest.mark.parametrize(("kind", "seed"), one_in(17, itertools.product(ITERATORS, range(30))))
def test_an_iterator_is_where_the_program_left_it(kind: str, seed: int) -> None:
    chosen = random.Random(seed)
    changes = [CHANGES[chosen.choice(("next", *CHANGES))] for _ in range(chosen.randint(2, 5))]

    def program(x: torch.Tensor, xs: list[int], iterator: Any) -> torch.Tensor:
        for change in changes:
            change(xs, iterator)
        return x + len(xs)

    def run(compiles: bool) -> list[Any]:
        xs = [1, 2, 3]
        iterator, call = ITERATORS[kind](xs), thunder.jit(program) if compiles else program
        seen: list[Any] = []
        for _ in range(2):
            seen += [float(call(torch.ones(()), xs, iterator)), list(xs)]
        xs += [100, 101, 102, 103]
        return [*seen, [next(iterator, None) for _ in range(9)]]

    try:
        found = run(True)
    except thunder.UnsupportedProgram as error:
        found = str(error)
    assert "shortens the list" in found or "consuming" in found or found == run(False), seed
