"""The precision of decompositions: float32 for half precision, as in torch's kernels."""

from __future__ import annotations

from typing import Any

from thunder.base import dtypes
from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast

_COMPUTED_IN = {dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32}


def computed_in(x: TensorProxy, dtype: Any = None) -> TensorProxy:
    """Return ``x`` in ``dtype`` (by default its own), or in float32 for half precision."""
    dtype_of_x = x.dtype if dtype is None else dtypes.to_dtype(dtype)
    return cast(x, _COMPUTED_IN.get(dtype_of_x, dtype_of_x))
