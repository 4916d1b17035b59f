"""``x[key]`` and ``x[key] = value`` for keys of all kinds, against eager: the same, or a refusal; where eager
refuses, an error.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from recorded_refusals import Refusals, refusals_as_recorded
from thunder.base.errors import UnsupportedProgram
from torch_language.rows.keys import VALUES, Drawn, drawn

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about keys of bytes and lists

KEYS = list(drawn(count=20_000, seed=0))


def base(shape: tuple[int, ...]) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.arange(count, dtype=torch.float32).reshape(shape) + 1


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # each key has its own
        return error


def read(x: torch.Tensor, key: Any) -> Any:
    part = x[key]
    return part, part.requires_grad


def read_and_change(x: torch.Tensor, key: Any) -> Any:
    """Whether the part is a view shows in both."""
    x = x * 1
    part = x[key]
    part.add_(10)
    x.mul_(2)
    return part, x


def write(x: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    x = x * 1
    x[key] = value
    return x


def difference(
    refusals: Refusals, program: Callable[..., Any], case: Drawn, *more: Callable[[], Any]
) -> str | None:
    """Return what is wrong with the compiled program's outcome, or None; note a refusal."""

    def run(fn: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        return outcome(lambda: fn(base(case.shape), case.key(), *(make() for make in more)))

    theirs, ours = run(program), run(thunder.jit(program))
    if isinstance(ours, UnsupportedProgram):
        refusals.add(case, ours)
        return None
    if isinstance(theirs, Exception):
        if not isinstance(ours, Exception):
            return f"{case}: {ours}, and eager raises {theirs!r}"
        kind = next(c for c in (IndexError, TypeError, ValueError, RuntimeError) if isinstance(theirs, c))
        if isinstance(ours, kind | RuntimeError):
            return None
        return f"{case}: {ours!r}, not {theirs!r}"
    if isinstance(ours, Exception):
        return f"{case}: {type(ours).__name__}: {str(ours).splitlines()[0]}"
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    if not all(equal(a, b) for a, b in pairs):
        return f"{case}: {ours}, not {theirs}"
    return None


def equal(a: Any, b: Any) -> bool:
    if not isinstance(b, torch.Tensor):
        return bool(a == b)
    if b.numel() and a.stride() != b.stride():
        return False
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(a, b)


def gradients(fn: Callable[..., torch.Tensor], shape: tuple[int, ...], key: Any) -> torch.Tensor:
    x = base(shape).requires_grad_()
    fn(x, key).sum().backward()
    assert x.grad is not None
    return x.grad


def slice_of(part: int, parts: int = 60) -> list[Drawn]:
    """A few of the keys; another ``part`` has others."""
    return random.Random(part).sample(KEYS, parts)


@pytest.mark.parametrize("part", range(6))
def test_a_read_gives_what_eager_gives(part: int) -> None:
    assert_no_difference(read, part, 60)


@pytest.mark.parametrize("part", range(6, 10))
def test_what_is_read_is_a_view_where_eagers_is(part: int) -> None:
    assert_no_difference(read_and_change, part, 30)


def assert_no_difference(program: Callable[..., Any], part: int, parts: int) -> None:
    """Assert that a program does with a few of the keys what eager does, or refuses them as recorded."""
    with refusals_as_recorded(f"keys, {program.__name__}", f"part {part}") as refusals:
        found = [difference(refusals, program, case) for case in slice_of(part, parts)]
    assert [d for d in found if d is not None] == []


@pytest.mark.parametrize("kind", VALUES)
def test_a_write_leaves_what_eager_leaves(kind: str) -> None:
    found = []
    with refusals_as_recorded("keys, written", kind) as refusals:
        for case in slice_of(10 + list(VALUES).index(kind), 30):
            part = outcome(lambda case=case: base(case.shape)[case.key()])
            part = torch.zeros(2) if isinstance(part, Exception) else part
            found.append(difference(refusals, write, case, lambda part=part: VALUES[kind](part)))
    assert [d for d in found if d is not None] == []


@pytest.mark.parametrize("part", range(30, 32))
def test_the_gradient_of_a_read_or_write_is_eagers(part: int) -> None:
    def squared(x: torch.Tensor, key: Any) -> torch.Tensor:
        return x[key] ** 2

    def replaced(x: torch.Tensor, key: Any) -> torch.Tensor:
        written = x * 1
        written[key] = x.sum()
        return written**2

    with refusals_as_recorded("keys, gradients", f"part {part}") as refusals:
        for case in slice_of(part, 30):
            for fn in (squared, replaced):
                theirs = outcome(lambda fn=fn, case=case: gradients(fn, case.shape, case.key()))
                ours = outcome(lambda fn=fn, case=case: gradients(thunder.jit(fn), case.shape, case.key()))
                if isinstance(ours, UnsupportedProgram):
                    refusals.add(f"{fn.__name__} {case}", ours)
                elif isinstance(theirs, torch.Tensor):
                    assert isinstance(ours, torch.Tensor), f"{case}: {ours!r}"
                    torch.testing.assert_close(ours, theirs, msg=str(case))
