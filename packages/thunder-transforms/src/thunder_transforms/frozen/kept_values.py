"""Values of weights, computed when a weight has changed and kept between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any, Final

import torch

from thunder.core.trace import TraceCtx

__all__ = ["KeptValues"]

_version = attrgetter("_version")
_address = torch.Tensor.data_ptr


#: elements up to which a buffer is compared by value
_SMALL: Final = 1 << 14


@dataclass(frozen=True)
class _Kept:
    """Values, with the weights that they were computed from as these were then."""

    weights: tuple[torch.Tensor, ...]
    versions: Sequence[int]
    addresses: Sequence[int]
    #: keeps the memory, so that no other tensor can have its address
    memory: Sequence[torch.Tensor]
    #: weights that are compared by value, with copies
    copies: Sequence[tuple[torch.Tensor, torch.Tensor]]
    values: Sequence[Any]

    def are_of(self, weights: tuple[torch.Tensor, ...]) -> bool:
        """Return whether these are the same tensors in the same memory, and nobody has written to them."""
        return (
            all(map(is_, weights, self.weights))
            and list(map(_version, weights)) == self.versions
            and list(map(_address, weights)) == self.addresses
            and all(torch.equal(weight, copy) for weight, copy in self.copies)
        )


class KeptValues:
    """A function of weights whose results are kept until one of the weights changes.

    A change is another tensor, other memory (`w.data = …`), or a write that torch counts (`Tensor._version`).
    It does not count what norms in training write to their running statistics, so that these, and other
    small buffers of floating-point numbers, are compared by value. Of tensors that were made in inference
    mode it counts nothing: their values are computed at each call.

    Args:
        name: of the function.
        program: computes the values of the weights.
        statistics: for each weight, whether it is known to be a running statistic.
    """

    def __init__(self, name: str, program: TraceCtx, statistics: Sequence[bool]) -> None:
        self.__name__ = name
        self.program, self._statistics = program, statistics
        self._compute: Callable[..., Sequence[Any]] = program.python_callable()
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def __call__(self, *weights: torch.Tensor) -> Sequence[Any]:
        """Return what the weights determine."""
        kept = self._kept
        if kept is not None and kept.are_of(weights):
            return kept.values
        if any(map(torch.Tensor.is_inference, weights)):
            return list(self._compute(*weights))
        with self._lock, torch.inference_mode(False), torch.no_grad():
            kept = self._kept = self._computed(weights)
        return kept.values

    def _computed(self, weights: tuple[torch.Tensor, ...]) -> _Kept:
        """Return the values of weights; one that is written meanwhile counts as changed."""
        versions, addresses = list(map(_version, weights)), list(map(_address, weights))
        memory = [weight.detach() for weight in weights]
        copies = [
            (weight, weight.detach().clone())
            for weight, is_statistic in zip(weights, self._statistics, strict=True)
            if is_statistic or _is_small_buffer(weight)
        ]
        return _Kept(weights, versions, addresses, memory, copies, list(self._compute(*weights)))


def _is_small_buffer(weight: torch.Tensor) -> bool:
    is_buffer = not isinstance(weight, torch.nn.Parameter) and weight.is_floating_point()
    return is_buffer and weight.numel() <= _SMALL
