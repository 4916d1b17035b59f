"""Functions under ``functools.lru_cache``: their results are the objects that the cache has."""

import copy
import dataclasses
import functools
from collections import deque

import pytest
import torch

import thunder

X = torch.arange(3.0)


class Recipe:
    def __init__(self, factors):
        self.factors = factors


def test_the_result_is_the_object_that_the_cache_has():
    @functools.lru_cache(8)
    def recipe(name, *sizes, scale=1):
        return Recipe([scale, *sizes])

    def program(x):
        found = recipe("a", 2, 3, scale=4)
        return x * found.factors[1], found

    compiled = thunder.jit(program)
    for _ in range(2):
        result, found = compiled(X)
        assert torch.equal(result, X * 2)
        assert found is recipe("a", 2, 3, scale=4)
    assert thunder.cache_misses(compiled) == 1
    assert recipe.cache_info().misses == 1


def test_what_the_program_reads_of_a_result_is_guarded():
    @functools.cache
    def recipe(name):
        return Recipe([2.0])

    compiled = thunder.jit(lambda x: x * recipe("a").factors[0])
    assert torch.equal(compiled(X), X * 2)
    recipe("a").factors[0] = 5.0
    assert torch.equal(compiled(X), X * 5)


def test_a_cleared_cache_gives_a_new_object_and_an_entry_of_eager_is_taken_over():
    factor = [2.0]

    @functools.cache
    def recipe(name):
        return Recipe([factor[0]])

    first = recipe("a")
    compiled = thunder.jit(lambda x: (x * recipe("a").factors[0], recipe("a")))
    assert compiled(X)[1] is first
    factor[0] = 3.0
    assert torch.equal(compiled(X)[0], X * 2)
    recipe.cache_clear()
    result, second = compiled(X)
    assert torch.equal(result, X * 3)
    assert second is recipe("a")
    assert second is not first


def test_a_guard_does_not_run_the_function():
    runs = []

    @functools.cache
    def recipe(name):
        runs.append(torch.is_grad_enabled())
        return torch.ones(3) * 2

    @torch.no_grad()
    def program(x):
        return x * recipe("a")

    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(compiled(X), X * 2)
    recipe.cache_clear()
    assert torch.equal(compiled(X), X * 2)
    assert runs == [False, False]  # each time at its place, where gradients are off


def test_a_cached_tensor_is_shared_and_its_data_are_read_at_each_call():
    @functools.lru_cache
    def table(n):
        return torch.ones(n)

    compiled = thunder.jit(lambda x: (x + table(3), table(3)))
    assert torch.equal(compiled(X)[0], X + 1)
    assert compiled(X)[1] is table(3)
    table(3).mul_(4)
    assert torch.equal(compiled(X)[0], X + 4)
    assert thunder.cache_misses(compiled) == 1


def test_arguments_are_objects_classes_functions_and_tuples_of_them():
    @functools.lru_cache
    def recipe(owner, cls, reduction, sizes):
        return Recipe([owner.k, len(sizes)])

    @dataclasses.dataclass(frozen=True)
    class Size:
        n: int

    class Owner:
        k = 3.0

    def program(x, owner):
        found = recipe(owner, Owner, torch.sum, (x.shape, (Size(2),)))
        return x * found.factors[0], found

    compiled, owner = thunder.jit(program), Owner()
    assert compiled(X, owner)[1] is program(X, owner)[1]
    assert compiled(X, owner)[1] is program(X, owner)[1]
    assert recipe.cache_info().misses == 1
    other = Owner()
    other.k = 7.0
    assert torch.equal(compiled(X, other)[0], X * 7)


def test_a_call_with_a_computed_tensor_is_interpreted_and_its_result_shared_in_the_call():
    @functools.lru_cache
    def doubled(x):
        return x * 2

    def program(x):
        y = x + 1
        return doubled(y), doubled(y) is doubled(y), doubled(y) is doubled(x + 1)

    compiled = thunder.jit(program)
    for start in (1.0, 5.0):
        result, *same = compiled(X + start)
        assert torch.equal(result, (X + start + 1) * 2)
        assert same == [True, False]


def test_a_call_with_a_computed_tensor_leaves_no_entry():
    cached = functools.lru_cache(1)(lambda x: x * 2)
    assert torch.equal(thunder.jit(lambda x: cached(x + 1))(X), (X + 1) * 2)
    assert cached.cache_info().currsize == 0


def test_a_function_that_the_program_puts_under_a_cache_is_interpreted():
    def program(x):
        cached = functools.lru_cache(lambda n: [n])
        return x * cached(2)[0], cached(2) is cached(2), cached(2) is cached(3)

    compiled = thunder.jit(program)
    assert compiled(X)[1:] == (True, False)


def test_a_cached_method_has_an_entry_for_each_object():
    class Owner:
        def __init__(self, k):
            self.k = k

        @functools.lru_cache  # noqa: B019
        def recipe(self, n):
            return Recipe([self.k * n])

    compiled = thunder.jit(lambda x, o: (x * o.recipe(2).factors[0], o.recipe(2)))
    for owner in (Owner(2.0), Owner(3.0)):
        result, found = compiled(X, owner)
        assert torch.equal(result, X * owner.k * 2)
        assert found is owner.recipe(2)


def test_python_runs_the_first_call_of_a_function_that_may_read_what_the_program_has_written():
    state = {"k": 2.0}

    @functools.cache
    def scale(n):
        return Recipe([state["k"] * n])

    def program(x):
        state["k"] += 1.0
        return x * scale(1).factors[0]

    compiled = thunder.jit(program)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)
    assert thunder.compile_stats(compiled).runs_by_python == 1
    scale.cache_clear()
    with pytest.raises(thunder.UnsupportedProgram, match=r"scale is under .*may read .*has written before"):
        compiled(X)
    assert scale.cache_info().currsize == 0


def test_writes_that_the_function_does_not_read_are_no_obstacle():
    class Counter:
        calls = 0

    counter = Counter()

    @functools.cache
    def recipe(name):
        return Recipe([2.0])

    def program(x):
        counter.calls += 1
        return x * recipe("a").factors[0]

    compiled = thunder.jit(program)
    for calls in (1, 2):
        assert torch.equal(compiled(X), X * 2)
        assert counter.calls == calls


def test_the_first_call_reads_what_a_function_changes_before_and_after_it():
    state = Recipe([1.0])

    @functools.cache
    def change(name):
        state.factors[0] = 5.0
        return Recipe([0.0])

    def program(x):
        before = state.factors[0]
        return x * before + change("a").factors[0]

    compiled = thunder.jit(program)
    for factor in (1, 5, 5):
        assert torch.equal(compiled(X), X * factor)
    assert thunder.cache_misses(compiled) == 2


def test_a_function_that_draws_random_numbers_out_of_order_is_refused():
    @functools.cache
    def noise(n):
        return torch.rand(n)

    with pytest.raises(thunder.UnsupportedProgram, match="draws random numbers after"):
        thunder.jit(lambda x: x + torch.rand(3) + noise(3))(X)


def test_what_a_cached_function_raises_is_handled_as_in_eager():
    limit = [1]

    @functools.lru_cache
    def checked(n):
        if n > limit[0]:
            raise ValueError(f"{n} is too large")
        return Recipe([n])

    def program(x, n):
        try:
            return x * checked(n).factors[0]
        except ValueError:
            return x - 1

    compiled = thunder.jit(program)
    assert torch.equal(compiled(X, 2), X - 1)
    limit[0] = 3
    assert torch.equal(compiled(X, 2), X * 2)


def test_a_list_has_no_hash_as_in_eager():
    cached = functools.lru_cache(lambda items: items)
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        thunder.jit(lambda x: x * cached([1, 2])[0])(X)


@pytest.mark.parametrize("maxsize", [1, 2, 3, None])
def test_uses_and_the_order_of_eviction_are_those_of_eager(maxsize):
    """Guards of entries that do not serve a call count as no use."""

    def world():
        @functools.lru_cache(maxsize)
        def table(n):
            return torch.full((1,), float(n))

        return table, lambda x, n: x * table(n)

    (table, program), (own, compiled) = world(), world()
    compiled = thunder.jit(compiled, cache="constant values")
    for n in (1, 2, 1, 3, 2, 1, 1, 3, 4, 1):
        assert torch.equal(compiled(X, n), program(X, n))
        assert own.cache_info() == table.cache_info()


def test_an_entry_that_another_key_has_replaced_in_between_is_not_the_same():
    """A full cache reuses the link of the entry that it evicts."""

    @functools.lru_cache(1)
    def table(n):
        return torch.zeros(1)

    compiled = thunder.jit(lambda x: (x + table(1), table(1)))
    first = compiled(X)[1]
    table(1).add_(5)
    table(2)
    assert torch.equal(table(1), torch.zeros(1))
    result, second = compiled(X)
    assert torch.equal(result, X)
    assert second is table(1)
    assert second is not first


def test_a_call_that_is_compiled_several_times_counts_each_use_once():
    @functools.lru_cache(4)
    def table(n):
        return torch.ones(1)

    def program(x):
        y = x * table(1) * table(2) * table(1)
        return y[: int((y > 0).sum())], torch.linalg.qr(x.reshape(-1, 1))[0]

    compiled = thunder.jit(program, cache="symbolic values")
    for n in (3, 4, 4, 5):
        table.cache_clear()
        compiled(torch.arange(float(n)))
        info = table.cache_info()
        assert (info.hits, info.misses) == (1, 2)


def test_keys_that_a_program_puts_into_its_own_cache_are_compared_by_their_values():
    def program(x, y):
        cached = functools.lru_cache(lambda n: [n])
        return x.sum() * y.sum(), cached(len(x)) is cached(len(y)), cached(len(x))

    compiled = thunder.jit(program, cache="symbolic values")
    for m, n in ((2, 2), (2, 3), (3, 3)):
        assert compiled(torch.ones(m), torch.ones(n))[1:] == (m == n, [m])


@pytest.mark.parametrize(
    ("make", "write"),
    [
        (lambda n: [n, 2.5], lambda entry, n: entry.append(n)),
        (lambda n: [], lambda entry, n: entry.extend([n, "a"])),
        (lambda n: {"a": n}, lambda entry, n: entry.update(b=n)),
        (lambda n: {n}, lambda entry, n: entry.add("a")),
        (lambda n: deque([n]), lambda entry, n: entry.append(None)),
        (lambda n: [[n]], lambda entry, n: entry[0].append(n)),
    ],
)
@pytest.mark.parametrize("is_filled", [True, False])
def test_a_write_to_an_entry_of_a_cache_is_made_to_the_object_that_all_callers_share(make, write, is_filled):
    def run(wrap):
        cached = functools.lru_cache(make)

        def program(x):
            entry = cached(3)
            write(entry, x.shape[0])
            return x * len(entry)

        fn, seen = wrap(program), [cached(3)] if is_filled else []
        for _ in range(3):
            seen += [fn(torch.ones(2)).tolist(), copy.deepcopy(cached(3))]
        return seen

    assert run(thunder.jit) == run(lambda program: program)
