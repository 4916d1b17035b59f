"""Torch's checks of the gradients that a backward of the program returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.devices import to_torch_device


@dataclass(frozen=True, eq=False)
class Argument:
    """The properties of an argument of a function that its gradient must fit."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any
    requires_grad: bool

    @classmethod
    def of(cls, value: Any) -> Argument | None:
        """Return the properties of an argument, or None if it is not a tensor."""
        if not isinstance(value, torch.Tensor):
            return None
        return cls(tuple(value.shape), value.dtype, value.device, value.requires_grad)


def checked(name: str, arguments: Sequence[Argument | None], given: Any) -> tuple[Any, ...]:
    """Return the gradients of the arguments that require grad, from the results of a backward.

    ``name`` is that of the function. Raises torch's errors for results that torch refuses.
    """
    gradients = given if isinstance(given, tuple) else (given,)
    count = len(arguments)
    if len(gradients) < count or any(g is not None for g in gradients[count:]):
        raise RuntimeError(
            f"function {name}Backward returned an incorrect number of gradients "
            f"(expected {count}, got {len(gradients)})"
        )
    pairs = list(zip(arguments, gradients, strict=False))
    for i, (argument, gradient) in enumerate(pairs):
        if gradient is not None:
            _check(name, i, argument, gradient)
    return tuple(g for a, g in pairs if a is not None and a.requires_grad)


def _check(name: str, index: int, argument: Argument | None, gradient: Any) -> None:
    if argument is None:
        raise RuntimeError(
            f"function {name}Backward returned a gradient different than None at position {index + 1}, "
            "but the corresponding forward input was not a Variable"
        )
    if not isinstance(gradient, torch.Tensor):
        raise RuntimeError(f"expected Variable or None (got {type(gradient).__name__})")
    if argument.requires_grad and not _stretched(argument.shape, tuple(gradient.shape)):
        raise RuntimeError(
            f"Function {name}Backward returned an invalid gradient at index {index} - got "
            f"{list(gradient.shape)} but expected shape compatible with {list(argument.shape)}"
        )


def _stretched(shape: tuple[int, ...], by: tuple[int, ...]) -> bool:
    """Return whether a shape can be expanded to another."""
    leading = len(by) - len(shape)
    return leading >= 0 and all(a in (1, b) for a, b in zip(shape, by[leading:], strict=True))


def fitted_to(argument: Argument, gradient: torch.Tensor | None) -> torch.Tensor:
    """Return a gradient with its argument's shape and dtype, as torch does; zeros for None."""
    dtype, device = argument.dtype.torch_dtype, to_torch_device(argument.device)
    if gradient is None:
        return torch.zeros(argument.shape, dtype=dtype, device=device)
    if gradient.shape != argument.shape:
        gradient = gradient.sum_to_size(argument.shape)
    if gradient.is_complex() and not dtype.is_complex:
        gradient = gradient.real
    return gradient.to(dtype)
