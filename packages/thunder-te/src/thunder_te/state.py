"""The state of delayed scaling of one layer, and its update after a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .formulas import updated_state
from .recipes import DelayedScaling

__all__ = ["LayerState", "Place", "new_state", "update"]


class LayerState(NamedTuple):
    """The scales f32 `(3,)` of input, weight and cotangent, and their histories f32 `(steps, 3)`."""

    scale: Tensor
    amax_history: Tensor


class Place(NamedTuple):
    """The place of a largest magnitude: the name of a layer's weight, and the column of its state."""

    layer: str
    column: int


def new_state(steps: int, device: torch.device) -> dict[str, Tensor]:
    """Return the state of a layer before its first step, by the suffixes of the tensors' names."""
    return {
        "fp8_scale": torch.ones(3, device=device),
        "fp8_amax_history": torch.zeros(steps, 3, device=device),
    }


@torch.no_grad()
def update(
    states: Mapping[str, LayerState],
    places: Sequence[Place],
    amaxes: Sequence[Tensor],
    recipe: DelayedScaling,
    group: Any,
) -> None:
    """Write the scales and histories after a step with these largest magnitudes, f32 `()` each.

    Of several magnitudes for one place, the largest counts: a layer may be called several times in a step.
    With `reduce_amax` it is the largest of all processes of the group.
    """
    amax = torch.stack(list(amaxes))
    if recipe.reduce_amax and dist.is_available() and dist.is_initialized():
        dist.all_reduce(amax, op=dist.ReduceOp.MAX, group=group)
    by_place: dict[Place, Tensor] = {}
    for place, value in zip(places, amax.unbind(), strict=True):
        earlier = by_place.get(place)
        by_place[place] = value if earlier is None else torch.maximum(earlier, value)
    for layer in dict.fromkeys(place.layer for place in by_place):
        columns = [place.column for place in by_place if place.layer == layer]
        values = torch.stack([by_place[Place(layer, column)] for column in columns])
        _update_layer(states[layer], columns, values, recipe)


def _update_layer(state: LayerState, columns: list[int], amax: Tensor, recipe: DelayedScaling) -> None:
    formats = (recipe.fp8_format.forward, recipe.fp8_format.forward, recipe.fp8_format.backward)
    largest = amax.new_tensor([torch.finfo(formats[column]).max for column in columns])
    history, scale = updated_state(
        state.amax_history[:, columns],
        state.scale[columns],
        amax,
        largest,
        recipe.margin,
        recipe.amax_compute_algo,
    )
    state.scale[columns] = scale
    state.amax_history[:, columns] = history
