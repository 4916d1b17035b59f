"""Programs that change what they read: functions that fill a cache, imports, and questions about both."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from new_processes import run_python

X = torch.tensor([1.0, 2.0])
WORLD = types.SimpleNamespace()
NUMBER = 1.0


class Member:
    """A class with an attribute, and an object of it."""

    number = 1.0


def fresh() -> None:
    """Make the state that the programs read."""
    global NUMBER
    WORLD.__dict__.clear()
    WORLD.number, WORLD.items, WORLD.table, WORLD.names = 1.0, [1.0], {"a": 1.0}, {"a"}
    WORLD.ordered, WORLD.queue, WORLD.inner = OrderedDict(a=1.0), deque([1.0]), types.SimpleNamespace(n=1.0)
    WORLD.pair = (1.0, [1.0])
    Member.number = NUMBER = 1.0


def change() -> None:
    """Change all of it."""
    global NUMBER
    WORLD.number, WORLD.new = 3.0, 4.0
    WORLD.items.append(5.0)
    WORLD.items[0] = 2.0
    WORLD.table.update(a=2.0, b=7.0)
    WORLD.names.add("b")
    WORLD.ordered["b"] = 1.0
    WORLD.ordered.move_to_end("a")
    WORLD.queue.append(6.0)
    WORLD.inner = types.SimpleNamespace(n=9.0)
    WORLD.pair[1].append(2.0)
    Member.number = NUMBER = 8.0


READS: dict[str, Callable[[], float]] = {
    "attribute": lambda: WORLD.number,
    "new attribute": lambda: getattr(WORLD, "new", 0.5),
    "item of a list": lambda: WORLD.items[0],
    "length of a list": lambda: len(WORLD.items),
    "sum of a list": lambda: sum(WORLD.items),
    "item of a dict": lambda: WORLD.table["a"],
    "keys of a dict": lambda: len(list(WORLD.table)),
    "key of a dict": lambda: 1.0 + ("b" in WORLD.table),
    "set": lambda: len(WORLD.names),
    "order": lambda: 1.0 + (next(iter(WORLD.ordered)) == "b"),
    "deque": lambda: WORLD.queue[-1],
    "object that is replaced": lambda: WORLD.inner.n,
    "list in a tuple": lambda: len(WORLD.pair[1]),
    "class": lambda: Member.number,
    "object of a class": lambda: Member().number,
    "global": lambda: NUMBER,
}


def filling() -> Callable[[str], str]:
    """Return a function under a cache that changes the state when it runs."""

    @functools.cache
    def fill(name: str) -> str:
        change()
        return name

    return fill


def before(x: torch.Tensor, read: Callable[[], float], fill: Callable[[str], str]) -> torch.Tensor:
    factor = read()
    fill("a")
    return x * factor


def after(x: torch.Tensor, read: Callable[[], float], fill: Callable[[str], str]) -> torch.Tensor:
    fill("a")
    return x * read()


def around(x: torch.Tensor, read: Callable[[], float], fill: Callable[[str], str]) -> torch.Tensor:
    factor = read()
    fill("a")
    return x * (read() - factor) + x


def unused(x: torch.Tensor, read: Callable[[], float], fill: Callable[[str], str]) -> torch.Tensor:
    read()
    fill("a")
    return x * 2


def compare(program: Callable[[torch.Tensor], Any], make: Callable[[], Any], calls: int = 3) -> Any:
    """Compare calls from the same beginning with eager; return the compiled program."""
    made = make()
    expected = [program(X, *made) for _ in range(calls)]
    made, compiled = make(), thunder.jit(program)
    for wanted in expected:
        assert torch.equal(compiled(X, *made), wanted)
    return compiled


@pytest.mark.parametrize("program", [before, after, around, unused], ids=lambda p: p.__name__)
@pytest.mark.parametrize("read", READS)
def test_reads_around_a_function_that_fills_a_cache_are_eagers(program: Any, read: str) -> None:
    def make() -> tuple[Any, ...]:
        fresh()
        return READS[read], filling()

    compiled = compare(program, make)
    assert thunder.cache_misses(compiled) <= 2


def test_a_program_that_does_not_depend_on_the_change_is_compiled_once() -> None:
    def make() -> tuple[Any, ...]:
        fresh()
        return READS["keys of a dict"], filling()

    assert thunder.cache_misses(compare(unused, make)) == 1


def test_what_a_program_writes_after_the_change_is_added_to_it() -> None:
    def program(x: torch.Tensor, fill: Any) -> torch.Tensor:
        count = len(WORLD.items)
        fill("a")
        WORLD.items.append(count)
        WORLD.table["c"] = WORLD.table["a"] + count
        return x * len(WORLD.items) * sum(WORLD.table.values())

    def make() -> tuple[Any, ...]:
        fresh()
        return (filling(),)

    compare(program, make, calls=1)
    assert (WORLD.items, WORLD.table) == ([2.0, 5.0, 1], {"a": 2.0, "b": 7.0, "c": 3.0})


def test_python_runs_the_call_whose_writes_the_change_may_see() -> None:
    def program(x: torch.Tensor, fill: Any) -> torch.Tensor:
        WORLD.table["c"] = 1.0
        fill("a")
        return x * len(WORLD.table)

    def make() -> tuple[Any, ...]:
        fresh()
        return (filling(),)

    compiled = compare(program, make)
    assert thunder.compile_stats(compiled).runs_by_python == 1


def test_no_call_is_guessed_that_python_would_begin_after_a_change() -> None:
    fresh()
    first, second = filling(), filling()

    def program(x: torch.Tensor) -> torch.Tensor:
        count = len(WORLD.names)
        first("a")
        WORLD.table["c"] = 1.0
        second("a")
        return x * count

    with pytest.raises(thunder.UnsupportedProgram, match=r"which the program ha(s written before|d read)"):
        thunder.jit(program)(X)


def test_gradients_of_the_first_call_are_of_its_own_program() -> None:
    results = []
    for wrap in (lambda f: f, thunder.jit):
        fresh()
        program, fill = wrap(before), filling()
        for _ in range(3):
            x = X.clone().requires_grad_()
            program(x, READS["attribute"], fill).sum().backward()
            results.append(x.grad)
    assert all(map(torch.equal, results[:3], results[3:]))


# -- imports -------------------------------------------------------------------------------------------------


@pytest.fixture
def registering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module `registering_module`, whose import changes the state."""
    (tmp_path / "registering_module.py").write_text(f"import {__name__} as world; world.change()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    yield
    sys.modules.pop("registering_module", None)


@pytest.mark.parametrize("read", [*READS, "loaded modules"])
def test_reads_around_an_import_are_eagers(read: str, registering: None) -> None:
    reads = {**READS, "loaded modules": lambda: 1.0 + ("registering_module" in sys.modules)}

    def program(x: torch.Tensor, read: Callable[[], float]) -> torch.Tensor:
        factor = read()
        import registering_module  # noqa: F401

        return x * factor - read()

    def make() -> tuple[Any, ...]:
        fresh()
        sys.modules.pop("registering_module", None)
        return (reads[read],)

    assert thunder.cache_misses(compare(program, make)) <= 2


LOOKUPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "in": lambda x: x * (2 if "made_up" in sys.modules else 3),
    "not in": lambda x: x * (2 if "made_up" not in sys.modules else 3),
    "get": lambda x: x * (2 if sys.modules.get("made_up") is None else 3),
    "item": lambda x: x * (2 if sys.modules["made_up"] is torch else 3),
    "all": lambda x: x * (2 if "made_up" in list(sys.modules) else 3),
}


def _answer(program: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    try:
        return program(X).tolist()
    except (KeyError, ImportError) as error:
        return type(error), error.args


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_look_into_the_loaded_modules_depends_on_what_it_looks_for(
    lookup: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = LOOKUPS[lookup]
    compiled = thunder.jit(program)
    for name in ("made_up", "another", None, "made_up"):
        monkeypatch.delitem(sys.modules, "made_up", raising=False)
        if name is not None:
            monkeypatch.setitem(sys.modules, name, torch)
        assert _answer(compiled) == _answer(program)


def test_an_import_between_calls_is_no_reason_for_a_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = thunder.jit(LOOKUPS["in"])
    for name in ("one", "two"):
        compiled(X)
        monkeypatch.setitem(sys.modules, name, torch)
    assert thunder.cache_misses(compiled) == 1


FINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a module that is there": lambda x: x * (2 if importlib.util.find_spec("json.tool") else 3),
    "no module": lambda x: x * (2 if importlib.util.find_spec("made_up_module") else 3),
    "a module of no package": lambda x: x * (2 if importlib.util.find_spec("made_up_package.part") else 3),
    "a version": lambda x: x * len(importlib.metadata.version("torch")),
    "no version": lambda x: x * len(importlib.metadata.version("made_up_module")),
}


@pytest.mark.parametrize("find", FINDS)
def test_questions_about_installed_modules_have_eagers_answers(
    find: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = FINDS[find]
    compiled = thunder.jit(program)
    assert [_answer(compiled) for _ in range(2)] == [_answer(program)] * 2
    for name in ("made_up_module.py", "made_up_package/__init__.py", "made_up_package/part.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "made_up_module-1.0.dist-info").mkdir()
    (tmp_path / "made_up_module-1.0.dist-info" / "METADATA").write_text(
        "Name: made_up_module\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [_answer(compiled) for _ in range(2)] == [_answer(program)] * 2
    sys.modules.pop("made_up_package", None)


# -- identities ----------------------------------------------------------------------------------------------


class ById:
    """A key that is hashed by its id, and compared so."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __hash__(self) -> int:
        return hash((id(self), 1))

    def __eq__(self, other: object) -> bool:
        return id(self) == id(other)


def test_keys_that_are_hashed_by_their_ids_are_keys() -> None:
    keys = [ById(2.0), ById(3.0)]
    table = {key: key.factor for key in keys}
    chosen = [keys[0]]

    def program(x: torch.Tensor) -> Any:
        own = ById(5.0)
        seen = {own, chosen[0], ById(7.0)}
        return (
            x * table[chosen[0]] * len(seen),
            own in seen,
            ById(1.0) in seen,
            keys[1] in seen,
            sorted(key.factor for key in seen),
        )

    compiled = thunder.jit(program)
    for key in (keys[0], keys[1], keys[0]):
        chosen[0] = key
        actual, wanted = compiled(X), program(X)
        assert torch.equal(actual[0], wanted[0])
        assert actual[1:] == wanted[1:]


def test_ids_of_objects_outside_of_the_arguments_are_their_ids() -> None:
    table, holder = {}, [ById(1.0)]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if id(holder[0]) == expected else 3) * (5 if id(table) == id(holder) else 7)

    compiled = thunder.jit(program)
    expected = id(holder[0])
    for _ in range(2):
        assert torch.equal(compiled(X), program(X))
        holder[0] = ById(1.0)


def test_the_id_of_what_the_program_creates_is_no_number() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=r"id\(\) differs"):
        thunder.jit(lambda x: x * (hash(ById(2.0)) % 7))(X)


# -- in a new process ----------------------------------------------------------------------------------------

REGISTRY = """
import functools, sys
import torch, thunder

class Backend:
    loaded = {}
    by_type = {}

    def __init__(self):
        import colorsys
        self.factor = 2.0 if colorsys else 3.0

def backend_of(tensor):
    found = Backend.by_type.get(type(tensor))
    if found is not None:
        return found
    for name in ("torch", "a_framework"):
        if name not in Backend.loaded and name in sys.modules:
            Backend.loaded[name] = Backend()
    found = Backend.by_type[type(tensor)] = Backend.loaded["torch"]
    return found

@functools.lru_cache(256)
def recipe(pattern, ndim):
    import bisect, uuid
    return list(range(ndim))[::-1]

def program(x):
    return x.permute(recipe("a b c", x.ndim)) * backend_of(x).factor

x = torch.arange(24.0).reshape(2, 3, 4)
compiled = thunder.jit(program)
for _ in range(3):
    assert torch.equal(compiled(x), x.permute(2, 1, 0) * 2)
assert thunder.cache_misses(compiled) <= 2
"""


def test_a_library_that_loads_and_registers_at_its_first_call_needs_no_call_before() -> None:
    done = run_python("-c", REGISTRY)
    assert done.returncode == 0, done.stderr
