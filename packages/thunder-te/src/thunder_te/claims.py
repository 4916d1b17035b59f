"""Which linear layers an executor of this package computes, and why not the others."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import thunder
from thunder.core.errors import UnknownExecutor
from thunder.extend import Refusal, device_profile, get_executor

from .active_recipe import DEFAULT, active
from .recipes import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    Recipe,
    UnsupportedRecipe,
)

__all__ = ["capability_refusal", "layer_refusal", "stored_refusal"]

#: recipe → what the sizes of a layer must be multiples of
_MULTIPLES: Final[dict[type[Recipe], int]] = {MXFP8BlockScaling: 32, NVFP4BlockScaling: 32}
_DTYPES: Final = (thunder.float32, thunder.bfloat16, thunder.float16)
#: recipe → the first compute capability with kernels, and the first without, or None. Transformer Engine's
#: `check_fp8_support`, `check_fp8_block_scaling_support`, `check_mxfp8_support`, `check_nvfp4_support`
_CAPABILITIES: Final[dict[type[Recipe], tuple[tuple[int, int], tuple[int, int] | None]]] = {
    DelayedScaling: ((8, 9), None),
    Float8CurrentScaling: ((8, 9), None),
    Float8BlockScaling: ((9, 0), (10, 0)),
    MXFP8BlockScaling: ((10, 0), (12, 0)),
    NVFP4BlockScaling: ((10, 0), None),
}
#: the first compute capability without the instruction that rounds stochastically (NVIDIA, "PTX ISA" 8.7,
#: `cvt.rs.satfinite.e2m1x4.f32`: sm_100a and sm_103a)
_WITHOUT_STOCHASTIC_ROUNDING: Final = (12, 0)


def layer_refusal(x: Any, weight: Any, bias: Any, has_scales: bool) -> Refusal | None:
    """Return why a linear layer is not computed in 8 bits under the recipe in force, or None."""
    if not _is_registered():
        return Refusal("plugin", "the plugin of thunder-te is disabled, so that the recipe is not guarded")
    recipe = active().recipe
    if recipe is None:
        return Refusal("disabled", "autocast(enabled=False) switches FP8 off")
    name = type(recipe).__name__
    if isinstance(recipe, UnsupportedRecipe):
        return Refusal("recipe", recipe.reason)
    if isinstance(recipe, DelayedScaling) and not has_scales:
        return Refusal(
            "state",
            "delayed scaling has scales for the weights of nn.Linear modules, and this is not one",
            recipe=name,
        )
    refusal = _dtype_refusal(x, weight, bias)
    multiple = _MULTIPLES.get(type(recipe), 16)
    return _size_refusal(x, weight, bias, multiple) if refusal is None else refusal


def stored_refusal(x: Any, weight: Any, bias: Any) -> Refusal | None:
    """Return why a product with a weight that is stored in 8 bits is not computed in 8 bits, or None."""
    refusal = _dtype_refusal(x, None, bias)
    return _size_refusal(x, weight, bias, 16) if refusal is None else refusal


def _dtype_refusal(x: Any, weight: Any, bias: Any) -> Refusal | None:
    for what, tensor in (("input", x), ("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype not in _DTYPES:
            return Refusal("dtype", f"the {what} is not float32, bfloat16 or float16", dtype=tensor.dtype)
    return None


def _size_refusal(x: Any, weight: Any, bias: Any, multiple: int) -> Refusal | None:
    if weight.ndim != 2 or x.ndim < 2 or (bias is not None and tuple(bias.shape) != (weight.shape[0],)):
        return Refusal("shape", "the layer is not a product of matrices", shape=tuple(x.shape))
    sizes = {"rows": prod(x.shape[:-1]), "in": weight.shape[1], "out": weight.shape[0]}
    wrong = {what: size for what, size in sizes.items() if size % multiple or not size}
    return Refusal("multiple", f"sizes have to be multiples of {multiple}", **wrong) if wrong else None


def _is_registered() -> bool:
    """Return whether the plugin is registered, whose hook guards the recipe."""
    try:
        get_executor("fp8_reference")
    except UnknownExecutor:
        return False
    return True


def capability_refusal(x: Any, *rest: Any) -> Refusal | None:
    """Return why the device of a layer has no kernels for the recipe in force, or None."""
    recipe, profile = active().recipe or DEFAULT, device_profile(x.device)
    if profile.type != "cuda" or not profile.capability:
        return Refusal("device", "Transformer Engine computes on CUDA devices", device=profile.name)
    first, end = _CAPABILITIES[type(recipe)]
    if isinstance(recipe, NVFP4BlockScaling) and not recipe.disable_stochastic_rounding:
        end = _WITHOUT_STOCHASTIC_ROUNDING
    if profile.capability >= first and (end is None or profile.capability < end):
        return None
    needed = ".".join(map(str, first)) + (" or later" if end is None else f" to below {end[0]}.{end[1]}")
    return Refusal(
        "capability",
        f"{type(recipe).__name__} needs compute capability {needed}",
        device=profile.name,
        found=".".join(map(str, profile.capability)),
    )
