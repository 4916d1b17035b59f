"""Elements of tensors and of the user's arrays that a program writes into arrays of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import thunder


def set_row(target: Any, source: Any) -> None:
    target[0] = source


def set_all(target: Any, source: Any) -> None:
    target[...] = source


def set_by_list(target: Any, source: Any) -> None:
    target[[0, 1]] = source


def set_list(target: Any, source: Any) -> None:
    target[:] = [source, source]


def set_view(target: Any, source: Any) -> None:
    view = target[1]
    view[:] = source


def set_flat_items(target: Any, source: Any) -> None:
    target.flat[:3] = source


def set_flat(target: Any, source: Any) -> None:
    target.flat = source


def set_real(target: Any, source: Any) -> None:
    target[0].real = source


def set_part(target: Any, source: Any) -> None:
    target[0, :2] = source[:2]


def set_two(target: Any, source: Any) -> None:
    target[0], target[1] = source, source


def set_by_method(target: Any, source: Any) -> None:
    target.__setitem__(0, source)


def set_by_function(target: Any, source: Any) -> None:
    operator.setitem(target, 0, source)


def set_by_name(target: Any, source: Any) -> None:
    setattr(target, "flat", source)  # noqa: B010


def add(target: Any, source: Any) -> None:
    target += source


def copy_to(target: Any, source: Any) -> None:
    np.copyto(target, source)


def put(target: Any, source: Any) -> None:
    target.put([0, 1], source)


WRITES = [
    *(
        set_row,
        set_all,
        set_by_list,
        set_list,
        set_view,
        set_flat_items,
        set_flat,
        set_real,
        set_part,
        set_two,
    ),
    *(set_by_method, set_by_function, set_by_name, add, copy_to, put),
]
SOURCES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "input": lambda x, a: x.numpy(),
    "intermediate": lambda x, a: (x * 2).numpy(),
    "array": lambda x, a: a,
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_elements_that_are_written_are_those_of_the_call(write: Any, source: Any) -> None:
    """They must be read: what stands for an array of a tensor has memory without content."""

    def program(x: torch.Tensor, a: Any) -> torch.Tensor:
        target = np.zeros((2, 3))
        write(target, source(x, a))
        return torch.from_numpy(target)

    compiled = thunder.jit(program)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x, a = torch.rand(3, generator=generator), torch.rand(3, generator=generator).numpy()
        assert torch.equal(compiled(x, a), program(x, a))
