"""The executor `triton_kernels`, and the parts of which the operators of the library are declared."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from thunder import TensorProxy, dtypes
from thunder.extend import OperatorExecutor, Rank

from ..environment import triton_version

__all__ = ["ex", "kernel", "new", "wide"]

ex = OperatorExecutor("triton_kernels", version=triton_version(), rank=Rank.KERNEL)


def kernel(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module of `kernels`, which is imported when it is first called."""

    def launch(*arguments: Any) -> Any:
        return getattr(import_module(f"thunder_triton.kernels.{module}"), name)(*arguments)

    launch.__name__ = launch.__qualname__ = name
    return launch


def wide(x: TensorProxy) -> Any:
    """Return the dtype in which a kernel sums values of a tensor: float64 for float64, else float32."""
    return dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32


def new(like: TensorProxy, shape: Any, dtype: Any) -> TensorProxy:
    """Return a result of a kernel on the device of a tensor; it has no gradient."""
    return TensorProxy(shape=tuple(shape), device=like.device, dtype=dtype, requires_grad=False)
