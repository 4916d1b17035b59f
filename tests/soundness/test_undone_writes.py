"""A call that raises after each of its statements in turn leaves every input as eager leaves it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from autograd.random_programs import built
from autograd.random_writes import KINDS, program_of_writes
from comparison.bytes_moved import bytes_of_computation
from sweeping import one_in
from thunder.base import overwritten

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about writes to expanded tensors

#: raises for its data, which is found when the program runs
RAISE = "torch.linalg.cholesky(torch.zeros_like(y.detach().real.flatten()[:1].reshape(1, 1)) - 1)"
CHOSEN = ("frozen", "intermediates", "strided", "one with gradient", "overlapping and frozen")
PROGRAMS = 40


def raising(text: str) -> Iterator[str]:
    """Yield the program with a call that raises after each of its statements."""
    lines = text.splitlines()
    for position, line in enumerate(lines):
        body = line.strip()
        if position and not body.startswith(("return", "with", "pass")):
            call = line[: len(line) - len(line.lstrip())] + RAISE
            yield "\n".join([*lines[: position + 1], call, *lines[position + 1 :], ""])


def left_by(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[type[Exception], list[Any]]:
    """Return the type of the error of a call, and what it leaves of its inputs."""
    versions = [x._version for x in inputs]
    with pytest.raises((RuntimeError, thunder.UnsupportedProgram)) as caught:
        fn(*inputs)
    changed = [x._version != version for x, version in zip(inputs, versions, strict=True)]
    return caught.type, [(x.detach().tolist(), c) for x, c in zip(inputs, changed, strict=True)]


@pytest.mark.parametrize(
    ("kind", "number"), one_in(PROGRAMS // 2, [(k, n) for k in CHOSEN for n in range(PROGRAMS)])
)
def test_a_call_that_raises_leaves_its_inputs_as_eager_does(kind: str, number: int) -> None:
    seed = f"undone {kind} {number}"
    for part, text in enumerate(raising(program_of_writes(seed, KINDS[kind]))):
        program = built(text, f"{seed} {part}")
        theirs = left_by(program, KINDS[kind]())
        ours = left_by(thunder.jit(program, executors=["torch"]), KINDS[kind]())
        if not issubclass(ours[0], thunder.ThunderError):
            assert repr(ours) == repr(theirs), text


def part(cache, y):
    cache[2:4] = 1.5
    return torch.linalg.cholesky(y)


def parts_and_all(cache, y):
    cache[2:4] += 1.5
    cache.index_add_(0, torch.tensor([3, 3, 5]), torch.ones(3, 8))
    cache.scatter_add_(1, torch.zeros(64, 2, dtype=torch.int64), torch.ones(64, 2))
    return torch.linalg.cholesky(y)


def out_of_range(cache, y):
    cache[0] += 1
    cache[(y[0, :2] * 100).long()] = 2.0


@pytest.mark.parametrize("fn", [part, parts_and_all, out_of_range], ids=lambda fn: fn.__name__)
def test_what_a_failed_call_has_overwritten_is_put_back_without_a_copy_of_the_buffer(fn) -> None:
    def buffer() -> torch.Tensor:
        return torch.arange(512.0).reshape(64, 8)

    ours, good, bad = thunder.jit(fn, executors=["torch"]), torch.eye(200) * 0.25, -torch.eye(200)
    ours(buffer(), good)  # what raises has large results, and so stays after the writes
    entry = thunder.compile_stats(ours).last_entry
    assert [write.reason for write in entry.input_writes] == [None]
    moved = bytes_of_computation(entry, [buffer(), good]).total
    overwritten.begin()
    kept = bytes_of_computation(entry, [buffer(), good]).total - moved
    overwritten.end(undo=True)
    assert 0 < kept < buffer().nbytes
    assert left_by_bad(ours, buffer(), bad) == left_by_bad(fn, buffer(), bad)


def left_by_bad(fn: Callable[..., Any], cache: torch.Tensor, y: torch.Tensor) -> tuple[Any, int]:
    with pytest.raises((RuntimeError, IndexError), match=r"not positive-definite|out of bounds"):
        fn(cache, y)
    return cache.tolist(), cache._version


def test_a_handler_of_the_program_sees_the_tensor_as_it_was_written() -> None:
    def fn(cache, y):
        try:
            cache[1:3] *= 2
            torch.linalg.cholesky(y)
        except RuntimeError:
            cache[0] = cache[1]
        return cache.sum()

    ours, a, b = thunder.jit(fn, executors=["torch"]), torch.ones(4, 3), torch.ones(4, 3)
    for y in (torch.eye(2), -torch.eye(2), torch.eye(2)):
        assert torch.equal(ours(a, y), fn(b, y))
        assert torch.equal(a, b)


def test_a_call_that_leaves_at_a_decision_after_a_write_writes_once() -> None:
    def fn(cache, y):
        cache[1:3] += 1
        if y.sum() > 0:
            cache[0] += 10
        return cache.sum()

    ours, a, b = thunder.jit(fn, executors=["torch"]), torch.ones(4, 3), torch.ones(4, 3)
    for y in (torch.ones(1), -torch.ones(1), torch.ones(1), -torch.ones(1)):
        assert torch.equal(ours(a, y), fn(b, y))
        assert torch.equal(a, b)
    assert all(
        w.reason is None for e in thunder.compile_stats(ours).interpreter_cache for w in e.input_writes
    )
    assert thunder.cache_misses(ours) == 2


def test_a_call_within_a_call_puts_back_its_own_writes() -> None:
    inner = thunder.jit(part, executors=["torch"])

    @torch.library.custom_op("undone_writes::guarded", mutates_args=())
    def guarded(cache: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        other = cache.clone()
        with contextlib.suppress(RuntimeError):
            inner(other, y)
        return other

    guarded.register_fake(lambda cache, y: torch.empty_like(cache))

    def fn(cache, y):
        cache[1:3] += 1
        other = torch.ops.undone_writes.guarded(cache, y)
        return other + torch.linalg.cholesky(y).sum()

    ours = thunder.jit(fn, executors=["torch"])
    ours(torch.ones(4, 3), torch.eye(2))
    assert left_by_bad(ours, torch.ones(4, 3), -torch.eye(2)) == left_by_bad(
        fn, torch.ones(4, 3), -torch.eye(2)
    )
