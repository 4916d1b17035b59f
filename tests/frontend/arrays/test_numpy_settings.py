"""NumPy's settings in regions of a program, and generators that a program creates."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import thunder
from thunder.base.errors import UnsupportedProgram

RNG = np.random.default_rng(7)


def ratio(a: float, b: float) -> float:
    return float(np.float64(a) / np.float64(b))


@np.errstate(divide="raise")
def checked(b: float) -> float:
    try:
        return ratio(1.0, b)
    except FloatingPointError:
        return -1.0


def ignores(x: torch.Tensor) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(np.array([0.0, 1.0, -1.0]))
    return x * float(np.nan_to_num(values)[1]), values.tolist()[0]


def raises(x: torch.Tensor) -> Any:
    with np.errstate(all="raise"):
        inner = np.geterr()["over"]
        with np.errstate(divide="ignore"):
            first = ratio(1.0, 0.0)
        try:
            ratio(0.0, 0.0)
        except FloatingPointError as error:
            return x * 2, inner, first, str(error), checked(0.0), checked(2.0)
    return x


def reads(x: torch.Tensor) -> Any:
    try:
        return x + ratio(1.0, 0.0), np.geterr()
    except FloatingPointError:
        return x - 1, np.geterr()


def sets(x: torch.Tensor) -> Any:
    old = np.seterr(divide="raise", over="ignore")
    inside = np.geterr()
    np.seterr(**old)
    return x, old, inside, np.geterr()


def prints(x: torch.Tensor) -> Any:
    with np.printoptions(precision=2) as options:
        text = f"{np.array([1.23456])}"
    return x, text, options["precision"], str(np.array([1.23456])), np.array2string(np.array([1.5, 2]))


def sequences(x: torch.Tensor) -> Any:
    root = np.random.SeedSequence(5)
    first, second = root.spawn(2)
    words = second.generate_state(2).tolist()
    draws = [np.random.default_rng(s).random() for s in (first, second, root)]
    return x * draws[0], draws, words, root.n_children_spawned, root.entropy, first.spawn_key


def generators(x: torch.Tensor) -> Any:
    rng = np.random.Generator(np.random.PCG64(3))
    state = rng.bit_generator.state
    before = rng.random()
    rng.bit_generator.state = state
    again, children = rng.random(), rng.spawn(2)
    shared = np.random.RandomState(np.random.MT19937(2))
    return x * before, before == again, children[1].integers(9), shared.rand(), rng.permutation(4).tolist()


def passes_on(x: torch.Tensor) -> Any:
    return x * np.random.default_rng(RNG).random()


@pytest.mark.parametrize("program", [ignores, raises, prints, sequences, generators, passes_on, sets])
def test_a_program_is_as_in_eager(program: Callable[[torch.Tensor], Any], recwarn: Any) -> None:
    compiled, state = thunder.jit(program), RNG.bit_generator.state
    results = []
    for fn in (program, compiled):
        RNG.bit_generator.state = state
        results.append([repr(fn(torch.ones(2) * i)) for i in range(3)])
    assert results[0] == results[1]
    assert thunder.cache_misses(compiled) == 1
    assert not recwarn


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_settings_of_the_caller_are_facts() -> None:
    compiled, x = thunder.jit(reads), torch.ones(2)
    for setting in ("warn", "raise", "ignore", "raise"):
        with np.errstate(divide=setting):
            assert repr(compiled(x)) == repr(reads(x))

    def shows(x: torch.Tensor) -> Any:
        return x, str(np.array([1.23456])), np.array2string(np.array([1.23456]))

    compiled = thunder.jit(shows)
    for precision in (8, 3, 2):
        with np.printoptions(precision=precision):
            assert repr(compiled(x)) == repr(shows(x))


def test_a_setting_that_a_program_leaves_is_left_by_each_call() -> None:
    def leaves(x: torch.Tensor) -> torch.Tensor:
        np.seterr(divide="raise")
        return x + 1

    compiled, before = thunder.jit(leaves), np.geterr()
    for _ in range(2):
        compiled(torch.ones(2))
        found = np.geterr()
        np.seterr(**before)
        assert found == {**before, "divide": "raise"}


def test_a_function_that_numpy_calls_is_refused() -> None:
    def calls(x: torch.Tensor) -> torch.Tensor:
        with np.errstate(divide="call", call=lambda kind, flag: None):
            return x * ratio(1.0, 0.0)

    with pytest.raises(UnsupportedProgram, match="a function that NumPy calls at floating-point errors"):
        thunder.jit(calls)(torch.ones(2))


def test_a_generator_without_a_seed_is_refused() -> None:
    def unseeded(x: torch.Tensor) -> Any:
        return x * np.random.Generator(np.random.PCG64()).random()

    with pytest.raises(UnsupportedProgram, match="with a seed of the operating system"):
        thunder.jit(unseeded)(torch.ones(2))


def test_a_submodule_that_numpy_loads_at_its_first_use_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads_submodule(x: torch.Tensor) -> Any:
        return x * 2, np.typing.__name__

    monkeypatch.delitem(sys.modules, "numpy.typing", raising=False)
    monkeypatch.delitem(vars(np), "typing", raising=False)
    compiled = thunder.jit(reads_submodule)
    for _ in range(2):
        assert compiled(torch.ones(()))[1] == "numpy.typing"
    assert thunder.cache_misses(compiled) == 1


FACTOR = 2
SCALED = np.frompyfunc(lambda a: a * FACTOR, 1, 1)


def test_a_function_of_numpy_that_calls_one_of_python_is_refused() -> None:
    for argument in (3, np.array([3])):
        with pytest.raises(
            UnsupportedProgram, match=r"numpy.ufunc <lambda> \(vectorized\) is implemented in C"
        ):
            thunder.jit(lambda x, argument=argument: x * SCALED(argument))(torch.ones(1))


def test_functions_of_numpys_kind_of_another_library_compute() -> None:
    special = pytest.importorskip("scipy.special")

    def scaled(x: torch.Tensor) -> Any:
        values = special.expit(np.array([0.0, 2.0]))
        return x * float(values[1]), torch.from_numpy(special.expit(x.numpy())), values.device

    compiled = thunder.jit(scaled)
    for i in range(2):
        x = torch.ones(2) * i
        assert repr(compiled(x)) == repr(scaled(x))
