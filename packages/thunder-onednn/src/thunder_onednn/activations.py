"""The activations that oneDNN's kernels compute on their results before these are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from thunder.core.symbol import BoundSymbol

__all__ = ["NO_ACTIVATION", "Activation", "activation_of"]


@dataclass(frozen=True)
class Activation:
    """An activation as torch's operators of oneDNN take it: a name, numbers, and the name of an algorithm."""

    name: str = "none"
    numbers: tuple[float, ...] = ()
    algorithm: str = ""

    @property
    def arguments(self) -> tuple[str, tuple[float, ...], str]:
        """The arguments of an operator."""
        return self.name, self.numbers, self.algorithm


NO_ACTIVATION: Final = Activation()

#: operator → the activation of a call of it, from its arguments after the first; None for one that is no such
_ACTIVATIONS: Final[Mapping[str, Callable[..., Activation | None]]] = {
    "torch.nn.functional.relu": lambda *_: Activation("relu"),
    "torch.relu": lambda *_: Activation("relu"),
    "torch.sigmoid": lambda: Activation("sigmoid"),
    "torch.tanh": lambda: Activation("tanh"),
    "torch.nn.functional.silu": lambda *_: Activation("swish"),
    "torch.nn.functional.hardswish": lambda *_: Activation("hardswish"),
    "torch.nn.functional.leaky_relu": lambda slope=0.01, *_: Activation("leaky_relu", (float(slope),)),
    "torch.nn.functional.relu6": lambda *_: Activation("hardtanh", (0.0, 6.0)),
    "torch.nn.functional.hardtanh": lambda low=-1.0, high=1.0, *_: Activation(
        "hardtanh", (float(low), float(high))
    ),
    "torch.nn.functional.gelu": lambda approximate="none": Activation("gelu", (), approximate),
}


def activation_of(bsym: BoundSymbol) -> Activation | None:
    """Return the activation that a call computes of its first argument, or None."""
    make = _ACTIVATIONS.get(str(bsym.sym.id))
    if make is None or not all(type(x) in (int, float, bool, str) for x in bsym.args[1:]):
        return None
    return make(*bsym.args[1:], **bsym.kwargs)
