"""Tensors as arguments for which torch wants numbers: it reads their value, as `item` does.

    y = leaky_relu(x, x.max())   →   t0 = max(x); f0 = item(t0); y = leaky_relu(x, f0)

Which parameters are numbers is read from the schemas of torch's operators.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch

from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy

__all__ = ["with_numbers"]

#: types of schemas that are numbers
_NUMBERS: Final = frozenset({"number", "float", "Optional[number]", "Optional[float]"})


def with_numbers(
    session: TracingSession, symbol: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with the values of floating-point tensors that it takes as numbers."""
    if not any(map(_may_be_number, args[1:])) and not (kwargs and any(map(_may_be_number, kwargs.values()))):
        return args, kwargs
    places = _number_places(getattr(symbol, "id", ""))

    def value(place: int | str, x: Any) -> Any:
        is_number = place in places and _may_be_number(x)
        return session.call(torch.Tensor.item, (x,), {}) if is_number else x

    return tuple(value(i, x) for i, x in enumerate(args)), {k: value(k, x) for k, x in kwargs.items()}


def _may_be_number(x: Any) -> bool:
    return type(x) is TensorProxy and not x.shape and x.dtype.is_floating_point and not x.requires_grad


@cache
def _number_places(operator_id: str) -> frozenset[int | str]:
    """Return the positions and names of parameters that are numbers in each overload that has them."""
    path = operator_id.removeprefix("torch.").removeprefix("nn.functional.").removeprefix("Tensor.")
    packet = getattr(torch.ops.aten, path.replace(".", "_"), None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return frozenset()
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    kinds: dict[int | str, set[str]] = {}
    for schema in schemas:
        for position, parameter in enumerate(schema.arguments):
            kinds.setdefault(parameter.name, set()).add(str(parameter.type))
            if not parameter.kwarg_only:
                kinds.setdefault(position, set()).add(str(parameter.type))
    return frozenset(place for place, types in kinds.items() if types <= _NUMBERS)
