"""Integers out of tensors are numbers of the trace, and sizes once they have differed."""

import operator

import pytest
import torch
import torch.nn.functional as F

import thunder
from symbolic.static_reasons import failure_of


def _jagged(x, mask):
    parts = x.split(torch.stack([mask.sum(), (~mask).sum()]).tolist())
    return torch.cat([part * (i + 2) for i, part in enumerate(parts)])


def _nested(x, mask):
    (a, b), (c, d) = torch.stack([mask.sum(), (~mask).sum()]).repeat(2, 1).tolist()
    return x[: a * 2 - c], x.new_zeros(b, d)


def _text(x, mask):
    return f"{int(mask.sum())} of {len(x)}"


#: name → program of ``x: (8, 3)`` and a mask of its rows, and the most compiles for six masks
PROGRAMS = {
    "int": (lambda x, mask: x[: int(mask.sum())] * 2, 4),
    "int of item": (lambda x, mask: x[int(mask.sum().item()) :] * 2, 4),
    "int of a truth value": (lambda x, mask: x * int(mask.any()) + int(mask[0]), 1),
    "int of one element": (lambda x, mask: x * int(mask.sum().reshape(1, 1)), 1),
    "index": (lambda x, mask: torch.arange(operator.index(mask.sum())), 2),
    "tensor as a bound": (lambda x, mask: x[mask.sum() :] * 2, 4),
    "arithmetic": (lambda x, mask: (x * (int(mask.sum()) + 1) ** 2, int(mask.sum()) // 2), 1),
    "branch": (lambda x, mask: x if int(mask.sum()) > 3 else -x, 2),
    "text": (_text, 1),
    "list": (lambda x, mask: (x, torch.stack([mask.sum(), mask[0].long()]).tolist()), 2),
    "list of one": (lambda x, mask: x * mask.sum().tolist(), 1),
    "split": (_jagged, 3),
    "nested lists": (_nested, 4),
    "tensor_split": (lambda x, mask: torch.tensor_split(x, mask.sum().reshape(1)), 4),
    "one_hot": (lambda x, mask: F.one_hot(mask.sum() * torch.arange(3)), 3),
}


@pytest.mark.parametrize("cache", ["automatic", "symbolic values"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_few_programs_serve_all_values(name, cache):
    program, most = PROGRAMS[name]
    compiled = thunder.jit(program, executors=["torch"], cache=cache)
    for count in (3, 5, 2, 8, 4, 0, 1, 7, 6):
        x, mask = torch.randn(8, 3), torch.arange(8) < count
        mask = mask[torch.randperm(8)]
        result, expected = compiled(x, mask), program(x, mask)
        if isinstance(expected, str):
            assert result == expected
        else:
            torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert thunder.cache_misses(compiled) <= most


@pytest.mark.parametrize("count", range(4))
def test_no_integer_has_the_name_of_a_size(count):
    """The integer is value 2, 3, 4 or 5 of the program, and the tensor has three sizes."""

    def program(x, start, n):
        for _ in range(count):
            x = x + 1
        return torch.narrow(x, 1, start, n)

    compiled = thunder.jit(program, executors=["torch"], cache="symbolic values")
    for sizes, start, n in (((5, 6, 7), 2, 2), ((9, 8, 7), 3, 4)):
        args = torch.randn(sizes), torch.tensor(start), n
        assert torch.equal(compiled(*args), program(*args))
    assert thunder.cache_misses(compiled) == 1
    assert failure_of(compiled) is None


def test_a_program_that_needs_the_values_decides_on_them():
    names = ["none", "one", "two", "three"]

    def program(x, mask):
        return [names[n] for n in torch.stack([mask.sum(), (~mask).sum()]).tolist()]

    compiled = thunder.jit(program, executors=["torch"], recompile_limit=None)
    for count in (0, 1, 2, 3, 0, 1, 2, 3):
        mask = torch.arange(3) < count
        assert compiled(torch.ones(1), mask) == program(torch.ones(1), mask)
    assert thunder.cache_misses(compiled) <= 6


def test_an_answer_that_differs_in_a_compile_for_other_sizes_is_a_size_at_once():
    """The second compile is for another length, and finds another answer to the question of the first."""

    def program(x):
        chosen = x[x > 0]
        return chosen * 2, x[: int((x > 1).sum())], (x > 0).long().sum().reshape(1).tolist()

    compiled = thunder.jit(program, executors=["torch"])
    for length in (5, 9, 7, 12, 4, 8):
        x = torch.linspace(-1, 3, length)
        torch.testing.assert_close(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 2


def test_the_answer_of_an_opaque_callable_is_not_read_twice():
    calls = []

    @thunder.opaque
    def count(x):
        calls.append(len(x))
        return (x > 0).sum()

    def program(x):
        return x[: int(count(x))] * 2

    compiled = thunder.jit(program, executors=["torch"])
    for length in (5, 9, 7, 12):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x), program(x))
    assert calls == [n for n in (5, 9, 7, 12) for _ in range(2)]
