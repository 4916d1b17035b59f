"""Random primitives. They draw in the order in which they stand: from ``generator`` where a call has one,
else from the device's default generator.

``strides`` say how the tensor lies for which numbers are drawn in place: torch draws in the order of its
memory, and by another algorithm where it is not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.core.devices import Device, to_torch_device
from thunder.core.dtypes import dtype as Dtype
from thunder.core.dtypes import int64, to_torch_dtype
from thunder.core.errors import OperatorError, TraceError
from thunder.core.layouts import contiguous_strides
from thunder.core.prims.declaration import primitive
from thunder.core.proxies import GeneratorProxy, TensorProxy
from thunder.core.signature import left_out_if_none
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags

_RANDOM = (OpTags.RANDOM_OP,)

Shape = Sequence[int]
Strides = Sequence[int] | None


def check_generator(generator: Any, device: Device) -> None:
    """Raises OperatorError, as torch does, for what is no generator of the kind of device that draws."""
    if generator is None:
        return
    if isinstance(generator, torch.Generator):
        raise TraceError(
            "a torch.Generator reached an operator",
            hint="In a trace, a GeneratorProxy stands for a generator.",
        )
    if not isinstance(generator, GeneratorProxy):
        raise OperatorError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    if generator.device.type != device.type:
        raise OperatorError(
            f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'"
        )


def _drawn(
    shape: Shape, device: Device, dtype: Dtype, generator: Any, strides: Strides = None
) -> TensorProxy:
    check_generator(generator, device)
    proxy = TensorProxy(shape=shape, device=device, dtype=dtype)
    if strides is not None:
        proxy.__dict__["strides"] = tuple(strides)
    return proxy


def _check(parameters_are_right: bool, otherwise: str) -> None:
    if not parameters_are_right:
        raise OperatorError(otherwise)


# -- by a function -------------------------------------------------------------------------------------------


def _by(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A factory of torch that takes the devices and dtypes of primitives."""

    def draw(*args: Any, device: Any, dtype: Any, generator: torch.Generator | None = None) -> torch.Tensor:
        options = {"device": to_torch_device(device), "dtype": to_torch_dtype(dtype)}
        return factory(*args, generator=generator, **options)

    return draw


@left_out_if_none("generator")
def _randn_meta(shape: Shape, *, device: Device, dtype: Dtype, generator: Any = None) -> TensorProxy:
    return _drawn(shape, device, dtype, generator)


@left_out_if_none("generator")
def _randint_meta(
    low: int, high: int, shape: Shape, *, device: Device, dtype: Dtype, generator: Any = None
) -> TensorProxy:
    _check(low < high, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _drawn(shape, device, dtype, generator)


@left_out_if_none("generator")
def _randperm_meta(n: int, *, device: Device, dtype: Dtype, generator: Any = None) -> TensorProxy:
    return _drawn((n,), device, dtype, generator)


randn = primitive("randn", _randn_meta, eager=_by(torch.randn), tags=_RANDOM)
randint = primitive("randint", _randint_meta, eager=_by(torch.randint), tags=_RANDOM)
randperm = primitive("randperm", _randperm_meta, eager=_by(torch.randperm), tags=_RANDOM)


# -- by a method that fills a tensor -------------------------------------------------------------------------


def _filling(
    name: str, method: Callable[..., torch.Tensor]
) -> Callable[[Callable[..., TensorProxy]], Symbol]:
    """Declares ``prims.<name>(shape, …)``: what torch's ``method`` leaves in a new tensor."""

    def fill(
        shape: Shape,
        *parameters: Any,
        device: Any,
        dtype: Any,
        generator: torch.Generator | None = None,
        strides: Strides = None,
    ) -> torch.Tensor:
        options: dict[str, Any] = {"device": to_torch_device(device), "dtype": to_torch_dtype(dtype)}
        if strides is None:
            new = torch.empty(shape, **options)
        else:
            new = torch.empty_strided(tuple(shape), tuple(strides), **options)
        return method(new, *parameters, generator=generator)

    def declare(meta: Callable[..., TensorProxy]) -> Symbol:
        return primitive(name, left_out_if_none("generator", "strides")(meta), eager=fill, tags=_RANDOM)

    return declare


@_filling("uniform", torch.Tensor.uniform_)
def uniform(
    shape: Shape,
    minval: float,
    maxval: float,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Numbers between two bounds."""
    return _drawn(shape, device, dtype, generator, strides)


@_filling("normal", torch.Tensor.normal_)
def normal(
    shape: Shape,
    mean: float,
    std: float,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Numbers of a normal distribution."""
    _check(std >= 0, f"normal expects std >= 0.0, but found std {std}")
    return _drawn(shape, device, dtype, generator, strides)


@_filling("trunc_normal", torch.nn.init.trunc_normal_)
def trunc_normal(
    shape: Shape,
    mean: float,
    std: float,
    a: float,
    b: float,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Numbers of a normal distribution, drawn again where they are not between ``a`` and ``b``.

    How often depends on the numbers, so torch cannot be asked without data how the result lies.
    """
    lying = contiguous_strides(shape) if strides is None else strides
    return _drawn(shape, device, dtype, generator, lying)


@_filling("log_normal", torch.Tensor.log_normal_)
def log_normal(
    shape: Shape,
    mean: float,
    std: float,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Numbers whose logarithms are of a normal distribution."""
    _check(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")
    return _drawn(shape, device, dtype, generator, strides)


@_filling("cauchy", torch.Tensor.cauchy_)
def cauchy(
    shape: Shape,
    median: float,
    sigma: float,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Numbers of a Cauchy distribution."""
    _check(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return _drawn(shape, device, dtype, generator, strides)


@_filling("exponential", torch.Tensor.exponential_)
def exponential(
    shape: Shape,
    rate: float,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Numbers of an exponential distribution."""
    _check(rate > 0, f"exponential_ expects lambda > 0.0, but found lambda={rate}")
    return _drawn(shape, device, dtype, generator, strides)


@_filling("geometric", torch.Tensor.geometric_)
def geometric(
    shape: Shape, p: float, *, device: Device, dtype: Dtype, generator: Any = None, strides: Strides = None
) -> TensorProxy:
    """How often one tries until something with the probability ``p`` happens."""
    _check(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")
    return _drawn(shape, device, dtype, generator, strides)


@_filling("integers", torch.Tensor.random_)
def integers(
    shape: Shape,
    *bounds: int | None,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """Whole numbers: of all that the dtype holds, below a bound, or from one bound to below another."""
    if len(bounds) == 2 and bounds[1] is not None:
        low, high = bounds
        text = f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        _check(low is not None and high is not None and low < high, text)
    elif len(bounds) == 1 and bounds[0] is not None:
        text = f"random_ expects 'from' to be less than 'to', but got from=0 >= to={bounds[0]}"
        _check(bounds[0] > 0, text)
    return _drawn(shape, device, dtype, generator, strides)


@_filling("coins", torch.Tensor.bernoulli_)
def coins(
    shape: Shape,
    p: float | TensorProxy,
    *,
    device: Device,
    dtype: Dtype,
    generator: Any = None,
    strides: Strides = None,
) -> TensorProxy:
    """1 with the probability ``p``, of each element its own if that is a tensor, else 0."""
    if not isinstance(p, TensorProxy):
        _check(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _drawn(shape, device, dtype, generator, strides)


# -- by what a tensor says -----------------------------------------------------------------------------------


@left_out_if_none("generator")
def _bernoulli_meta(a: TensorProxy, *, generator: Any = None) -> TensorProxy:
    return _drawn(a.shape, a.device, a.dtype, generator)


@left_out_if_none("generator")
def _multinomial_meta(a: TensorProxy, n: int, replacement: bool, *, generator: Any = None) -> TensorProxy:
    _check(len(a.shape) in (1, 2), "prob_dist must be 1 or 2 dim")
    return _drawn((*a.shape[:-1], n), a.device, int64, generator)


#: ones with the probabilities in ``a``, else zeros
bernoulli = primitive(
    "bernoulli", _bernoulli_meta, eager=torch.bernoulli, eager_path="torch.bernoulli", tags=_RANDOM
)
multinomial = primitive(
    "multinomial", _multinomial_meta, eager=torch.multinomial, eager_path="torch.multinomial", tags=_RANDOM
)
