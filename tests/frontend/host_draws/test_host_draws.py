"""Random numbers of Python and of NumPy: drawn in each call, in eager's order, and undone with it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder


def generators() -> SimpleNamespace:
    """Seed the global generators, and return others."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return SimpleNamespace(
        python=random.Random(0), legacy=np.random.RandomState(0), numpy=np.random.default_rng(0), last=None
    )


def states(held: SimpleNamespace) -> Any:
    """Return the states of all generators, as text."""
    numpy_states = [np.random.get_state(), held.legacy.get_state(), held.numpy.bit_generator.state]
    return repr([random.getstate(), held.python.getstate(), torch.get_rng_state().tolist(), numpy_states])


def outcome(program: Any, held: SimpleNamespace) -> Any:
    """Return what a call returns or raises, as numbers."""
    try:
        result = program(torch.ones(3), held)
    except ValueError as error:
        return repr(error)
    return [r.tolist() if isinstance(r, torch.Tensor) else r for r in result]


def check(program: Any, calls: int = 8) -> Any:
    """Compare results and the states of generators with eager for several calls; return the compiled one."""
    held, expected = generators(), []
    for _ in range(calls):
        expected.append((outcome(program, held), states(held)))
    held, compiled = generators(), thunder.jit(program)
    for result, state in expected:
        assert outcome(compiled, held) == result
        assert states(held) == state
    return compiled


def numbers(x: torch.Tensor, held: Any) -> Any:
    held.last = random.random()
    y = x * held.last + random.uniform(1, 2) * np.random.rand() + held.python.gauss(0, 1)
    return y, held.legacy.normal(), held.numpy.random() * 2, np.random.randint(3) + x


def arrays(x: torch.Tensor, held: Any) -> Any:
    order = torch.from_numpy(np.random.permutation(3))
    return x[order] + torch.tensor(held.numpy.normal(size=3)), torch.rand(2)


def created(x: torch.Tensor, held: Any) -> Any:
    np.random.seed(3)
    own = np.random.default_rng(1)
    return (
        x * random.Random(2).random() + own.random(),
        torch.from_numpy(own.normal(size=2)),
        np.random.rand(),
    )


@pytest.mark.parametrize("program", [numbers, arrays, created])
def test_numbers_and_arrays_are_drawn_in_each_call(program: Any) -> None:
    assert thunder.cache_misses(check(program, 3)) == 1


def branch(x: torch.Tensor, held: Any) -> Any:
    if random.random() < 0.5:
        x = x * np.random.rand()
    return (x + 1,) if (x * held.numpy.random()).sum() > 1 else (x, torch.rand(1))


def position(x: torch.Tensor, held: Any) -> Any:
    return (x[random.randrange(2) : 2], held.python.choice([x, x * 2]))


def order(x: torch.Tensor, held: Any) -> Any:
    parts = [x, x + 1]
    held.python.shuffle(parts)
    return (*parts, *random.sample(parts, 1), *random.choices(["a", "b"], weights=[1, 0], k=2))


def several(x: torch.Tensor, held: Any) -> Any:
    """Decisions after draws that are decisions themselves."""
    shift = random.choice([0, 1])
    if np.random.rand(2).sum() > 1:
        x = x.flip(0)
    np.random.seed(3)
    return (torch.roll(x, shift) * held.legacy.randint(1, 2, dtype=np.int8), np.random.rand(2).sum())


def failing(x: torch.Tensor, held: Any) -> Any:
    if random.random() < 0.5:
        raise ValueError(f"{np.random.rand():.3f}")
    return (x,)


@pytest.mark.parametrize("program", [branch, position, order, several, failing])
def test_what_a_draw_decides_is_a_decision(program: Any) -> None:
    assert thunder.cache_hits(check(program)) > 0


def test_gradients_have_the_numbers_of_the_forward() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * random.random() + torch.from_numpy(np.random.rand(3)) * x).sum()

    gradients = []
    for run in (program, thunder.jit(program)):
        generators()
        x = torch.ones(3, requires_grad=True)
        run(x).backward()
        run(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_another_generator_is_another_program() -> None:
    held = SimpleNamespace(rng=np.random.default_rng(0))
    compiled = thunder.jit(lambda x: x * held.rng.random())
    for _ in range(2):
        held.rng = np.random.default_rng(5)
        assert compiled(torch.ones(())).item() == np.float32(np.random.default_rng(5).random())
    assert thunder.cache_misses(compiled) == 2


OUTSIDE = np.random.default_rng(0)


def refused_draws(x: torch.Tensor, place: str) -> Any:
    if place == "region":
        return checkpoint(lambda x: x * random.random(), x, use_reentrant=False)
    if place == "entropy":
        return x * np.random.Generator(np.random.PCG64()).random()
    return x * OUTSIDE.bit_generator.random_raw()


@pytest.mark.parametrize(
    ("place", "text"),
    [("region", "checkpointed"), ("entropy", "operating system"), ("bits", "bit_generator")],
)
def test_draws_that_cannot_be_repeated_are_refused(place: str, text: str) -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=text):
        thunder.jit(refused_draws)(torch.ones(2, requires_grad=True), place)


def test_draws_beside_an_opaque_callable_are_refused() -> None:
    opaque = thunder.opaque(lambda x: x * np.random.rand())
    with pytest.raises(thunder.UnsupportedProgram, match="opaque"):
        thunder.jit(lambda x: opaque(x) * np.random.rand())(torch.ones(2))


def seeds_lazily(x: torch.Tensor, held: SimpleNamespace) -> Any:
    if held.last is None:
        held.last = np.random.default_rng(4)
        held.python, held.legacy = random.Random(2), np.random.RandomState(1)
        held.last.random()
    drawn = held.last.random() + held.python.random() + held.legacy.rand()
    return x * drawn, [np.random.default_rng(5)] * 2


def test_a_generator_that_a_program_creates_and_stores_is_created_in_each_such_call() -> None:
    ours, theirs, compiled = generators(), generators(), thunder.jit(seeds_lazily)
    for call in range(5):
        if call == 3:
            ours.last = theirs.last = None
        product, (first, second) = compiled(torch.ones(2), ours)
        assert torch.equal(product, seeds_lazily(torch.ones(2), theirs)[0])
        assert first is second
        assert first.random() == np.random.default_rng(5).random()
        assert states(ours) == states(theirs)
        assert ours.last.spawn(1)[0].random() == theirs.last.spawn(1)[0].random()


def test_a_generator_that_shares_its_bits_is_not_stored() -> None:
    def shares(x: torch.Tensor) -> Any:
        bits = np.random.PCG64(1)
        return x, np.random.Generator(bits), np.random.Generator(bits)

    with pytest.raises(thunder.UnsupportedProgram, match="has its bit generator too"):
        thunder.jit(shares)(torch.ones(1))
