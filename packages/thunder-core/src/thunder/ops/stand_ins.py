"""Stand-ins for proxies, to run a function of torch while a program is traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.base import devices, dtypes
from thunder.ir.proxies import GeneratorProxy, NumberProxy, TensorProxy
from thunder.ir.symbolic_sizes import hint_of
from thunder.ops.torch_sizes import to_symint

__all__ = [
    "SMALL",
    "empty_tensor",
    "symbolic_tensor",
    "to_cpu_identity",
    "to_cpu_zeros",
    "to_hinted_meta",
    "to_meta",
    "to_symbolic_meta",
    "to_torch",
]

#: number of elements up to which a tensor on the cpu has memory for each; beyond, its elements share one
SMALL: Final = 1 << 16


def empty_tensor(proxy: TensorProxy, device: torch.device | str) -> torch.Tensor:
    """Return a tensor with a proxy's shape, dtype and strides, by default contiguous ones.

    On the device ``meta``, and under ``FakeTensorMode``, it has no data.
    """
    dtype, strides = dtypes.to_torch_dtype(proxy.dtype), proxy.strides
    if strides is None:
        return torch.empty(proxy.shape, dtype=dtype, device=device)
    return torch.empty_strided(proxy.shape, strides, dtype=dtype, device=device)


def symbolic_tensor(proxy: TensorProxy, device: torch.device | str) -> torch.Tensor:
    """As :func:`empty_tensor`, with symbolic sizes as torch's (Note [Sizes within torch])."""
    dtype, shape = dtypes.to_torch_dtype(proxy.dtype), tuple(map(to_symint, proxy.shape))
    if proxy.strides is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, tuple(map(to_symint, proxy.strides)), dtype=dtype, device=device)


def to_torch(x: Any) -> Any:
    """Return torch's value for a number proxy, a dtype, a device; other values as they are.

    A number that is not known becomes a one of its type. A generator becomes a new one on its device, so that
    the program's keeps its state.
    """
    if isinstance(x, NumberProxy):
        return x.stand_in
    if isinstance(x, GeneratorProxy):
        return torch.Generator(devices.to_torch_device(x.device))
    if isinstance(x, torch.Generator):
        return torch.Generator(x.device)
    if isinstance(x, dtypes.dtype):
        return x.torch_dtype
    if isinstance(x, devices.Device):
        return devices.to_torch_device(x)
    return x


def to_meta(x: Any) -> Any:
    """Return :func:`empty_tensor` on the meta device for a tensor, else :func:`to_torch`."""
    if isinstance(x, TensorProxy):
        return empty_tensor(x, "meta")
    return torch.Generator() if isinstance(x, GeneratorProxy | torch.Generator) else to_torch(x)


def to_symbolic_meta(x: Any) -> Any:
    """As :func:`to_meta`, with symbolic sizes as torch's (Note [Sizes within torch])."""
    return symbolic_tensor(x, "meta") if isinstance(x, TensorProxy) else to_meta(_number(to_symint, x))


def to_hinted_meta(x: Any) -> Any:
    """As :func:`to_meta`, with symbolic sizes as their values in the call that is traced, without a fact."""
    if not isinstance(x, TensorProxy):
        return to_meta(_number(hint_of, x))
    dtype, shape = dtypes.to_torch_dtype(x.dtype), tuple(map(hint_of, x.shape))
    if x.strides is None:
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.empty_strided(shape, tuple(map(hint_of, x.strides)), dtype=dtype, device="meta")


def _number(convert: Callable[[Any], Any], x: Any) -> Any:
    """Return a number converted, or a slice with its numbers converted."""
    if isinstance(x, slice):
        return slice(convert(x.start), convert(x.stop), convert(x.step))
    return convert(x)


def to_cpu_zeros(x: Any) -> Any:
    """Return contiguous zeros on the cpu for a tensor, else as :func:`to_meta`.

    The elements of a large tensor share one place in memory. Symbolic sizes have their values in the call
    that is traced, without a fact: these tensors are for the question whether torch refuses a call.
    """
    if not isinstance(x, TensorProxy):
        return to_meta(_number(hint_of, x))
    dtype, shape = dtypes.to_torch_dtype(x.dtype), tuple(map(hint_of, x.shape))
    if math.prod(shape) <= SMALL:
        return torch.zeros(shape, dtype=dtype, device="cpu")
    return torch.zeros((), dtype=dtype, device="cpu").expand(shape)


def to_cpu_identity(x: Any) -> Any:
    """Return identity matrices, or ones for vectors, else as :func:`to_cpu_zeros`."""
    zeros = to_cpu_zeros(x)
    if not isinstance(x, TensorProxy) or zeros.numel() > SMALL:
        return zeros
    ones = torch.ones_like(zeros)
    return ones.tril().triu() if ones.dim() > 1 else ones
