"""Strides of the indices in C++ loops, without sympy's `simplify` where an index is linear.

TorchInductor asks by how much an index grows with a loop's variable, to choose the loop that is vectorised:

    64*x0 + x1, by x0  →  simplify(64*(x0 + 1) + x1 - (64*x0 + x1))  →  64

`simplify` tries everything that it knows, and imports units of physics for it. If the difference of two
polynomials is a number, it is one as soon as it is multiplied out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from torch._inductor.codegen import cpp

__all__ = ["with_linear_indices"]

#: the name that the generator of C++ has for the function
_STRIDE: Final = "stride_at_vec_range"

_Stride = Callable[..., Any]


def with_linear_indices(stride_of: _Stride) -> _Stride:
    """Return a function with the results of TorchInductor's function of an index, a variable and a length."""

    @functools.lru_cache(maxsize=4096)
    def stride_at(index: Any, variable: Any, length: int | None = None) -> Any:
        if index.has(variable) and index.is_polynomial(*index.free_symbols):
            difference = (index.xreplace({variable: variable + 1}) - index).expand()
            if difference.is_number:
                return difference
        return stride_of(index, variable, length)

    return stride_at


# TorchInductor has no hook for it. Replaced once, since regions may be compiled in several threads.
setattr(cpp, _STRIDE, with_linear_indices(getattr(cpp, _STRIDE)))
