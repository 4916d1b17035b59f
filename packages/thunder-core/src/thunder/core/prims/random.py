"""Random primitives. They draw from the device's default generator in the order in which they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.core.devices import Device, to_torch_device
from thunder.core.dtypes import dtype as Dtype
from thunder.core.dtypes import int64, to_torch_dtype
from thunder.core.errors import OperatorError
from thunder.core.prims.declaration import primitive
from thunder.core.prims.movement import like_meta
from thunder.core.proxies import TensorProxy
from thunder.core.tags import OpTags

_RANDOM = (OpTags.RANDOM_OP,)


def _shape_meta(shape: Sequence[int], *, device: Device, dtype: Dtype) -> TensorProxy:
    return TensorProxy(shape=shape, device=device, dtype=dtype)


def _empty(shape: Sequence[int], device: Any, dtype: Any) -> torch.Tensor:
    return torch.empty(shape, device=to_torch_device(device), dtype=to_torch_dtype(dtype))


def _uniform_meta(
    shape: Sequence[int], minval: float, maxval: float, *, device: Device, dtype: Dtype
) -> TensorProxy:
    return TensorProxy(shape=shape, device=device, dtype=dtype)


uniform = primitive(
    "uniform",
    _uniform_meta,
    eager=lambda shape, minval, maxval, *, device, dtype: _empty(shape, device, dtype).uniform_(
        minval, maxval
    ),
    tags=_RANDOM,
)
randn = primitive(
    "randn",
    _shape_meta,
    eager=lambda shape, *, device, dtype: torch.randn(
        shape, device=to_torch_device(device), dtype=to_torch_dtype(dtype)
    ),
    tags=_RANDOM,
)


def _normal_meta(
    shape: Sequence[int], mean: float, std: float, *, device: Device, dtype: Dtype
) -> TensorProxy:
    if std < 0:
        raise OperatorError(f"normal expects std >= 0.0, but found std {std}")
    return TensorProxy(shape=shape, device=device, dtype=dtype)


normal = primitive(
    "normal",
    _normal_meta,
    eager=lambda shape, mean, std, *, device, dtype: _empty(shape, device, dtype).normal_(mean, std),
    tags=_RANDOM,
)


def _randint_meta(low: int, high: int, shape: Sequence[int], *, device: Device, dtype: Dtype) -> TensorProxy:
    if low >= high:
        raise OperatorError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return TensorProxy(shape=shape, device=device, dtype=dtype)


randint = primitive(
    "randint",
    _randint_meta,
    eager=lambda low, high, shape, *, device, dtype: torch.randint(
        low, high, shape, device=to_torch_device(device), dtype=to_torch_dtype(dtype)
    ),
    tags=_RANDOM,
)


def _randperm_meta(n: int, *, device: Device, dtype: Dtype) -> TensorProxy:
    return TensorProxy(shape=(n,), device=device, dtype=dtype)


randperm = primitive(
    "randperm",
    _randperm_meta,
    eager=lambda n, *, device, dtype: torch.randperm(
        n, device=to_torch_device(device), dtype=to_torch_dtype(dtype)
    ),
    tags=_RANDOM,
)


def _exponential_meta(shape: Sequence[int], rate: float, *, device: Device, dtype: Dtype) -> TensorProxy:
    return TensorProxy(shape=shape, device=device, dtype=dtype)


exponential = primitive(
    "exponential",
    _exponential_meta,
    eager=lambda shape, rate, *, device, dtype: _empty(shape, device, dtype).exponential_(rate),
    tags=_RANDOM,
)

#: ones with the probabilities in ``a``, else zeros
bernoulli = primitive(
    "bernoulli", like_meta, eager=torch.bernoulli, eager_path="torch.bernoulli", tags=_RANDOM
)


def _multinomial_meta(a: TensorProxy, n: int, replacement: bool) -> TensorProxy:
    if len(a.shape) not in (1, 2):
        raise OperatorError("prob_dist must be 1 or 2 dim")
    return TensorProxy(shape=(*a.shape[:-1], n), device=a.device, dtype=int64)


multinomial = primitive(
    "multinomial", _multinomial_meta, eager=torch.multinomial, eager_path="torch.multinomial", tags=_RANDOM
)
