"""Cases of libraries: how a small program is built from one, and on what it is called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Calls = list[tuple[Any, ...]]
Compile = Callable[[torch.nn.Module], Any]


@dataclass(frozen=True)
class Case:
    """One program of a library.

    ``build`` imports the library, and returns the program, the positional arguments of each call, and perhaps
    keywords of all calls. Without ``grads`` no gradient is compared.
    """

    name: str
    build: Callable[[], tuple[Any, ...]]
    grads: bool = True

    @property
    def library(self) -> str:
        """The name of the library."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Use:
    """What a library does with a module that it is given: it trains, saves, or generates.

    ``run`` receives ``thunder.jit`` or a function that returns its argument, and applies it to the module
    that it gives to the library. It returns numbers, texts and tensors in containers.
    """

    name: str
    run: Callable[[Compile], Any]

    @property
    def library(self) -> str:
        """The name of the library."""
        return self.name.partition(".")[0]


CASES: list[Case] = []
USES: list[Use] = []


def case(name: str, grads: bool = True) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a case, named ``library.program``, whose builder is decorated."""

    def add(build: Callable[[], Any]) -> Callable[[], Any]:
        CASES.append(Case(name, build, grads))
        return build

    return add


def use(name: str) -> Callable[[Callable[[Compile], Any]], Callable[[Compile], Any]]:
    """Add a use, named ``library.what``, which is decorated."""

    def add(run: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
        USES.append(Use(name, run))
        return run

    return add


def graded(*shape: int) -> torch.Tensor:
    """Return random numbers that require grad."""
    return torch.randn(*shape, requires_grad=True)


def of_shape(*shapes: tuple[int, ...]) -> Calls:
    """Return two calls with tensors of these shapes that require grad."""
    return [tuple(graded(*shape) for shape in shapes) for _ in range(2)]


def plain(*shapes: tuple[int, ...]) -> Calls:
    """Return two calls with tensors of these shapes."""
    return [tuple(torch.randn(*shape) for shape in shapes) for _ in range(2)]


def tokens(size: int, *shapes: tuple[int, ...]) -> Calls:
    """Return two calls with integers below ``size`` of these shapes."""
    return [tuple(torch.randint(0, size, shape) for shape in shapes) for _ in range(2)]


class Wrapped(torch.nn.Module):
    """A module whose forward is a function of other modules and of its arguments."""

    def __init__(self, function: Callable[..., Any], *modules: torch.nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, torch.nn.ModuleList(modules)

    def forward(self, *args: Any) -> Any:
        return self.function(*self.parts, *args)
