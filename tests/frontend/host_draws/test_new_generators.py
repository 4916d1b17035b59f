"""Random numbers of the operating system: generators without a seed, `secrets`; decisions on such values."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import thunder

X = torch.arange(10.0)


def shuffled(generator: Any) -> list[int]:
    items = [1, 2, 3]
    generator.shuffle(items)
    return items


#: name → a draw whose result differs from call to call
DRAWS: dict[str, Callable[[], Any]] = {
    "Random": lambda: random.Random().random(),
    "Random of None": lambda: random.Random(None).uniform(1, 2),
    "Random, integers": lambda: random.Random().getrandbits(30),
    "default_rng": lambda: np.random.default_rng().random(),
    "default_rng of None": lambda: np.random.default_rng(None).normal(),
    "RandomState": lambda: np.random.RandomState().rand(),
    "array": lambda: torch.from_numpy(np.random.default_rng().random(2)).sum(),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "SystemRandom, uniform": lambda: random.SystemRandom().uniform(1, 2),
    "randbits": lambda: secrets.randbits(30),
    "randbelow": lambda: secrets.randbelow(2**30),
    "two generators": lambda: random.Random().random() - random.Random().random(),
}
#: name → a draw on which the program decides
CHOICES: dict[str, Callable[[], Any]] = {
    "choice": lambda: secrets.choice([1, 2, 3]),
    "shuffle": lambda: shuffled(random.SystemRandom())[0],
    "sample": lambda: random.SystemRandom().sample([1, 2, 3], 2)[1],
    "choices": lambda: random.SystemRandom().choices([1, 2, 3])[0],
    "randint": lambda: random.SystemRandom().randint(1, 3),
    "Random, shuffle": lambda: shuffled(random.Random())[0],
    "Random, choice": lambda: random.Random().choice([1, 2, 3]),
    "default_rng, integers": lambda: int(np.random.default_rng().integers(1, 4)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_generator_without_a_seed_draws_other_numbers_in_each_call(draw: Callable[[], Any]) -> None:
    compiled = thunder.jit(lambda x: (x * draw(), draw()))
    drawn = [float(value) for _ in range(3) for value in (compiled(torch.ones(()))[0], compiled(X)[1])]
    assert len(set(drawn)) == len(drawn)
    assert thunder.cache_misses(compiled) <= 2


@pytest.mark.parametrize("draw", CHOICES.values(), ids=CHOICES)
def test_choices_of_the_system_are_decisions(draw: Callable[[], Any]) -> None:
    compiled = thunder.jit(lambda x: x * draw())
    assert {compiled(torch.ones(())).item() for _ in range(40)} == {1.0, 2.0, 3.0}


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Replace the operating system's numbers by a sequence that the result of this begins again."""
    source = random.Random()

    def numbers(count: int) -> bytes:
        return source.randbytes(count)

    monkeypatch.setattr("os.urandom", numbers)
    monkeypatch.setattr(random, "_urandom", numbers)
    return lambda: source.seed(0)


def one_of_ten(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if uuid.uuid4().int % 10 == 0 else x - 1


def one_of_ten_by_generator(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if np.random.default_rng().random() < 0.1 else x - 1


def item(x: torch.Tensor) -> torch.Tensor:
    return x[secrets.randbelow(10)]


def raises_sometimes(x: torch.Tensor) -> torch.Tensor:
    if secrets.randbelow(4) == 0:
        raise ValueError("one of four")
    return x


def outcomes(program: Callable[..., Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        try:
            yield program(X).tolist()
        except ValueError as error:
            yield repr(error)


@pytest.mark.parametrize("program", [one_of_ten, one_of_ten_by_generator, item])
def test_a_call_that_begins_again_has_the_same_numbers(program: Any, restart: Callable[[], None]) -> None:
    """Else a rare answer would become rarer: it would have to be drawn twice."""
    compiled = thunder.jit(program)
    restart()
    assert len({str(o) for o in outcomes(compiled, 100)}) > 1  # all that it compiles
    restart()
    expected = list(outcomes(program, 60))
    restart()
    assert list(outcomes(compiled, 60)) == expected
    assert thunder.compile_stats(compiled).runs_by_python == 0


def test_a_program_that_raises_for_such_a_number_raises_as_often() -> None:
    compiled = thunder.jit(raises_sometimes)
    raised = sum(type(outcome) is str for outcome in outcomes(compiled, 160))
    assert 10 < raised < 80  # 40 are expected, and 10 if the program would draw again


def test_effects_before_such_an_error_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print("begins")
        return raises_sometimes(x)

    compiled = thunder.jit(program)
    with pytest.raises(thunder.UnsupportedProgram, match="raises after it has decided on a value"):
        list(outcomes(compiled, 100))


def test_many_answers_are_compiled_though_there_is_a_limit() -> None:
    compiled = thunder.jit(lambda x: x + secrets.choice([*range(12)]), recompile_limit=2)
    assert len({compiled(torch.zeros(())).item() for _ in range(100)}) > 8
    assert len(thunder.compile_stats(compiled).interpreter_cache) <= 4


def test_a_generator_without_a_seed_that_leaves_the_program_is_a_new_one() -> None:
    def program(x: torch.Tensor) -> Any:
        generators = random.Random(), np.random.default_rng()
        return x * generators[0].random(), generators, generators[1]

    compiled = thunder.jit(program)
    drawn = set()
    for _ in range(3):
        _, (python, numpy), same = compiled(X)
        assert numpy is same
        drawn |= {python.random(), numpy.random()}
    assert len(drawn) == 6
    assert thunder.cache_misses(compiled) == 1
