"""Iterators and generators that a program returns or stores, at the position where it left them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

X = torch.tensor([1.0, 2.0])


def content(value: Any) -> Any:
    """Return a value in plain form; an iterator is consumed."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if hasattr(value, "__next__"):
        return type(value).__name__, [content(v) for v in value]
    return [content(v) for v in value] if isinstance(value, list | tuple) else value


def check(fn: Callable[[torch.Tensor], Any]) -> None:
    """Compare two calls with eager, of which the second runs the same entry."""
    compiled = thunder.jit(fn)
    for x in (X, X + 1):
        assert content(compiled(x)) == content(fn(x))
    assert thunder.cache_misses(compiled) == 1


def advanced(iterator: Iterator[Any]) -> Iterator[Any]:
    next(iterator)
    return iterator


def test_iterators_are_where_the_program_left_them() -> None:
    check(
        lambda x: [
            advanced(iter([x, x + 1, x + 2])),
            advanced(iter((x, x * 2))),
            advanced(enumerate([x, x + 1], 5)),
            advanced(reversed([x, x + 1])),
            advanced(iter({"a": x, "b": x + 1}.items())),
            iter({"a": x}.values()),
            advanced(iter(range(4))),
            advanced(zip([x, x], itertools.count(), strict=False)) and iter("ab"),
            zip([x, x + 1], (x, x), strict=True),
            filter(None, [0, 1]),
        ]
    )


@pytest.mark.skipif(
    "__reduce__" not in vars(itertools.chain), reason="this CPython does not tell the state of the iterator"
)
def test_iterators_of_itertools() -> None:
    check(
        lambda x: [
            advanced(itertools.chain([x, x + 1], [x + 2])),
            itertools.islice(itertools.cycle([x, x + 1]), 3),
            itertools.islice(iter([x, x + 1, x + 2]), 1, None),
            itertools.zip_longest([x], [x, x + 1]),
            itertools.repeat(x, 2),
        ]
    )


def test_an_iterator_that_does_not_tell_its_state_is_built_or_refused() -> None:
    check(lambda x: [advanced(itertools.repeat(x, 3)), itertools.starmap(int, [("3",)])])
    fn = thunder.jit(lambda x: itertools.islice([x, x + 1], 1))
    if "__reduce__" in vars(itertools.islice):
        assert [v.tolist() for v in fn(X)] == [X.tolist()]
    else:
        with pytest.raises(thunder.UnsupportedProgram, match="an object of class islice"):
            fn(X)


def test_the_function_of_a_map_runs_when_the_caller_takes_an_element() -> None:
    calls: list[float] = []

    def fn(x: torch.Tensor) -> Any:
        return map(lambda v: (calls.append(v.sum().item()), v * x)[1], [x, x + 1])

    result = thunder.jit(fn)(X)
    assert calls == []
    assert content(next(result)) == (X * X).tolist()
    assert calls == [3.0]


def test_an_iterator_with_two_names_is_one() -> None:
    def fn(x: torch.Tensor) -> Any:
        iterator = iter([x, x + 1])
        return iterator, zip(iterator, iterator, strict=True)

    first, pairs = thunder.jit(fn)(X)
    assert content(next(first)) == X.tolist()
    assert content(next(first)) == (X + 1).tolist()
    assert list(pairs) == []


def test_the_body_of_a_generator_runs_in_the_callers_hands() -> None:
    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = 0

        def steps(self, x: torch.Tensor, *more: int, scale: int = 1, **names: int) -> Iterator[Any]:
            for i in range(2):
                self.seen += 1
                yield x * i * scale + self.seen, more, names

        def forward(self, x: torch.Tensor) -> Any:
            y = x + 1
            return self.steps(y, 3, scale=2, k=4), (y * i for i in range(2))

    module, eager = Layers(), Layers()
    compiled = thunder.jit(module)
    for x in (X, X + 1):
        results, expected = compiled(x), eager(x)
        assert module.seen == eager.seen
        assert content(results) == content(expected)
        assert module.seen == eager.seen
    assert thunder.cache_misses(compiled) == 1


def test_gradients_reach_through_a_generator() -> None:
    x = X.clone().requires_grad_()
    torch.stack(list(thunder.jit(lambda x: (x.sin() * i for i in range(3)))(x))).sum().backward()
    torch.testing.assert_close(x.grad, 3 * X.cos())


def test_an_iterator_over_the_callers_list_is_stored() -> None:
    class Holder:
        pass

    def fn(holder: Any, values: list[Any], x: torch.Tensor) -> None:
        values.append(x)
        holder.values = advanced(iter(values))

    holder, values = Holder(), [X]
    thunder.jit(fn)(holder, values, X + 1)
    values.append(X + 2)
    assert content(holder.values) == ("list_iterator", [(X + 1).tolist(), (X + 2).tolist()])


def begun(x: torch.Tensor) -> Any:
    return advanced(x * i for i in range(3))


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (begun, "a generator that has begun"),
        (lambda x: iter({1, 2}), "an object of class set_iterator"),
        (lambda x: itertools.groupby([x.shape, x.shape]), "an object of class groupby"),
    ],
)
def test_other_iterators_are_refused(fn: Any, match: str) -> None:
    with pytest.raises(UnsupportedProgram, match=match) as error:
        thunder.jit(fn)(X)
    assert "Return a list" in str(error.value)


def test_a_generator_over_overriding_tensors_is_refused() -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return self.weight.sum(), (self.weight @ v for v in x)

    compiled = thunder.jit(Doubled(2, 2))
    compiled.override("weight", torch.nn.Parameter(torch.ones(2, 2)))
    with pytest.raises(UnsupportedProgram, match="in place of those that override"):
        compiled(X[None])


def test_what_a_generator_and_the_result_share_is_one_object() -> None:
    def shared(x: torch.Tensor) -> tuple[Iterator[Any], Callable[[], Any], list[int]]:
        counts: list[int] = []

        def bodies(scale: list[torch.Tensor]) -> Iterator[Any]:
            counts.append(1)
            yield x * len(counts), (lambda: scale)

        return bodies([x]), lambda: counts, counts

    compiled = thunder.jit(shared)
    for _ in range(2):
        generator, read, counts = compiled(X)
        assert counts == []
        y, scale = next(generator)
        assert (read() is counts, counts, content(y), content(scale())) == (
            True,
            [1],
            [1.0, 2.0],
            [[1.0, 2.0]],
        )
    assert thunder.cache_misses(compiled) == 1


def test_a_generator_reads_a_list_of_the_user_when_it_runs() -> None:
    scales = [1.0]
    compiled = thunder.jit(lambda x: (scales[0] * x * i for i in range(len(scales))))
    generator = compiled(X)
    scales[0] = 3.0
    assert content(list(generator)) == [[0.0, 0.0]]

    def lazily(x: torch.Tensor) -> Iterator[Any]:
        return (len(scales) * x for _ in range(2))

    compiled = thunder.jit(lazily)
    for _ in range(2):
        generator = compiled(X)
        scales.append(1.0)
        assert content(list(generator)) == content([len(scales) * X] * 2)
    assert thunder.cache_misses(compiled) == 1


def test_a_key_that_is_returned_as_well_is_one_object() -> None:
    class Key:
        pass

    def keyed(x: torch.Tensor) -> tuple[dict[Key, Any], Key]:
        key = Key()
        return {key: x}, key

    compiled = thunder.jit(keyed)
    for _ in range(2):
        items, key = compiled(X)
        assert content(items[key]) == [1.0, 2.0]
