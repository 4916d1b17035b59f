"""CUDA's floating-point functions in Triton's interpreter, which lacks them: torch computes them on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import triton.language as tl
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import TensorHandle

from .fusions.elementwise import words

__all__ = ["check_places", "library", "rounded_to_bfloat16", "run"]

#: name in libdevice → function of torch
_FUNCTIONS: Final[Mapping[str, Callable[..., torch.Tensor]]] = {
    **{
        name: getattr(torch, name)
        for name in words(
            "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 "
            "floor fmod hypot lgamma log log10 log1p log2 pow rsqrt sin sinh tan tanh trunc"
        )
    },
    "rint": torch.round,
}


def _interpreted(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Return a function of blocks of the interpreter that computes as a function of torch."""

    def compute(*arguments: Any) -> Any:
        blocks = [a for a in arguments if isinstance(a, tl.tensor)]
        dtype = blocks[0].handle.data.dtype
        arrays = [a.handle.data if isinstance(a, tl.tensor) else np.asarray(a, dtype) for a in arguments]
        shaped = [torch.from_numpy(np.array(array)) for array in np.broadcast_arrays(*arrays)]
        result = function(*shaped).numpy()
        first = next(b for b in blocks if b.handle.data.shape == result.shape)
        return tl.tensor(TensorHandle(result, first.dtype), first.type)

    return compute


def rounded_to_bfloat16(value: Any) -> Any:
    """Round a block of float32 to the nearest bfloat16, ties to even; it stays float32."""
    return library.nearest_bfloat16(value)


def check_places(places: Any, size: int) -> None:
    """Raise IndexError if a place is not in a dimension of a size; tl.device_assert does nothing here."""
    values = places.handle.data
    outside = values[(values < 0) | (values >= size)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of bounds for dimension with size {size}")


def run(kernel: Any, options: dict[str, Any], *arguments: Any) -> None:
    """Run a kernel in the interpreter, without NumPy's warnings of infinities.

    An exception in a kernel is raised as it is, and not as one of the interpreter; it refers to none of the
    interpreter's exceptions, which would keep the tensors of the launch.
    """
    raised: BaseException | None = None
    try:
        with np.errstate(all="ignore"):
            kernel(*arguments, **options)
    except InterpreterError as error:
        raised = _raised_in_kernel(error)
    if raised is not None:
        try:
            raise raised
        finally:
            del raised


def _raised_in_kernel(error: InterpreterError) -> BaseException:
    """Return the exception that was raised in a kernel."""
    cause: BaseException = error
    while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause


library = SimpleNamespace(
    **{name: _interpreted(function) for name, function in _FUNCTIONS.items()},
    nearest_bfloat16=_interpreted(lambda t: t.bfloat16().float()),
)
