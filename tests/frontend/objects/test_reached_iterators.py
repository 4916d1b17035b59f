"""Iterators and generators of the user that a program advances: they are left where eager leaves them."""

from __future__ import annotations

import copy
import io
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

X = torch.tensor([1.0, 2.0])


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def left(fn: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call, and what its iterators then have left."""
    result = plain(fn(X, *args))
    return result, [plain(list(arg)) for arg in args if hasattr(arg, "__next__")]


def check(fn: Callable[..., Any], *makers: Callable[[], Any], misses: int = 1) -> Any:
    """Compare with eager, for a call with the arguments of each maker; return the compiled function."""
    compiled = thunder.jit(fn)
    for make in makers:
        assert left(compiled, make()) == left(fn, make())
    assert thunder.cache_misses(compiled) == misses
    return compiled


def taken(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    return [next(iterator) for _ in range(count)] and iterator


@pytest.mark.parametrize(
    "make",
    [
        lambda: iter([2.0, 3.0, 4.0]),
        lambda: iter((2.0, torch.ones(2), 4.0)),
        lambda: iter(range(3)),
        lambda: reversed([1, 2, 3]),
    ],
)
def test_an_iterator_over_elements_is_advanced(make: Callable[[], Any]) -> None:
    check(lambda x, it: x * next(it), make, make)
    check(lambda x, it: [x * v for v in it], make, make)
    check(lambda x, it: (next(it), [x * a for a, _ in zip(it, it, strict=False)]), make, make)


def test_the_position_and_the_elements_are_facts() -> None:
    check(
        lambda x, it: x * next(it),
        lambda: iter([2.0, 3.0]),
        lambda: taken(iter([2.0, 3.0]), 1),
        lambda: iter([5.0, 3.0]),
        lambda: iter([2.0, 3.0]),
        misses=3,
    )


def test_tensors_of_an_iterator_are_inputs() -> None:
    check(
        lambda x, it: x * next(it),
        lambda: iter([torch.ones(2), torch.ones(3)]),
        lambda: iter([torch.zeros(2), torch.ones(3)]),
    )


def test_enumerate_and_zip_advance_their_iterators() -> None:
    def pairs(x: torch.Tensor, it: Any, other: Any) -> Any:
        return [x * b for _, b in itertools.islice(it, 2)], next(other)

    compiled = thunder.jit(pairs)
    for _ in range(2):
        results = []
        for fn in (compiled, pairs):
            a, b = iter([1.0, 2.0, 3.0, 4.0]), iter([5.0, 6.0, 7.0])
            results.append((*left(fn, zip(a, b, strict=False), enumerate([8.0, 9.0], 3)), list(a), list(b)))
        assert results[0] == results[1]
    assert thunder.cache_misses(compiled) == 1


def test_an_iterator_of_a_module_and_one_that_the_list_outgrows() -> None:
    class Schedule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = [1.0]
            self.steps = iter(self.values)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * next(self.steps)
            self.values.append(2.0)
            return y

    module, eager = Schedule(), Schedule()
    compiled = thunder.jit(module)
    for _ in range(3):
        assert torch.equal(compiled(X), eager(X))
    assert next(module.steps) == next(eager.steps)


def test_two_iterators_are_not_one() -> None:
    for make in (lambda: iter([1.0, 2.0]), itertools.count):
        compiled = thunder.jit(lambda x, a, b: (x * next(a), next(b)))
        compiled(X, make(), make())
        one = make()
        second = next(taken(make(), 1))
        assert compiled(X, one, one)[1] == second


def test_an_object_with_next_in_python_is_interpreted() -> None:
    class Countdown:
        def __init__(self) -> None:
            self.n = 3

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.n -= 1
            if not self.n:
                raise StopIteration
            return self.n

    check(lambda x, it: x * next(it), Countdown, Countdown)


def test_a_generator_that_is_consumed_is_a_part_of_the_program() -> None:
    seen: list[float] = []

    def scaled(values: list[float], *more: float, by: float = 1.0) -> Iterator[float]:
        for value in (*values, *more):
            seen.append(value)
            yield value * by

    def total(x: torch.Tensor, values: Any) -> Any:
        return x * sum(values), next(values, None)

    compiled = thunder.jit(total)
    for by in (2.0, 2.0, 3.0):
        counts = []
        for fn in (compiled, total):
            seen.clear()
            counts.append((left(fn, scaled([1.0, 2.0], 3.0, by=by)), list(seen)))
        assert counts[0] == counts[1]
    assert thunder.cache_misses(compiled) == 2


def test_the_variables_of_a_generator_are_facts() -> None:
    def made(scale: float) -> Iterator[float]:
        return (scale * v for v in [1.0, 2.0])

    check(lambda x, it: x * sum(it), lambda: made(1.0), lambda: made(1.0), lambda: made(2.0), misses=2)


def test_parameters_of_a_module_as_an_argument() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))

    def norms(parameters: Any) -> Any:
        return sum(p.norm() for p in parameters)

    compiled = thunder.jit(norms)
    for scale in (1.0, 2.0):
        with torch.no_grad():
            model[0].weight.mul_(scale)
        assert torch.equal(compiled(model.parameters()), norms(model.parameters()))
    assert thunder.cache_misses(compiled) == 1
    compiled(model.parameters()).backward()
    assert model[1].weight.grad is not None


def test_a_generator_that_raises_has_ended() -> None:
    def failing() -> Iterator[float]:
        yield 1.0
        raise ValueError("no more")

    def fn(x: torch.Tensor, values: Any) -> Any:
        try:
            return [x * v for v in values]
        except ValueError as error:
            return str(error)

    check(fn, failing, failing)


def test_a_generator_that_is_passed_on_or_not_used_is_left_alone() -> None:
    generator = (v for v in [1.0, 2.0])
    compiled = thunder.jit(lambda x, it: (x, it))
    assert compiled(X, generator)[1] is generator
    assert compiled(X, generator)[1] is generator
    assert list(generator) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: io.StringIO("1"), "is of type StringIO, which can be read only by consuming it"),
        (lambda: itertools.groupby([1.0, 2.0]), "returns an object of type _grouper"),
        (lambda: iter({torch.ones(1, requires_grad=True)}), "yields a leaf that requires grad"),
    ],
)
def test_what_cannot_be_advanced_as_eager_does_is_refused(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(UnsupportedProgram, match=match) as error:
        thunder.jit(lambda x, it: (next(it), x))(X, make())
    assert error.value.hint


SCALES = {"a": 2.0}


def scaled(value: Any) -> Any:
    return value * SCALES["a"]


def is_large(value: float) -> bool:
    return value > SCALES["a"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: map(scaled, [1.0, 2.0, 3.0]),
        lambda: taken(map(scaled, [1.0, 2.0, 3.0]), 1),
        lambda: map(operator.mul, [1.0, 2.0, 3.0], iter([4.0, 5.0, 6.0])),
        lambda: filter(is_large, [1.0, 3.0, 2.0, 4.0, 5.0]),
        lambda: taken(filter(None, [1.0, 0.0, 3.0, 2.0]), 1),
        lambda: map(scaled, filter(is_large, [torch.ones(()), torch.full((), 4.0), torch.full((), 5.0)])),
    ],
)
def test_a_map_and_a_filter_are_advanced(make: Callable[[], Any]) -> None:
    check(lambda x, it: x * next(it), make, make)
    check(lambda x, it: [x * v for v in it], make, make)


def test_what_the_function_of_a_map_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    elements = [1.0, 2.0, 3.0]

    def program(x: Any, it: Any) -> Any:
        return x * next(it)

    compiled = thunder.jit(program)
    for scale in (2.0, 2.0, 5.0):
        monkeypatch.setitem(SCALES, "a", scale)
        assert left(compiled, map(scaled, elements)) == left(program, map(scaled, elements))
    assert thunder.cache_misses(compiled) == 2
    elements[0] = 7.0
    assert left(compiled, map(scaled, elements)) == left(program, map(scaled, elements))


def with_source(make: Callable[[Any], Any], *values: Any) -> tuple[Any, Any]:
    """Return an iterator, and the one that it advances."""
    source = iter(values)
    return make(source), source


def twice(iterator: Any) -> tuple[Any, Any]:
    return iterator, iterator


def begun_and_copied() -> tuple[Any, Any]:
    """Return two cycles that share what they advance and what they keep."""
    first = taken(itertools.cycle([2.0, 3.0, 4.0]), 1)
    return first, copy.copy(first)


def below_three(value: float) -> bool:
    return value < 3.0


IN_ITERTOOLS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "cycle": lambda: (itertools.cycle([2.0, 3.0, 4.0]), itertools.cycle(range(1, 3))),
    "cycle of tensors": lambda: (itertools.cycle([torch.ones(2), torch.zeros(2)]), itertools.cycle("ab")),
    "cycle of one": lambda: (itertools.cycle((5.0,)), itertools.cycle([])),
    "cycle and its source": lambda: with_source(itertools.cycle, 2.0, 3.0, 4.0, 5.0),
    "one cycle twice": lambda: twice(itertools.cycle([2.0, 3.0, 4.0])),
    "cycles with one list": begun_and_copied,
    "repeat": lambda: (itertools.repeat(2.0, 5), itertools.repeat(torch.ones(2))),
    "starmap": lambda: with_source(lambda it: itertools.starmap(operator.mul, it), (1.0, 2.0), (3.0, 4.0)),
    "takewhile": lambda: with_source(lambda it: itertools.takewhile(below_three, it), 1.0, 5.0, 2.0, 6.0),
    "dropwhile": lambda: with_source(lambda it: itertools.dropwhile(below_three, it), 1.0, 5.0, 2.0, 6.0),
    "filterfalse": lambda: with_source(lambda it: itertools.filterfalse(None, it), 1.0, 0.0, 2.0, 0.0),
    "compress": lambda: with_source(
        lambda it: itertools.compress(it, itertools.cycle([1, 0])), 1.0, 2.0, 3.0
    ),
}


#: those with a state that CPython 3.14 does not tell, or that the test copies
WITH_STATE = ("cycle and its source", "cycles with one list", "takewhile", "dropwhile", "compress")
tells_state = pytest.mark.skipif(
    "__reduce__" not in vars(itertools.cycle), reason="this CPython does not tell the state of the iterator"
)


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=tells_state if name in WITH_STATE else ()) for name in IN_ITERTOOLS]
)
def test_iterators_of_itertools_are_left_where_eager_leaves_them(name: str, raises: bool) -> None:
    def program(x: torch.Tensor, it: Any, other: Any) -> Any:
        found = [x, *(next(it, None) for _ in range(2)), next(other, None)]
        if raises:
            raise ValueError(str(len(found)))
        return found

    def states(fn: Callable[..., Any]) -> Iterator[Any]:
        it, other = IN_ITERTOOLS[name]()
        for by_caller in (0, 2, 1, 0, 1):
            try:
                yield plain(fn(X, it, other))
            except ValueError as error:
                yield str(error)
            yield plain([next(it, None) for _ in range(by_caller)])
        yield plain([*itertools.islice(it, 5), *itertools.islice(other, 5)])

    assert list(states(thunder.jit(program))) == list(states(program))


def test_what_a_cycle_keeps_and_iterates_is_guarded() -> None:
    def program(x: Any, it: Any) -> Any:
        return x * next(it)

    compiled = thunder.jit(program)
    for start in (1, 2, 4, 5, 7):
        for values in ([2.0, 3.0, 4.0], [2.0, 3.0, 5.0], [6.0, 3.0, 4.0], [2.0, 3.0], [2.0, 3.0, 4.0]):
            cycles = [taken(itertools.cycle(values), start) for _ in range(2)]
            assert plain(compiled(X, cycles[0])) == plain(program(X, cycles[1]))
            assert list(itertools.islice(cycles[0], 5)) == list(itertools.islice(cycles[1], 5))


@tells_state
def test_a_cycle_of_a_module_compiles_once_for_each_position() -> None:
    class Alternating(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scales = itertools.cycle([torch.ones(2), torch.zeros(2)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * next(self.scales)

    module, eager = Alternating(), Alternating()
    compiled = thunder.jit(module)
    for _ in range(9):
        assert torch.equal(compiled(X), eager(X))
    assert thunder.cache_misses(compiled) == 5  # three until it keeps all, and two from then on


@pytest.mark.parametrize("make", [iter, reversed, enumerate])
def test_a_list_that_is_shortened_below_its_iterator_is_refused(make: Callable[[Any], Any]) -> None:
    def shortens(x: torch.Tensor, it: Any, values: list[float]) -> Any:
        taken = [next(it), next(it)]
        values.clear()
        return x, taken

    values = [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(UnsupportedProgram, match="program shortens the list of args"):
        thunder.jit(shortens)(X, make(values), values)


def test_an_iterator_past_the_end_of_a_list_that_the_caller_shortened_is_advanced() -> None:
    def left_of(fn: Callable[..., Any], *, advances: bool) -> Any:
        values = [1.0, 2.0]
        it = taken(iter(values), 2)
        values.clear()
        found = fn(X, it)[1] if advances else None
        values.extend([3.0, 4.0, 5.0])
        return found, list(it)

    for advances in (False, True):
        compiled = thunder.jit(lambda x, it: (x, next(it, None)))
        expected = left_of(lambda x, it: (x, next(it, None)), advances=advances)
        assert left_of(compiled, advances=advances) == expected
