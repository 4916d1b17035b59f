"""The cast that decompositions and gradient rules write out."""

from __future__ import annotations

from typing import Any

from thunder.base.dtypes import to_dtype
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims


def cast(a: TensorProxy, dtype: Any) -> TensorProxy:
    """Return ``a`` in a dtype of thunder or torch; ``a`` itself if it has it."""
    if a.dtype is dtype:
        return a
    target = to_dtype(dtype)
    return a if a.dtype is target else prims.convert_element_type(a, target)
