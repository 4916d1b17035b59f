"""Keys of ``x[key]`` and values of ``x[key] = value``, drawn at random from all kinds that eager knows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 3), (2, 3, 2), (0, 3), (2, 0))


def _mask(*rows: Any) -> torch.Tensor:
    return torch.tensor(rows)


#: makers of items, since tensors among them are inputs of their own in each call
ITEMS: dict[str, Callable[[], Any]] = {
    "0": lambda: 0,
    "-1": lambda: -1,
    "2": lambda: 2,
    "numpy.int64(1)": lambda: np.int64(1),
    "True": lambda: True,
    "False": lambda: False,
    "None": lambda: None,
    "...": lambda: ...,
    ":": lambda: slice(None),
    "1:": lambda: slice(1, None),
    "::2": lambda: slice(None, None, 2),
    "2:1": lambda: slice(2, 1),
    "[0, 1]": lambda: [0, 1],
    "[-1]": lambda: [-1],
    "[]": lambda: [],
    "(0, 1)": lambda: (0, 1),
    "(1,)": lambda: (1,),
    "()": lambda: (),
    "[[0, 1], [1, 0]]": lambda: [[0, 1], [1, 0]],
    "((0,), (1,))": lambda: ((0,), (1,)),
    "[[]]": lambda: [[]],
    "range(2)": lambda: range(2),
    "[True, False]": lambda: [True, False],
    "(True, False, True)": lambda: (True, False, True),
    "[True, 0]": lambda: [True, 0],
    "[[True, False, True], [False, False, True]]": lambda: [[True, False, True], [False, False, True]],
    "[None]": lambda: [None],
    "[1:]": lambda: [slice(1, None)],
    "tensor(1)": lambda: torch.tensor(1),
    "tensor(-1, int16)": lambda: torch.tensor(-1, dtype=torch.int16),
    "tensor([1, 0])": lambda: torch.tensor([1, 0]),
    "tensor([0], int32)": lambda: torch.tensor([0], dtype=torch.int32),
    "tensor([[1], [0]])": lambda: torch.tensor([[1], [0]]),
    "tensor([])": lambda: torch.tensor([], dtype=torch.int64),
    "tensor([1, 0], int8)": lambda: torch.tensor([1, 0], dtype=torch.int8),
    "tensor([1, 0], uint8)": lambda: torch.tensor([1, 0], dtype=torch.uint8),
    "tensor([1.0])": lambda: torch.tensor([1.0]),
    "tensor(1.0)": lambda: torch.tensor(1.0),
    "tensor([True, False])": lambda: _mask(True, False),
    "tensor([[True, ...]])": lambda: _mask([True, False, True], [False, True, False]),
    "tensor(True)": lambda: torch.tensor(True),
    "'a'": lambda: "a",
    "1.0": lambda: 1.0,
    "[1.0]": lambda: [1.0],
}

#: makers of values, by the part that the key selects in eager
VALUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "number": lambda part: 7,
    "complex number": lambda part: 1j,
    "truth value": lambda part: True,
    "same shape": lambda part: torch.rand(part.shape),
    "last dimension": lambda part: torch.rand(part.shape[-1:]),
    "leading ones": lambda part: torch.rand(1, 1, *part.shape),
    "other dtype": lambda part: torch.ones(part.shape, dtype=torch.int64),
    "tensor of no dimension": lambda part: torch.tensor(2.5, dtype=torch.float64),
    "another shape": lambda part: torch.rand(*part.shape, 5),
    "list": lambda part: [1.0],
    "None": lambda part: None,
}


@dataclass(frozen=True)
class Drawn:
    """A key for a tensor of a shape: its items by name, and whether it is one item or a tuple of them."""

    shape: tuple[int, ...]
    items: tuple[str, ...]
    bare: bool

    def key(self) -> Any:
        """The key, with tensors of its own."""
        made = [ITEMS[name]() for name in self.items]
        return made[0] if self.bare else tuple(made)

    def __str__(self) -> str:
        inner = ", ".join(self.items)
        return f"{list(self.shape)}[{inner if self.bare else f'({inner},)'}]"


def drawn(count: int, seed: int) -> Iterator[Drawn]:
    """All keys of one item, then ``count`` random ones of several."""
    for shape in SHAPES:
        for name in ITEMS:
            yield Drawn(shape, (name,), bare=True)
            yield Drawn(shape, (name,), bare=False)
    chance = random.Random(seed)
    for _ in range(count):
        shape = chance.choice(SHAPES[1:])
        yield Drawn(shape, tuple(chance.choices(list(ITEMS), k=chance.choice((2, 2, 3, 3, 4)))), bare=False)
