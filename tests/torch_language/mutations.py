"""Calls of torch's functions with a fault in them: another type, too much, too little, another order, unknown
or repeated names. Eager says which of them are faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from thunder.base.pytree import tree_map
from torch_language import surface

#: makers of what is put in place of an argument, or beside it
STRANGERS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "2": lambda: 2,
    "-1": lambda: -1,
    "7": lambda: 7,
    "1.5": lambda: 1.5,
    "1j": lambda: 1j,
    "'a'": lambda: "a",
    "[]": lambda: [],
    "[1]": lambda: [1],
    "(0, 1)": lambda: (0, 1),
    "[0.5, 2.0]": lambda: [0.5, 2.0],
    "tensor(2.0)": lambda: torch.tensor(2.0),
    "tensor(1)": lambda: torch.tensor(1),
    "tensor(True)": lambda: torch.tensor(True),
    "tensor(2.0, grad)": lambda: torch.tensor(2.0, requires_grad=True),
    "tensor([1, 2, 0])": lambda: torch.tensor([1, 2, 0]),
    "tensor([])": lambda: torch.tensor([]),
    "float64[3]": lambda: torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64),
    "float16[3, 3]": lambda: torch.full((3, 3), 0.5, dtype=torch.float16),
    "bool[3, 3]": lambda: torch.eye(3) > 0,
    "[tensor, tensor]": lambda: [torch.ones(3), torch.ones(3)],
    "torch.float64": lambda: torch.float64,
    "int": lambda: int,
    "torch.Size": lambda: torch.Size([3, 1]),
    "numpy.float64": lambda: np.float64(2.0),
    "numpy.int64": lambda: np.int64(1),
    "slice": lambda: slice(0, 1),
    "...": lambda: ...,
}

#: names of arguments that torch's functions have, and one that none has
NAMES = (
    "input",
    "self",
    "other",
    "dim",
    "axis",
    "keepdim",
    "keepdims",
    "dtype",
    "out",
    "inplace",
    "p",
    "foo",
)


@dataclass(frozen=True)
class Mutant:
    """A call with one fault; ``what`` says which."""

    name: str
    what: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, or the method of the first argument."""
        prefix, _, last = self.name.rpartition(".")
        return getattr(surface.NAMESPACES[prefix], last)(*args, **kwargs)

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with tensors of their own."""
        copied: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(_copy, (self.args, self.kwargs))
        return copied

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


def _copy(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().clone().requires_grad_(x.requires_grad)


def mutants(called: surface.Called) -> Iterator[Mutant]:
    """The call as it is, and with each fault."""
    name, args = called.name, called.args
    yield Mutant(name, "as it is", args, {})
    for n in range(len(args)):
        yield Mutant(name, f"without argument {n}", (*args[:n], *args[n + 1 :]), {})
        for label, make in STRANGERS.items():
            yield Mutant(name, f"argument {n} is {label}", (*args[:n], make(), *args[n + 1 :]), {})
    for n in range(len(args) - 1):
        yield Mutant(name, f"arguments {n} and {n + 1} exchanged", _exchanged(args, n), {})
    for label, make in STRANGERS.items():
        yield Mutant(name, f"{label} more", (*args, make()), {})
        yield Mutant(name, f"{label} and 1 more", (*args, make(), 1), {})
    for key in NAMES:
        for label in ("None", "True", "-1", "1.5", "'a'", "tensor(2.0)", "torch.float64"):
            yield Mutant(name, f"{key}={label} more", args, {key: STRANGERS[label]()})
        if args:
            yield Mutant(name, f"the last as {key}=", args[:-1], {key: args[-1]})


def _exchanged(args: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    return (*args[:n], args[n + 1], args[n], *args[n + 2 :])
