"""Which calls a region may contain, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from thunder import TensorProxy
from thunder.core.proxies import NumberProxy, Proxy
from thunder.extend import Refusal, compile_option, device_profile

from .data_types import NUMBERS, names
from .sort_rules import RUNNING, SORTS

__all__ = ["CHECKERS", "INDEXED", "PRODUCTS", "unfit_value"]

PRODUCTS: Final = ("linear", "matmul")
INDEXED: Final = ("embedding", "gather", "scatter", "take", "take_along_axis")
#: operations of nvFuser that are defined for floating-point numbers alone, or checked by torch for integers
_OF_FLOATS: Final = names(
    "ceil floor isfinite isinf isnan pow remainder fmod round sign signbit trunc nextafter cumprod prod"
)


def unfit_value(p: Proxy, device_types: frozenset[str]) -> Refusal | None:
    """Return why a region does not have a value of any dtype, or None."""
    if isinstance(p, NumberProxy):
        if p.python_type not in NUMBERS:
            return Refusal("number", "nvFuser takes real numbers", value=p.name)
        return None
    if not isinstance(p, TensorProxy):
        return Refusal("value", "a region computes tensors from tensors and numbers", value=p.name)
    profile = device_profile(p.device)
    if profile.type not in device_types or (profile.type == "cuda" and not profile.capability):
        return Refusal("device", "nvFuser computes on CUDA devices", device=profile.name)
    if 0 in p.shape:
        return Refusal("empty", "tensors without elements are left to torch", shape=tuple(p.shape))
    return None


def _known_numbers(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse a number that varies beside a tensor of 16 bits, to which nvFuser does not round it."""
    halves = any(isinstance(x, TensorProxy) and x.dtype.torch_dtype.itemsize == 2 for x in args)
    if halves and any(isinstance(x, NumberProxy) for x in args):
        return Refusal("number", "a number that varies is not rounded to 16 bits")
    return True


def _floats_and_known_numbers(*args: Any, **kwargs: Any) -> bool | Refusal:
    return _known_numbers(*args) and _of_floats(*args)


def _of_floats(*args: Any, **kwargs: Any) -> bool | Refusal:
    if any(isinstance(x, TensorProxy) and not x.dtype.is_floating_point for x in args):
        return Refusal("integers", "nvFuser computes this operator on floating-point numbers")
    return True


def _nextafter(a: Any, b: Any) -> bool | Refusal:
    wide = all(not isinstance(x, TensorProxy) or x.dtype.torch_dtype.itemsize >= 4 for x in (a, b))
    return _of_floats(a, b) if wide else Refusal("dtype", "the next number of 16 bits is not that of 32")


def _numbers(a: Any, dims: Any) -> bool | Refusal:
    if a.dtype.torch_dtype is torch.bool:
        return Refusal("bools", "nvFuser does not add or multiply bools over dimensions")
    return _some_dims(a, dims)


def _some_dims(a: Any, dims: Any, **kwargs: Any) -> bool | Refusal:
    return True if dims else Refusal("dims", "a reduction over no dimension is computed by torch")


def _floats_over_dims(a: Any, dims: Any) -> bool | Refusal:
    answer = _of_floats(a)
    return _some_dims(a, dims) if answer else answer


def _unbiased(a: Any, dims: Any, *, correction: float) -> bool | Refusal:
    if correction != int(correction):
        return Refusal("correction", "nvFuser takes whole numbers", correction=correction)
    return _some_dims(a, dims)


def _scan(a: Any, dim: int) -> bool | Refusal:
    answer = _of_floats(a)
    return answer and (a.ndim > 0 or Refusal("dims", "a scan of one number"))


def _sorted(a: Any, *args: Any) -> bool | Refusal:
    if not compile_option("nvfuser_sorts"):
        return Refusal("sorts", "nvfuser_sorts=False leaves sorts to torch")
    if a.dtype.torch_dtype is torch.bool:
        return Refusal("bools", "nvFuser does not sort bools")
    return a.ndim > 0 or Refusal("dims", "a sort of one number")


def _unit_steps(a: Any, starts: Any, ends: Any, strides: Any = None) -> bool | Refusal:
    return all(s == 1 for s in strides or ()) or Refusal("steps", "nvFuser slices with steps of 1")


def _outer_pad(a: Any, value: Any, padding: Any) -> bool | Refusal:
    if any(low < 0 or high < 0 or interior for low, high, interior in padding):
        return Refusal("padding", "nvFuser pads at the ends, and does not cut")
    return True


def _one_dimension(a: Any, index: Any, dim: int) -> bool | Refusal:
    return _unchecked_indices() and (
        index.ndim == 1 or Refusal("index", "nvFuser selects by an index of one dimension")
    )


def _indexed(*args: Any) -> bool | Refusal:
    return _unchecked_indices()


def _unchecked_indices() -> bool | Refusal:
    return bool(compile_option("nvfuser_unchecked_indices")) or Refusal(
        "indices", "torch checks indices, and nvFuser does not: nvfuser_unchecked_indices=True allows it"
    )


def _product(*args: Any) -> bool | Refusal:
    if not compile_option("nvfuser_products"):
        return Refusal("products", "nvfuser_products=False leaves products to torch")
    if any(isinstance(x, TensorProxy) and not x.dtype.is_floating_point for x in args):
        return Refusal("integers", "products of integers are left to torch")
    return True


def _whole_steps(length: Any, *, start: Any, step: Any, device: Any, dtype: Any) -> bool | Refusal:
    if isinstance(start, int) and isinstance(step, int):
        return True
    return Refusal("steps", "fractional steps are rounded as torch does")


def _embedding(index: Any, weight: Any, *, max_norm: float | None = None, **kwargs: Any) -> bool | Refusal:
    return _unchecked_indices() and (
        max_norm is None or Refusal("max_norm", "rows are renormalised by torch", max_norm=max_norm)
    )


def _philox(*args: Any, **kwargs: Any) -> bool | Refusal:
    return bool(compile_option("nvfuser_random")) or Refusal(
        "random", "nvFuser draws other numbers than torch for a seed: nvfuser_random=True allows it"
    )


#: primitive → the checker of its calls
CHECKERS: Final[Mapping[str, Callable[..., bool | Refusal]]] = {
    **dict.fromkeys(_OF_FLOATS, _of_floats),
    **dict.fromkeys(names("eq ge gt le lt ne"), _known_numbers),
    **dict.fromkeys(names("fmod remainder"), _floats_and_known_numbers),
    **dict.fromkeys(("sum", "amax", "amin"), _numbers),
    "prod": _floats_over_dims,
    **dict.fromkeys(("any", "all"), _some_dims),
    **dict.fromkeys(("var", "std", "var_mean"), _unbiased),
    **dict.fromkeys(("cumsum", "cumprod", *RUNNING), _scan),
    **dict.fromkeys(SORTS, _sorted),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(INDEXED, _indexed),
    "embedding": _embedding,
    "take": _one_dimension,
    "uniform_philox": _philox,
    "nextafter": _nextafter,
    "slice_prim": _unit_steps,
    "pad": _outer_pad,
    "iota": _whole_steps,
}
