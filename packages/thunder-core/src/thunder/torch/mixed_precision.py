"""The precision in which decompositions compute: float32 for half precision, as torch's kernels do."""

from __future__ import annotations

from typing import Any

from thunder.base import dtypes
from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast

_COMPUTED_IN = {dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32}


def computed_in(x: TensorProxy, dtype: Any = None) -> TensorProxy:
    """``x`` in ``dtype`` (its own if None), or in float32 if that is a half-precision type."""
    wanted = x.dtype if dtype is None else dtypes.to_dtype(dtype)
    return cast(x, _COMPUTED_IN.get(wanted, wanted))
