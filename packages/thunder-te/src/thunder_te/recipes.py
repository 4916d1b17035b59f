"""Recipes: how the tensors of a linear layer are scaled before they are rounded to 8 bits, or 4.

The classes have the names and fields of Transformer Engine 2.20 (`transformer_engine.common.recipe`), as far
as they matter to linear layers, and can be used without it. They are frozen, so that a program can be guarded
by the recipe that it was compiled with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final, Literal

import torch

from thunder.core.errors import InvalidArgument

__all__ = [
    "RECIPES",
    "DelayedScaling",
    "Float8BlockScaling",
    "Float8CurrentScaling",
    "Format",
    "MXFP8BlockScaling",
    "NVFP4BlockScaling",
    "Recipe",
    "UnsupportedRecipe",
    "as_recipe",
]


class Format(Enum):
    """The 8-bit formats of the forward and of the backward.

    E4M3 has 4 bits of exponent and reaches 448, E5M2 has 5 and reaches 57344. HYBRID rounds cotangents to
    E5M2 and everything else to E4M3. Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
    """

    E4M3 = "E4M3"
    HYBRID = "HYBRID"

    @property
    def forward(self) -> torch.dtype:
        """The dtype of inputs and weights."""
        return torch.float8_e4m3fn

    @property
    def backward(self) -> torch.dtype:
        """The dtype of cotangents."""
        return torch.float8_e5m2 if self is Format.HYBRID else torch.float8_e4m3fn


@dataclass(frozen=True)
class Recipe:
    """The base class of recipes."""

    def __post_init__(self) -> None:
        if not isinstance(getattr(self, "fp8_format", Format.E4M3), Format):
            raise InvalidArgument(
                f"{type(self).__name__} received fp8_format={getattr(self, 'fp8_format', None)!r}",
                hint="Write Format.HYBRID or Format.E4M3.",
            )


@dataclass(frozen=True)
class DelayedScaling(Recipe):
    """One scale for each tensor, from the largest magnitudes of earlier steps.

    scale = largest(format) / amax / 2**margin, where amax is the largest of the last `amax_history_len`
    steps, or that of the last one with `amax_compute_algo="most_recent"`. With `reduce_amax` the largest
    magnitudes are those of all processes of the group.
    """

    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: Literal["max", "most_recent"] = "max"
    reduce_amax: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.amax_compute_algo not in ("max", "most_recent"):
            raise InvalidArgument(
                f"DelayedScaling received amax_compute_algo={self.amax_compute_algo!r}",
                hint='Write "max" or "most_recent"; a function is not supported.',
            )
        if type(self.amax_history_len) is not int or self.amax_history_len < 1:
            raise InvalidArgument(
                f"DelayedScaling received amax_history_len={self.amax_history_len!r}",
                hint="It is the number of steps that are remembered, 1 or more.",
            )


@dataclass(frozen=True)
class Float8CurrentScaling(Recipe):
    """One scale for each tensor, from its own largest magnitude: scale = largest(format) / amax."""

    fp8_format: Format = Format.HYBRID
    use_power_2_scales: bool = False


@dataclass(frozen=True)
class Float8BlockScaling(Recipe):
    """A scale for 128 elements of a row of inputs and cotangents, and for 128 by 128 of weights.

    The scales are powers of two, unless `use_f32_scales`.
    """

    fp8_format: Format = Format.E4M3
    use_f32_scales: bool = False


@dataclass(frozen=True)
class MXFP8BlockScaling(Recipe):
    """A scale for each 32 elements in the direction of the sum, a power of two.

    Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, 2023.
    """

    fp8_format: Format = Format.E4M3


@dataclass(frozen=True)
class NVFP4BlockScaling(Recipe):
    """Four bits with a scale in E4M3 for 16 elements in the direction of the sum, and one for the tensor.

    Weights have a scale for 16 by 16 elements, unless `disable_2d_quantization`. Inputs and cotangents are
    transformed by a Hadamard matrix for the gradient of the weight, unless `disable_rht`. Cotangents are
    rounded stochastically, unless `disable_stochastic_rounding`: a step of two backwards has other numbers.

    NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv:2509.25149.
    """

    disable_rht: bool = False
    disable_stochastic_rounding: bool = False
    disable_2d_quantization: bool = False


RECIPES: Final[tuple[type[Recipe], ...]] = (
    DelayedScaling,
    Float8CurrentScaling,
    Float8BlockScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)

#: fields of Transformer Engine's recipes that are not implemented, with the values that change nothing
_NEUTRAL: Final[Mapping[str, object]] = {
    "backward_override": None,
    "fp8_dpa": False,
    "fp8_mha": False,
    "grad_block_scaling_dim": 1,
    "nvfp4_4over6": "none",
    "row_scaled_activation": False,
    "scaling_factor_compute_algo": None,
    "w_block_scaling_dim": 2,
    "x_block_scaling_dim": 1,
}
_QUANTISED: Final = ("fp8_quant_fwd_inp", "fp8_quant_fwd_weight", "fp8_quant_bwd_grad")


@dataclass(frozen=True)
class UnsupportedRecipe(Recipe):
    """A recipe of Transformer Engine that nothing here computes, with the reason."""

    reason: str = ""


def as_recipe(recipe: Any) -> Recipe:
    """Return a recipe of this package; one of Transformer Engine is converted, field by field.

    Raises InvalidArgument for anything else, and for settings that are not implemented.
    """
    if isinstance(recipe, Recipe):
        return recipe
    own = {cls.__name__: cls for cls in RECIPES}.get(type(recipe).__name__)
    if own is None or not type(recipe).__module__.startswith("transformer_engine."):
        raise InvalidArgument(
            f"{recipe!r} is not a recipe",
            found={"recipes": ", ".join(cls.__name__ for cls in RECIPES)},
        )
    for name, neutral in _NEUTRAL.items():
        if getattr(recipe, name, neutral) != neutral:
            raise InvalidArgument(f"{name}={getattr(recipe, name)!r} of {own.__name__} is not implemented")
    if any(getattr(getattr(recipe, name, None), "amax_epsilon", 0.0) for name in _QUANTISED):
        raise InvalidArgument(f"amax_epsilon of {own.__name__} is not implemented")
    values = {field.name: getattr(recipe, field.name) for field in fields(own) if hasattr(recipe, field.name)}
    if "fp8_format" in values:
        values["fp8_format"] = _format(values["fp8_format"])
    return own(**values)


def _format(value: Any) -> Format:
    name = str(getattr(value, "name", value))
    if name not in Format.__members__:
        raise InvalidArgument(f"the format {value!r} is not implemented", hint="Use HYBRID or E4M3.")
    return Format[name]
