"""The order in which a program writes, where one sees it: names, iterators, tensors, descriptors."""

from __future__ import annotations

import itertools
import random
import re
import types
import warnings
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


#: what is done to a tensor of the caller; later ones fail or mean another thing before earlier ones
TO_TENSOR: dict[str, Callable[[torch.Tensor, list[float]], object]] = {
    "unsqueeze_": lambda t, seen: t.unsqueeze_(0),
    "transpose_": lambda t, seen: t.transpose_(0, -1),
    "detach_": lambda t, seen: t.detach_(),
    "requires_grad_": lambda t, seen: t.requires_grad_(),
    "grad": lambda t, seen: setattr(t, "grad", torch.full_like(t, 2.0).detach()),
    "no grad": lambda t, seen: setattr(t, "grad", None),
    "data": lambda t, seen: setattr(t, "data", torch.full_like(t, 5.0).detach()),
    "hook": lambda t, seen: t.register_hook(lambda g: seen.append(float(g.sum()))),
    "attribute": lambda t, seen: setattr(t, "kind", len(t.shape)),
}
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(2, 3),
    "leaf": lambda: torch.ones(2, 3, requires_grad=True),
    "computed": lambda: torch.ones(2, 3, requires_grad=True) * 2,
}


@pytest.mark.parametrize(("kind", "seed"), one_in(17, itertools.product(TENSORS, range(80))))
def test_a_tensor_is_as_the_program_left_it(kind: str, seed: int) -> None:
    chosen = random.Random(seed)
    changes = [TO_TENSOR[chosen.choice([*TO_TENSOR])] for _ in range(chosen.randint(2, 5))]

    def run(compiles: bool) -> list[Any]:
        seen: list[float] = []

        def program(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            for change in changes:
                change(t, seen)
            return x + len(t.shape)

        t, call = TENSORS[kind](), thunder.jit(program) if compiles else program
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of the gradient of a tensor that is not a leaf
            result = call(torch.ones(()), t)
            if t.requires_grad:
                (t * 2).sum().backward()
            gradient = None if t.grad is None else t.grad.tolist()
        return [float(result), t.tolist(), t.is_leaf, t.requires_grad, gradient, vars(t), sorted(seen)]

    try:
        expected = run(False)
    except RuntimeError as error:
        with pytest.raises(
            (RuntimeError, thunder.UnsupportedProgram), match=re.escape(str(error)[:20]) + "|the"
        ):
            run(True)
        return
    try:
        found = run(True)
    except thunder.UnsupportedProgram:
        return
    assert found == expected, seed


class Logging:
    """A descriptor that would get what is written to an object, if its class had it then."""

    def __get__(self, obj: Any, owner: Any) -> Any:
        return self if obj is None else 7

    def __set__(self, obj: Any, value: Any) -> None:
        obj.seen.append(value)

    def __delete__(self, obj: Any) -> None:
        obj.seen.append("deleted")


WITH_CLASS: dict[str, Callable[[Any, type], object]] = {
    "set": lambda o, cls: setattr(o, "a", 1),
    "set again": lambda o, cls: setattr(o, "a", 2),
    "delete": lambda o, cls: delattr(o, "a"),
    "descriptor": lambda o, cls: setattr(cls, "a", DESCRIPTOR),
    "no descriptor": lambda o, cls: delattr(cls, "a"),
    "number": lambda o, cls: setattr(cls, "a", 5),
    "other": lambda o, cls: setattr(o, "b", 3),
}
DESCRIPTOR = Logging()


def changes_of(seed: int) -> tuple[str, ...]:
    chosen = random.Random(seed)
    return tuple(chosen.choice([*WITH_CLASS]) for _ in range(chosen.randint(2, 6)))


#: writes to an object before, after and between those to its class
ORDERS = [
    ("with", ("no descriptor", "set")),
    ("with", ("other", "no descriptor", "set", "descriptor")),
    ("with", ("no descriptor", "set", "delete")),
    ("without", ("number", "set", "descriptor")),
]


@pytest.mark.parametrize(
    ("kind", "names"),
    [*ORDERS, *one_in(17, itertools.product(("without", "with"), map(changes_of, range(80))))],
)
def test_a_descriptor_gets_what_it_got_in_the_program(kind: str, names: tuple[str, ...]) -> None:
    changes = [WITH_CLASS[name] for name in names]

    def program(x: torch.Tensor, o: Any, cls: type) -> torch.Tensor:
        for change in changes:
            try:
                change(o, cls)
            except AttributeError:
                x = x + 1
        return x

    def run(compiles: bool) -> list[Any]:
        cls: Any = type("Kind", (), {"a": DESCRIPTOR} if kind == "with" else {})
        o, call = cls(), thunder.jit(program) if compiles else program
        o.seen = []
        result = float(call(torch.ones(()), o, cls))
        return [result, vars(o), vars(cls).get("a"), float(call(torch.ones(()), o, cls)), vars(o)]

    assert run(True) == run(False), names
