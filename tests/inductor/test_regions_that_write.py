"""Regions that write to inputs and read numbers do what eager does, to the memory of the inputs too."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in

pytestmark = pytest.mark.xdist_group("inductor")

IN_PLACE = "in_place"


def regions_that_write(compiled: Callable[..., Any]) -> list[str]:
    """Return the names of the regions of the last trace that write to inputs."""
    calls = thunder.last_traces(compiled)[-1].bound_symbols
    return [b.sym.name for b in calls if b.sym.is_fusion and b.sym.name.endswith(IN_PLACE)]


def tensors(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Return tensors of one shape in three layouts, and a row."""
    generator = torch.Generator().manual_seed(3)
    a, b, c = (torch.rand(12, 40, generator=generator, dtype=dtype) + 0.5 for _ in range(3))
    return [
        a,
        b.t().contiguous().t(),
        torch.stack([c, c], -1)[..., 0],
        torch.rand(40, generator=generator, dtype=dtype) + 0.5,
    ]


def momentum(p: torch.Tensor, m: torch.Tensor, g: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    m.mul_(0.9).add_(g * row)
    p.sub_(m * 0.1)
    return g.sum()


def test_a_region_writes_to_the_memory_of_its_inputs() -> None:
    ours, theirs = tensors(), tensors()
    compiled = thunder.jit(momentum)
    places = [t.data_ptr() for t in ours]
    for _ in range(3):
        versions = [t._version for t in ours]
        torch.testing.assert_close(compiled(*ours), momentum(*theirs))
        for x, y in zip(ours, theirs, strict=True):
            torch.testing.assert_close(x, y)
        assert [t._version > before for t, before in zip(ours, versions, strict=True)] == [
            True,
            True,
            False,
            False,
        ]
    assert [t.data_ptr() for t in ours] == places
    assert regions_that_write(compiled)
    assert not any("copy_" in b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols)


def test_old_elements_that_are_read_later_stay() -> None:
    def program(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        old = p @ x.t()
        p.mul_(2).add_(x)
        return old + p.mean()

    def returned(p: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = p + 0
        p.mul_(2).add_(x)
        return old, p

    for fn in (program, returned):
        compiled = thunder.jit(fn)
        for _ in range(2):
            p, x = torch.randn(8, 8), torch.randn(8, 8)
            q = p.clone()
            torch.testing.assert_close(compiled(p, x), fn(q, x))
            torch.testing.assert_close(p, q)


def test_a_write_is_not_seen_if_a_later_call_raises() -> None:
    def program(p: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        try:
            p.mul_(2).add_(1)
            return torch.linalg.cholesky(m)
        except RuntimeError:
            p.add_(100)
            return p + 0

    compiled = thunder.jit(program)
    good, bad = torch.eye(3), -torch.eye(3)
    for m in (good, bad, good, bad):
        p = torch.rand(3, 3)
        q = p.clone()
        torch.testing.assert_close(compiled(p, m), program(q, m))
        torch.testing.assert_close(p, q)


def test_strides_that_were_not_expected_have_code_of_their_own() -> None:
    def program(p: torch.Tensor, x: torch.Tensor) -> None:
        p.mul_(x).add_(1)

    compiled = thunder.jit(program)
    for p in (torch.rand(6, 6), torch.rand(6, 6).t(), torch.rand(6, 12)[:, ::2]):
        q, x = copy.deepcopy(p), torch.rand(6, 6)
        compiled(p, x)
        program(q, x)
        torch.testing.assert_close(p, q)
        assert regions_that_write(compiled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_of_the_program_are_those_of_eager(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        rate = 0.1 / (1 - 0.9 ** step.item())
        y = x * rate + x / (rate + 2)
        return torch.addcdiv(y, x, x + rate, value=-rate) - rate

    compiled = thunder.jit(program)
    for step in range(1, 5):
        x, number = tensors(dtype)[0], torch.tensor(float(step))
        torch.testing.assert_close(compiled(x, number), program(x, number))
    assert thunder.cache_misses(compiled) == 1
    fused = [row for row in thunder.explain(compiled).rows if row.via == "fusion"]
    assert bool(fused) == (dtype is not torch.bfloat16), "bfloat16 rounds numbers otherwise"


def test_the_code_of_a_region_ends_with_the_program() -> None:
    """It is kept by the programs that use it, and by no table of symbols."""
    compiled = thunder.jit(lambda p: p.mul_(3).add_(0.25))
    compiled(torch.rand(5, 7))
    (kernel,) = [
        weakref.ref(b.sym.python_impl)
        for b in thunder.last_traces(compiled)[-1].bound_symbols
        if b.sym.is_fusion
    ]
    assert kernel() is not None
    del compiled
    gc.collect()
    assert kernel() is None


def random_program(r: random.Random) -> tuple[Callable[..., Any], str]:
    """Return a program that writes to inputs and views of them, and asks for numbers; and its text."""
    lines, values, numbers = [], ["a", "b", "c"], []

    def value() -> str:
        return r.choice(values)

    for n in range(r.randrange(4, 14)):
        kind = r.randrange(8)
        if kind < 3:
            operator = r.choice(["add", "sub", "mul", "maximum"])
            lines.append(f"v{n} = torch.{operator}({value()}, {value()})")
            values.append(f"v{n}")
        elif kind < 6:
            write = r.choice(["add_", "mul_", "copy_", "sub_"])
            lines.append(f"{r.choice('abc')}.{write}({value()} * 0.5)")
        elif kind == 6:
            lines.append(f"{r.choice('abc')}[{r.choice(['2:5', ':, 3', '1'])}] *= 0.5")
        elif numbers and r.randrange(2):
            lines.append(f"{r.choice('abc')}.mul_({r.choice(numbers)})")
        else:
            lines.append(f"f{n} = {value()}.mean().item() * 0.1 + 1")
            numbers.append(f"f{n}")
    results = ", ".join(r.sample(values, min(2, len(values))))
    text = "def program(a, b, c):\n" + "".join(f"    {line}\n" for line in lines) + f"    return {results},\n"
    namespace: dict[str, Any] = {"torch": torch}
    exec(text, namespace)
    return namespace["program"], text


@pytest.mark.parametrize("block", one_in(64, range(64)))
def test_random_programs_write_what_eager_writes(block: int) -> None:
    written = 0
    for seed in range(4):
        program, text = random_program(random.Random(100 * block + seed))
        compiled = thunder.jit(program)
        for _ in range(2):
            ours, theirs = tensors(torch.float64)[:3], tensors(torch.float64)[:3]
            results, expected = compiled(*ours), program(*theirs)
            torch.testing.assert_close(results, expected, msg=lambda m, text=text: f"{m}\n{text}")
            torch.testing.assert_close(ours, theirs, msg=lambda m, text=text: f"{m}\n{text}")
            shared = [[x.data_ptr() == y.data_ptr() for y in ours] for x in results]
            assert shared == [[x.data_ptr() == y.data_ptr() for y in theirs] for x in expected], text
        written += len(regions_that_write(compiled))
    assert written or block, "no program has a region that writes"
