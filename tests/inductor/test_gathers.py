"""Elements at indices in regions: eager's elements, and eager's errors for indices that are out of range."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder.core.tags import OpTags
from thunder.examine import get_fusion_symbols
from thunder_inductor.background import wait_for_code

pytestmark = pytest.mark.xdist_group("inductor")

Program = Callable[..., Any]

#: name → what is read from a tensor (7, 5, 6), and the size that its index has
READS: dict[str, tuple[Program, int, bool]] = {
    "embedding": (lambda x, i: F.embedding(i, x[:, 0]), 7, False),
    "first dimension": (lambda x, i: x[i], 7, True),
    "dimension between": (lambda x, i: x[:, i], 5, True),
    "last dimension": (lambda x, i: x[..., i], 6, True),
    "two dimensions": (lambda x, i: x[:, i, i.flip(0)], 5, True),
    "with None and slices": (lambda x, i: x[1:, None, i, ::2], 5, True),
    "index_select": (lambda x, i: x.index_select(1, i.flatten()), 5, False),
    "gather": (lambda x, i: x.gather(2, i.reshape(1, 2, 3)), 6, False),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i.reshape(1, 6, 1), dim=1), 5, False),
    "computed": (lambda x, i: x[i * 2 - i], 7, True),
}


def reads(x: torch.Tensor, *indices: torch.Tensor) -> list[torch.Tensor]:
    y = x * 2
    return [read(y, i) + 1 for (read, _, _), i in zip(READS.values(), indices, strict=True)]


def right_indices(r: random.Random, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return an index (2, 3) for each read, with negative numbers where they count from the end."""

    def one(size: int, from_end: bool) -> torch.Tensor:
        low = -size if from_end else 0
        return torch.tensor([[r.randrange(low, size) for _ in range(3)] for _ in range(2)], dtype=dtype)

    return [one(size, from_end) for _, size, from_end in READS.values()]


def outcome(program: Program, *args: Any) -> Any:
    """Return the results of a program, or the class and the first line of what it raises."""
    try:
        return program(*args)
    except Exception as error:  # of any class: it is compared with eager's
        return type(error), str(error).splitlines()[0]


def fused_reads(compiled: Any) -> int:
    """Return how many calls of a program's regions may raise for values."""
    trace = thunder.last_traces(compiled)[-1]
    parts = [part for fusion in get_fusion_symbols(trace) for part in fusion.subsymbols]
    return sum(OpTags.RAISES_ON_DATA in part.all_tags for part in parts)


def check_outcome(compiled: Program, program: Program, *args: Any) -> bool:
    """Check that a compiled program returns or raises what the program does; return whether it raises."""
    expected = outcome(program, *args)
    found = outcome(compiled, *args)
    if isinstance(expected, tuple):
        assert found == expected
        assert issubclass(expected[0], IndexError | RuntimeError)
        return True
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-6)
    return False


def test_elements_and_errors_are_eagers(whole_run: bool) -> None:
    r = random.Random(0)
    x = torch.randn(7, 5, 6, generator=torch.Generator().manual_seed(0))
    compiled = thunder.jit(reads)
    for _ in range(20 if whole_run else 4):
        indices = right_indices(r, torch.int64)
        assert not check_outcome(compiled, reads, x, *indices)
        for place, (name, (_, size, from_end)) in enumerate(READS.items()):
            for wrong in (size, size + 1000, -size - 1 if from_end else -1, 2**31 - 1, -(2**31)):
                changed = [i.clone() for i in indices]
                changed[place][r.randrange(2), r.randrange(3)] = wrong
                raises = check_outcome(compiled, reads, x, *changed)
                assert raises == (name != "take_along_dim")  # which takes the remainder
    assert thunder.cache_misses(compiled) == 1
    assert fused_reads(compiled) == len(READS)


@pytest.mark.sweep
def test_indices_of_32_bits_and_a_part_without_checks() -> None:
    def program(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        y = x * 2
        grid = x[None, :, :, :2]
        return [F.embedding(i, y[:, 0]) + 1, y[i] + 1, F.grid_sample(y[None], grid, align_corners=False) + 1]

    x, i = torch.randn(7, 5, 6), torch.tensor([[0, 6], [3, 1]], dtype=torch.int32)
    compiled = thunder.jit(program)
    for wrong in (0, 7, 2, -8):
        i[1, 0] = wrong
        assert check_outcome(compiled, program, x, i) == (wrong in (7, -8))


def test_an_error_is_at_the_line_of_the_read() -> None:
    compiled = thunder.jit(lambda x, i: (x * 2)[i] + 1)
    x = torch.randn(5)
    compiled(x, torch.tensor([1]))
    with pytest.raises(IndexError) as raised:
        compiled(x, torch.tensor([5]))
    (note,) = raised.value.__notes__
    assert "(x * 2)[i] + 1" in note
    assert "__getitem__" in note


def test_handlers_run_and_nothing_is_written_before_an_error() -> None:
    def program(table: torch.Tensor, seen: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        seen.add_(1)
        try:
            rows = F.embedding(i, table * 2) + 1
            seen.add_(10)
        except IndexError:
            rows = torch.zeros(1, 3)
        seen.mul_(2)
        return rows

    def run(function: Program, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        seen = torch.ones(3)
        return function(torch.arange(12.0).reshape(4, 3), seen, torch.tensor([i])), seen

    compiled = thunder.jit(program)
    for i in (1, 4, 3, -1, 0):
        torch.testing.assert_close(run(compiled, i), run(program, i), rtol=0, atol=0)


def test_a_region_that_may_raise_writes_to_no_input_before_it_has_ended() -> None:
    def program(x: torch.Tensor, table: torch.Tensor, i: torch.Tensor) -> None:
        x.mul_(2).add_(table[i]).sin_()

    def run(function: Program, i: int) -> tuple[Any, torch.Tensor]:
        x = torch.ones(64, 64)
        return outcome(function, x, torch.ones(4, 64), torch.full((64,), i)), x

    compiled = thunder.jit(program)
    assert run(compiled, 3)[0] is None
    for i in (2, 4, -5, 1):
        (found, x), (expected, y) = run(compiled, i), run(program, i)
        assert found == expected
        if expected is None:
            torch.testing.assert_close(x, y)
        else:  # eager has doubled it
            assert torch.equal(x, torch.ones(64, 64)) or torch.equal(x, y)


def test_sizes_that_differ_and_empty_indices() -> None:
    def program(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return F.embedding(i, table) * 2 + 1

    compiled = thunder.jit(program, cache="symbolic values")
    table = torch.randn(9, 4)
    for n in (5, 3, 0, 7):
        i = torch.arange(n)
        assert not check_outcome(compiled, program, table, i)
        if n:
            assert check_outcome(compiled, program, table, i + 9 - n + 1)


def test_a_table_without_rows_is_read_by_torch() -> None:
    def program(table: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (table * 2)[i] + 1

    compiled = thunder.jit(program)
    assert not check_outcome(compiled, program, torch.ones(0, 3), torch.arange(0))
    assert check_outcome(compiled, program, torch.ones(0, 3), torch.zeros(1, dtype=torch.int64))


def test_gradients_are_eagers() -> None:
    def program(table: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return (F.embedding(i, table.tanh(), padding_idx=1) * table[j]).sin()

    i, j = torch.tensor([0, 1, 2, 2]), torch.tensor([-1, 0, 0, 1])
    table = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    compiled = thunder.jit(program)
    torch.testing.assert_close(
        torch.autograd.grad(compiled(table, i, j).sum(), table),
        torch.autograd.grad(program(table, i, j).sum(), table),
    )


@pytest.mark.sweep
def test_code_that_arrives_later_raises_too() -> None:
    compiled = thunder.jit(reads, inductor_compile="background")
    r = random.Random(1)
    x = torch.randn(7, 5, 6)
    for arrived in (False, True):
        indices = right_indices(r, torch.int64)
        assert not check_outcome(compiled, reads, x, *indices)
        indices[1][0, 0] = 7
        assert check_outcome(compiled, reads, x, *indices)
        if not arrived:
            wait_for_code(120)
