"""Programs that decide on data, or find sizes in it, kept and called in other objects and processes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
import thunder_store
from kept_programs import counts, running_what_is_kept
from store.kept_worlds import call, write
from sweeping import one_in

PROGRAM = """
import json, os
import torch

def decide(x, flag):
    y = x * 2
    if (x > 0).all():
        y = y.log()
    if flag.item() > 2:
        y = y + flag.item() * 3
    return y, x[x > 0], sum([flag.item(), 0.1, 1e16]), torch.arange(int(flag))

def call(jit):
    fn = jit(decide)
    def run():
        found = []
        for sign, flag in json.loads(os.environ["CALLS_OF_TEST"]):
            x = torch.arange(1.0, 5, dtype=torch.float64, requires_grad=True)
            results = fn(x * sign, torch.tensor(flag))
            results[0].sum().backward()
            found += [*results, x.grad]
        return found
    return run
"""


def test_a_second_process_finds_the_programs_of_its_answers(tmp_path: Path) -> None:
    write(tmp_path, {"program.py": PROGRAM})

    def run(*calls: tuple[int, int]) -> Any:
        found = call(tmp_path, CALLS_OF_TEST=json.dumps(calls))
        assert found.compiled == found.eager
        return found.kinds

    calls = [(1, 1), (1, 3), (-1, 1), (-1, 5), (1, 2)]
    assert run(*calls).count("kept") > 2
    again = run(*calls)
    assert "hit" in again
    assert not {"kept", "not kept"} & set(again)
    assert "hit" in run(*reversed(calls))


@pytest.fixture
def jit(tmp_path: Path, _one_process: None) -> Callable[..., Any]:
    return lambda fn, **options: thunder.jit(fn, executors=["torch"], program_cache=str(tmp_path), **options)


def kinds_since(count: int) -> list[str]:
    return [event.kind for event in thunder_store.events()[count:]]


def test_a_program_that_decides_is_not_used_where_questions_are_refused(jit: Callable[..., Any]) -> None:
    def decide(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x

    x = torch.ones(3)
    assert torch.equal(jit(decide)(x), x * 2)
    with pytest.raises(thunder.DataDependentControlFlow, match="asks for the value"):
        jit(decide, data_dependent="refuse")(x)


def scaled(x: Tensor, scale: float, rows: int) -> Tensor:
    return x[:rows] * scale if scale * x.shape[0] > 2.5 else x[:rows] - scale


def test_numbers_and_floats_of_calls_are_kept(jit: Callable[..., Any]) -> None:
    calls = [(4, 0.75, 2), (5, 1.25, 3), (9, 0.1, 2), (6, 2.5, 4)]
    for is_first in (True, False):
        before = len(thunder_store.events())
        compiled = jit(scaled, cache="symbolic values")
        for n, scale, rows in calls:
            x = torch.randn(n, dtype=torch.float64)
            assert torch.equal(compiled(x, scale, rows), scaled(x, scale, rows))
        assert thunder.cache_misses(compiled) <= 3
        assert ("kept" in kinds_since(before)) is is_first


def test_a_size_that_was_asked_to_stay_free_is_free_in_the_program_that_is_found(
    jit: Callable[..., Any],
) -> None:
    def rows(x: Tensor, y: Tensor) -> Tensor:
        return x.sum(0) * y.shape[0]

    def calls(*marked: int) -> int:
        compiled, before = jit(rows), len(thunder_store.events())
        for n in (4, 6):
            tensors = torch.randn(n, 3), torch.randn(n + 1, 3)
            for i in marked:
                thunder.mark_dynamic(tensors[i], 0)
            assert torch.equal(compiled(*tensors), rows(*tensors))
        assert len(kinds_since(before)) > 0
        return int(thunder.cache_misses(compiled))

    assert calls() == 2  # sizes are numbers, then one has differed
    assert calls(0, 1) == 1
    assert calls(0, 1) == 1


_QUESTIONS: tuple[Callable[[Tensor, int], bool], ...] = (
    lambda x, k: bool((x > k).any()),
    lambda x, k: x.sum().item() > k,
    lambda x, k: x.tolist()[0] > k,
    lambda x, k: int(x[0]) % 2 == k % 2,
    lambda x, k: (x > k).nonzero().shape[0] > 2,
    lambda x, k: torch.equal(x, x.abs()),
)


@pytest.mark.parametrize("seed", one_in(40, range(200)))
def test_a_random_program_that_decides_is_kept(seed: int, jit: Callable[..., Any]) -> None:
    rng = random.Random(seed)
    steps = [
        (rng.choice(_QUESTIONS), rng.randint(-1, 2), rng.randint(2, 5)) for _ in range(rng.randint(1, 3))
    ]

    def program(x: Tensor) -> Any:
        y, rest = x * 2, x
        for question, bound, factor in steps:
            if question(rest, bound):
                y = y * factor
            else:
                rest = rest + factor
        return y, rest[rest > 1], sum([rest[0].item(), 0.1, 0.2])

    cache = rng.choice(["constant values", "symbolic values"])
    inputs = [torch.tensor([rng.uniform(-3, 3) for _ in range(rng.choice((4, 4, 5)))]) for _ in range(6)]
    for _ in range(3):
        compiled = jit(program, cache=cache)
        rng.shuffle(inputs)
        for x in itertools.chain(inputs, inputs[:2]):
            x = x.double().requires_grad_(True)
            found, expected = compiled(x), program(x)
            torch.testing.assert_close(found[:2], expected[:2], rtol=0, atol=0)
            assert found[2] == expected[2]
            (gradient,) = torch.autograd.grad(found[0].sum(), x)
            torch.testing.assert_close(gradient, torch.autograd.grad(expected[0].sum(), x)[0], rtol=0, atol=0)


def test_what_is_read_of_a_program_that_decides_is_the_program() -> None:
    def program(x: Tensor, n: Tensor) -> Any:
        kept = x[x > 0]
        return kept * int(n), kept.shape[0], torch.ones(int(n)).sum() * kept.sum()

    before = counts["kept"]
    with running_what_is_kept():
        compiled = thunder.jit(program, executors=["torch"])
        for k in (1, 2, 3, 2):
            x = torch.randn(k + 3)
            for found, expected in zip(
                compiled(x, torch.tensor(k)), program(x, torch.tensor(k)), strict=True
            ):
                assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))
    assert counts["kept"] > before
