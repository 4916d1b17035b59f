"""Differences between the versions of torch that thunder supports.

Each difference has one name in this module, and no other module compares versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.fx._symbolic_trace
from torch._library.custom_ops import CustomOpDef
from torch.autograd import Function
from torch.torch_version import TorchVersion

RUNNING: Final = TorchVersion(torch.__version__)

FUNCTION_APPLY_TAKES_KEYWORDS: Final = RUNNING >= "2.13"
"""Whether ``autograd.Function.apply`` accepts keyword arguments."""

BOUNDS_SHARE_GRADIENTS: Final = RUNNING >= "2.14"
"""Whether the input of ``clamp`` at a tensor, and equal operands of ``fmax`` and ``fmin``, share a gradient.

At a number the input then has none. Before 2.14 the input, or the first operand, had the whole gradient.
"""

FMAX_SKIPS_NAN: Final = not "2.14" <= RUNNING < "2.15"
"""Whether the gradient of ``fmax`` and ``fmin`` goes to the operand that is not nan; in 2.14 both get it."""

BESSEL_FUNCTIONS_HAVE_GRADIENTS: Final = RUNNING >= "2.15"
"""Whether ``torch.special.bessel_j0`` and ``bessel_j1`` have a gradient."""

STRIDES_DIFFER_WITHOUT_DATA: Final = (
    frozenset[str]()
    if RUNNING >= "2.13"
    else frozenset(
        {
            *(f"torch.fft.{kind}fft{dims}" for kind in ("", "i", "r", "ih") for dims in ("", "2", "n")),
            *("torch.fft.irfftn", "torch.fft.hfftn", "torch.quantile", "torch.nanquantile"),
        }
    )
)
"""Ids of operators whose results on tensors without data have other strides, or read data, before 2.13."""


def _asarray_takes_none() -> bool:
    """Return whether ``requires_grad`` of ``torch.asarray`` may be None, which has the argument's."""
    try:
        torch.asarray(0, requires_grad=None)
    except TypeError:
        return False
    return True


ASARRAY_KEEPS_GRADIENTS: Final = _asarray_takes_none()
"""Whether ``torch.asarray`` of a tensor that requires grad does so too; in 2.11 it is detached."""


def function_apply() -> Any:
    """Return the callable of ``autograd.Function.apply``.

    It is a function, and since torch 2.15 a method in C.
    """
    apply = Function.__dict__["apply"]
    return apply.__func__ if isinstance(apply, classmethod) else apply


def fx_is_tracing() -> bool:
    """Return whether a tracer of ``torch.fx`` runs: in this thread since torch 2.14, before that in any."""
    return _fx_flag() if _fx_flag is not None else torch.fx._symbolic_trace._is_fx_tracing_flag


_fx_flag: Final[Callable[[], bool] | None] = getattr(torch.fx._symbolic_trace, "_get_is_fx_tracing", None)


def has_dimension_names(tensor: torch.Tensor) -> bool:
    """Return whether dimensions of the tensor have names, which torch 2.13 has no longer."""
    return hasattr(tensor, "has_names") and tensor.has_names()


def autocast_dtypes(definition: CustomOpDef) -> dict[str, torch.dtype]:
    """Return the dtypes of an operator's rules of ``register_autocast``, by device type."""
    if RUNNING >= "2.13":
        dtypes = definition._autocast_dtype
    else:
        dtypes = {device: getattr(definition, f"_autocast_{device}_dtype") for device in ("cpu", "cuda")}
    return {device: dtype for device, dtype in dtypes.items() if dtype is not None}
