"""The precision in which decompositions compute: float32 for half precision, as torch's kernels do."""

from __future__ import annotations

from typing import Any

from thunder.base import dtypes
from thunder.base.dtypes import dtype as Dtype
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

_COMPUTED_IN = {dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32}


def computed_in(x: TensorProxy, dtype: Any = None) -> TensorProxy:
    """``x`` in ``dtype`` (its own if None), or in float32 if that is a half-precision type."""
    wanted = x.dtype if dtype is None else dtypes.to_dtype(dtype)
    return rounded_to(x, _COMPUTED_IN.get(wanted, wanted))


def rounded_to(x: TensorProxy, dtype: Dtype) -> TensorProxy:
    """``x`` in ``dtype``."""
    return x if x.dtype is dtype else prims.convert_element_type(x, dtype)
