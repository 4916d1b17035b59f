"""Stand-ins for proxies, to run a function of torch while a program is traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder.base import devices, dtypes
from thunder.ir.proxies import GeneratorProxy, NumberProxy, TensorProxy
from thunder.ir.symbolic_sizes import hint_of
from thunder.ops.torch_sizes import to_symint

__all__ = [
    "SMALL",
    "stand_in_tensor",
    "to_cpu_identity",
    "to_cpu_zeros",
    "to_hinted_meta",
    "to_meta",
    "to_symbolic_meta",
    "to_torch",
]

#: number of elements up to which a tensor on the cpu has memory for each; beyond, its elements share one
SMALL: Final = 1 << 16


def stand_in_tensor(
    proxy: TensorProxy,
    device: torch.device | str,
    *,
    size: Callable[[Any], Any] | None = None,
    strides: Sequence[Any] | None = None,
    zeros: bool = False,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Return a tensor that represents a proxy, for a function of torch that runs while a program is traced.

    It has the proxy's dtype and shape, and is on ``device``. Its strides (elements) are ``strides``, else
    those that the proxy declares, else contiguous ones; :mod:`thunder.ops.layouts` derives those of eager.
    ``size`` maps each length and stride: ``hint_of`` to its value in the call that is traced, without a fact,
    ``to_symint`` to torch's form of it (Note [Sizes within torch]). Without it a symbolic size is fixed.

    On the device ``meta`` and under ``FakeTensorMode`` it has no data. Elsewhere its elements are
    uninitialised, or with ``zeros`` all 0: then it is contiguous, or if it is large (``SMALL``) its elements
    share one place. With ``requires_grad`` it requires grad where the proxy does, as a leaf.

    The rest is not the proxy's: its class is torch.Tensor, its offset is 0, it shares its storage with no
    other tensor, and no mark says that it is conjugate or negative.
    """
    dtype, shape = dtypes.to_torch_dtype(proxy.dtype), tuple(proxy.shape)
    strides = proxy.strides if strides is None and not zeros else strides
    if size is not None:
        shape, strides = tuple(map(size, shape)), strides and tuple(map(size, strides))
    if zeros:
        is_small = math.prod(shape) <= SMALL
        tensor = torch.zeros(shape if is_small else (), dtype=dtype, device=device)
        tensor = tensor if is_small else tensor.expand(shape)
    elif strides is None:
        tensor = torch.empty(shape, dtype=dtype, device=device)
    else:
        tensor = torch.empty_strided(shape, tuple(strides), dtype=dtype, device=device)
    is_tracked = requires_grad and proxy.requires_grad and proxy.dtype.is_inexact
    return tensor.requires_grad_() if is_tracked else tensor


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
    """Return :func:`stand_in_tensor` on the meta device for a tensor, else :func:`to_torch`."""
    if isinstance(x, TensorProxy):
        return stand_in_tensor(x, "meta")
    return torch.Generator() if isinstance(x, GeneratorProxy | torch.Generator) else to_torch(x)


def to_symbolic_meta(x: Any) -> Any:
    """As :func:`to_meta`, with symbolic sizes as torch's (Note [Sizes within torch])."""
    return _to_meta(x, to_symint)


def to_hinted_meta(x: Any) -> Any:
    """As :func:`to_meta`, with symbolic sizes as their values in the call that is traced, without a fact."""
    return _to_meta(x, hint_of)


def _to_meta(x: Any, size: Callable[[Any], Any]) -> Any:
    if isinstance(x, TensorProxy):
        return stand_in_tensor(x, "meta", size=size)
    return to_meta(_number(size, x))


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
    return stand_in_tensor(x, "cpu", size=hint_of, zeros=True)


def to_cpu_identity(x: Any) -> Any:
    """Return identity matrices, or ones for vectors, else as :func:`to_cpu_zeros`."""
    zeros = to_cpu_zeros(x)
    if not isinstance(x, TensorProxy) or zeros.numel() > SMALL:
        return zeros
    ones = torch.ones_like(zeros)
    return ones.tril().triu() if ones.dim() > 1 else ones
