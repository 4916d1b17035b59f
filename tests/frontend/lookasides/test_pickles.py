"""Pickles of objects in programs: of what the program sees, and without code of classes."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

X = torch.ones(2)


class Config:
    def __init__(self) -> None:
        self.scale = 2.0
        self.sizes = [1, (2, "x")]
        self.same = self.sizes


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any = None


class WithState(Config):
    def __getstate__(self) -> dict[str, Any]:
        return {"scale": 3.0}


class WithAttributes(Config):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


CONFIG = Config()


def check(fn: Any, misses: int = 1) -> Any:
    compiled = thunder.jit(fn)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), fn(X), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == misses
    return compiled


def test_an_object_of_the_program_is_copied_by_its_pickle() -> None:
    def fn(x: torch.Tensor) -> Any:
        pair = Pair(Config(), {"k": {1, 2}})
        copy = pickle.loads(pickle.dumps(pair))
        copy.first.sizes.append(3)
        shared = copy.first.sizes is copy.first.same, type(copy) is Pair
        return (
            x * copy.first.scale,
            shared,
            len(pair.first.sizes),
            sorted(copy.second["k"]),
            type(copy) is Pair,
        )

    check(fn)


def test_what_is_pickled_is_a_fact_and_what_was_written_is_seen() -> None:
    def fn(x: torch.Tensor) -> Any:
        CONFIG.seen = 1
        copy = pickle.loads(pickle.dumps(CONFIG))
        return x * copy.scale, copy.seen, len(pickle.dumps(CONFIG, protocol=4))

    vars(CONFIG).pop("seen", None)
    fn(X)
    compiled = check(fn)
    CONFIG.scale = 5.0
    torch.testing.assert_close(compiled(X), fn(X), rtol=0, atol=0)
    CONFIG.scale = 2.0


def test_an_object_is_loaded_of_a_pickle_of_the_user() -> None:
    data = pickle.dumps(Pair(2.0, [Pair(1)]))
    check(lambda x: (x * pickle.loads(data).first, pickle.loads(data).second[0].first))


@pytest.mark.parametrize("value", [WithState(), WithAttributes(), X])
def test_what_says_itself_how_it_is_pickled_is_refused(value: Any) -> None:
    with pytest.raises(UnsupportedProgram, match="neither plain data nor an object with a __dict__ alone"):
        thunder.jit(lambda x: (x, pickle.dumps(value)))(X)
    data = pickle.dumps(value)
    with pytest.raises(UnsupportedProgram, match=r"pickle.loads of an object of the class"):
        thunder.jit(lambda x: (x, pickle.loads(data)))(X)


def test_numbers_out_of_tensors_and_their_texts_are_pickled_with_their_values() -> None:
    def program(x: torch.Tensor, t: torch.Tensor) -> Any:
        n = int(t)
        return pickle.dumps((n, [n + 1, t.item() / 2, x.shape[0]], {"name": f"layer {n}"}, Pair(n, (n, n))))

    compiled = thunder.jit(program, executors=["torch"])
    for value in (1, 2, 3, 1):
        x, t = torch.ones(value), torch.tensor(value)
        assert pickle.loads(compiled(x, t)) == pickle.loads(program(x, t))
