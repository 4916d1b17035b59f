"""The surface of torch as a program meets it: its public functions and the attributes of tensors, each with
arguments that eager takes.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from thunder.base.pytree import tree_map

NAMESPACES: dict[str, Any] = {
    "torch.Tensor": torch.Tensor,
    "torch": torch,
    "torch.nn.functional": F,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.special": torch.special,
}

#: methods of tensors that Python's operators call
_OPERATORS = """
    abs add and eq floordiv ge getitem gt invert le lshift lt matmul mod mul ne neg or pos pow radd rand rdiv
    rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv rxor sub truediv xor iadd iand
    ifloordiv ilshift imod imul ior ipow irshift isub itruediv ixor setitem len
"""

#: what changes more than a call does
_LEFT_OUT = frozenset({"torch.Tensor.share_memory_", "torch.Tensor.backward", "torch.Tensor.__init__"})


def names() -> list[str]:
    """The public functions of torch that compute with tensors, and the attributes of tensors."""
    return sorted(
        f"{prefix}.{name}" for prefix, namespace in NAMESPACES.items() for name in _public(prefix, namespace)
    )


def attribute(name: str) -> Any:
    """What torch has under one of the names."""
    prefix, _, last = name.rpartition(".")
    return getattr(NAMESPACES[prefix], last, None)


def _public(prefix: str, namespace: Any) -> Iterator[str]:
    operators = {f"__{name}__" for name in _OPERATORS.split()}
    for name in dir(namespace):
        found = getattr(namespace, name, None)
        if f"{prefix}.{name}" in _LEFT_OUT or isinstance(found, type | types.ModuleType | str | dict):
            continue
        if namespace is torch.Tensor:
            if name in operators or not name.startswith("_"):
                yield name
        elif callable(found) and not name.startswith("_") and (namespace is not torch or _computes(name)):
            yield name


def _computes(name: str) -> bool:
    return hasattr(torch._C._VariableFunctions, name) or name in torch.functional.__all__


@dataclass(frozen=True)
class Called:
    """A name with arguments: ``call(*args)`` uses it as a program would."""

    name: str
    args: tuple[Any, ...]

    def call(self, *args: Any) -> Any:
        """Calls the function or method, or reads the attribute."""
        prefix, _, last = self.name.rpartition(".")
        namespace = NAMESPACES[prefix]
        if namespace is not torch.Tensor or last.startswith("__"):
            return getattr(namespace, last)(*args)
        if not callable(getattr(torch.Tensor, last, None)):
            return getattr(args[0], last)
        return getattr(args[0], last)(*args[1:])


@functools.cache
def found(name: str) -> Called | None:
    """The name with the first arguments that eager takes, or None."""
    for args in arguments():
        if name.rpartition(".")[2].startswith("__") and len(args) != _OPERANDS.get(name[15:-2], 2):
            continue
        called = Called(name, args)
        try:
            result = called.call(*copies(args))
        except Exception:  # whatever eager says to arguments that are not for it
            continue
        if result is not NotImplemented:
            return called
    return None


#: of operators that have not two
_OPERANDS = {"abs": 1, "invert": 1, "neg": 1, "pos": 1, "len": 1, "setitem": 3}


def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with tensors of their own."""
    return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, args)  # type: ignore[no-any-return]


@functools.cache
def arguments() -> tuple[tuple[Any, ...], ...]:
    """Arguments of all kinds of functions."""
    torch.manual_seed(0)
    x, y, z = (0.1 + 0.8 * torch.rand(3, 3) for _ in range(3))
    whole, mask, row = torch.arange(1, 10).reshape(3, 3), x > 0.5, torch.tensor([0, 2, 1])
    places = torch.tensor([[0, 1, 2], [2, 1, 0], [1, 1, 1]])
    mapped, vector = torch.rand(2, 3, 4, 4), torch.rand(4)
    cube = torch.rand(2, 3, 3)
    firsts = (x, whole, mask, torch.complex(x, y), vector, mapped, cube)
    rest: tuple[tuple[Any, ...], ...] = (
        *((), (y,), (2,), (0,), (0, 1), (1, 0), (0, row), (0, places), (0, places, z), (0, row, z)),
        *((0, row, 1.0), (mask, 0.5), (mask, y), (y, z), (y, z, y), ((3, 3),), (3, 3), (torch.float64,)),
        *((0.5,), (0, 1, 2), ((0,),), ((0, 1),), ((2,), (0,)), (row,), (places,), (places, y), (y[0],)),
        *((y[0], z[0]), (y, 0.5), ((1, 9),), ((3, 3), (1, 3)), (2, 0), ((1, 1),), (0, row, z, "prod")),
        *((0, places, z, "prod"), (0, 1.0), ((row,), y), ((row,), y[0]), ([1, 2], 0), ((0, 1), (1, 0))),
        *((0.0, 1.0), (y, 2, 1), (torch.rand(2, 3),), (torch.rand(5, 3, 3, 3),), (2.0, 0, 1.0), (0, (3, 1))),
        *((y[0], 1, 0), (torch.stack([x, y]), torch.stack([y, z])), (0.5, True), (2, 0, 2.0)),
    )
    others: tuple[tuple[Any, ...], ...] = (
        *(([x, y],), ((3, 3),), (3,), (0, 5), (0.0, 1.0, 5), ([x, y], 0), ("ij,jk->ik", x, y)),
        *((2, (3, 3)), (0, 5, (3, 3)), ((3, 3), (1, 3)), ((3, 3), 2.0), ([1.0, 2.0],), (mask, x, y)),
        *((row, x), (row, x, row), (2, x), (cube, cube), (x, cube, cube), (cube, cube, cube)),
        *((x[0], x, y[0]), (x[0], x[0]), (x[:, :2],), (mapped, (1, 1)), (mapped, 3)),
    )
    return (*((first, *more) for first in firsts for more in rest), *others)
