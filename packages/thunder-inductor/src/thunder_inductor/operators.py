"""The operators that TorchInductor may compile, by mode, and which of their calls it may not.

A composite operator is not listed: it is compiled if each primitive into which it decomposes is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from thunder import TensorProxy, dtypes
from thunder.core.symbol import BoundSymbol
from thunder.extend import Refusal, consists_of_views

from .gathers import GATHERS

# fmt: off
__all__ = [
    "CHECKERS", "MAXIMA", "MODES", "PRODUCTS", "WORTH_A_REGION", "Mode", "is_matrix_product", "is_product",
]
# fmt: on

Mode = Literal["auto", "pointwise", "full"]


def _primitives(names: str) -> frozenset[str]:
    return frozenset(f"prims.{name}" for name in names.split())


ELEMENTWISE = _primitives(
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfinv exp exp2 expm1 floor "
    "isfinite isinf isnan lgamma log log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid "
    "sign signbit sin sinh sqrt tan tanh trunc add atan2 bitwise_and bitwise_or bitwise_xor copysign div eq "
    "fmod ge gt hypot le lt maximum minimum mul ne nextafter pow remainder sub lerp where "
    "convert_element_type clone full"
)
REDUCTIONS = _primitives("amax amin argmax argmin sum prod any all var std var_mean batch_norm_update")
VIEWS = _primitives(
    "reshape view slice_prim squeeze transpose broadcast_in_dim diagonal detach shallow_copy unfold"
)
MOVES = _primitives("cat pad flip tril triu")
MATRIX_PRODUCTS = _primitives("matmul linear")
PRODUCTS = MATRIX_PRODUCTS | {
    "prims.convolution",
    "torch.nn.functional.scaled_dot_product_attention",
    "ltorch.flash_attention_for_cpu",
    "ltorch.flash_attention_for_cpu_backward",
    "ltorch.convolution_backward",
}

#: maxima of windows, which return indices too if they are asked to
MAXIMA = ("torch.nn.functional.max_pool2d", "torch.nn.functional.max_pool2d_with_indices")
_AVERAGE = "torch.nn.functional.avg_pool2d"
WINDOWS = frozenset({*MAXIMA, _AVERAGE})
_INTERPOLATE = "torch.nn.functional.interpolate"
_WITHOUT_PRODUCTS = ELEMENTWISE | REDUCTIONS | VIEWS | MOVES | WINDOWS | GATHERS.keys() | {_INTERPOLATE}

#: mode → the operators of its regions; of products, "auto" has those that `thunder_inductor.products` allows
MODES: Mapping[Mode, frozenset[str]] = {
    "auto": _WITHOUT_PRODUCTS | PRODUCTS,
    "pointwise": _WITHOUT_PRODUCTS,
    "full": _WITHOUT_PRODUCTS | PRODUCTS,
}

#: operators of which one call is worth a region: torch runs several kernels for it, or a slower one
WORTH_A_REGION = frozenset({*MAXIMA, "torch.nn.functional.rms_norm", "ltorch.rms_norm_backward"})


def is_product(bsym: BoundSymbol, operators: frozenset[str] = PRODUCTS) -> bool:
    """Return whether a call is one of a library's kernel, as far as its operators tell."""
    if bsym.sym.id in operators:
        return True
    parts = [part for part in bsym.subsymbols if not consists_of_views(part)]
    return bool(parts) and all(is_product(part, operators) for part in parts)


def is_matrix_product(bsym: BoundSymbol) -> bool:
    """Return whether a call is one of a library's kernel for matrices, whose result is contiguous."""
    return is_product(bsym, MATRIX_PRODUCTS)


def _of_numbers_with_fractions(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse integers: torch raises for a zero or a negative exponent, and a compiled kernel does not."""
    if any(isinstance(x, TensorProxy) and not x.dtype.is_floating_point for x in args):
        return Refusal("integers", "torch checks the values of integers here, and compiled code does not")
    return True


def _of_numbers(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse bools, for which TorchInductor generates C++ that does not compile."""
    if any(isinstance(x, TensorProxy) and x.dtype is dtypes.bool8 for x in args):
        return Refusal("bools", "TorchInductor does not compile this operator for bools")
    return True


def _without_dropout(*args: Any, dropout_p: float = 0.0, **kwargs: Any) -> bool | Refusal:
    """Refuse attention with dropout, which draws random numbers."""
    return dropout_p == 0.0 or Refusal("random", "random numbers are drawn by torch", dropout_p=dropout_p)


def _of_floats(input: TensorProxy, *args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse windows of integers."""
    return input.dtype.is_floating_point or Refusal("integers", "windows of integers are computed by torch")


def _nearest(input: TensorProxy, *args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse interpolation other than the repetition of pixels."""
    arguments = dict(zip(("size", "scale_factor", "mode"), args, strict=False)) | kwargs
    if arguments.get("mode", "nearest") != "nearest" or not input.dtype.is_floating_point or input.ndim != 4:
        return Refusal("interpolation", "only the nearest pixels of images are copied by compiled code")
    return True


#: operator → the checker of its calls
CHECKERS: Mapping[str, Callable[..., bool | Refusal]] = {
    **dict.fromkeys(_primitives("div fmod remainder pow"), _of_numbers_with_fractions),
    **dict.fromkeys(_primitives("maximum minimum"), _of_numbers),
    **dict.fromkeys(MAXIMA, _of_floats),
    **GATHERS,
    _AVERAGE: _of_floats,
    _INTERPOLATE: _nearest,
    "torch.nn.functional.scaled_dot_product_attention": _without_dropout,
    "ltorch.flash_attention_for_cpu": _without_dropout,
    "ltorch.flash_attention_for_cpu_backward": _without_dropout,
}
