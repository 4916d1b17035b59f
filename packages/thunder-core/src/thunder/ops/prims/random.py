"""Random primitives. They draw in program order, from ``generator`` or the default one.

``strides`` are those of the tensor that torch's in-place method fills: torch draws in the order of memory,
and by another algorithm where the tensor is not contiguous.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import int64, to_torch_dtype
from thunder.base.errors import OperatorError, TraceError
from thunder.base.memory_layout import contiguous_strides
from thunder.base.signature import omit_if_none
from thunder.base.tags import OpTags
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.primitive_batching import batched_random as batched
from thunder.ops.prims.declaration import primitive

# fmt: off
__all__ = [
    "bernoulli", "bernoulli_fill", "cauchy", "exponential", "geometric", "log_normal", "multinomial",
    "normal", "randint", "randint_fill", "randn", "randperm", "trunc_normal", "uniform",
]
# fmt: on

_RANDOM = (OpTags.RANDOM_OP,)
_CHECKED = (*_RANDOM, OpTags.RAISES_ON_DATA)

Shape = Sequence[int]
Strides = Sequence[int] | None


def check_generator(generator: Any, device: Device) -> None:
    """Raise OperatorError, as torch does, for a generator of another type of device."""
    if generator is None:
        return
    if isinstance(generator, torch.Generator):
        raise TraceError(
            "a torch.Generator reached an operator",
            hint="In a trace, a generator is a GeneratorProxy.",
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
    return TensorProxy(shape=shape, device=device, dtype=dtype, strides=strides)


def _check(parameters_are_right: bool, otherwise: str) -> None:
    if not parameters_are_right:
        raise OperatorError(otherwise)


# -- factories ----------------------------------------------------------------------------------------------


def _by(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a factory of torch as one that takes the devices and dtypes of primitives."""

    def draw(*args: Any, device: Any, dtype: Any, generator: torch.Generator | None = None) -> torch.Tensor:
        options = {"device": to_torch_device(device), "dtype": to_torch_dtype(dtype)}
        return factory(*args, generator=generator, **options)

    return draw


@omit_if_none("generator")
def _randn_meta(shape: Shape, *, device: Device, dtype: Dtype, generator: Any = None) -> TensorProxy:
    return _drawn(shape, device, dtype, generator)


@omit_if_none("generator")
def _randint_meta(
    low: int, high: int, shape: Shape, *, device: Device, dtype: Dtype, generator: Any = None
) -> TensorProxy:
    _check(low < high, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _drawn(shape, device, dtype, generator)


@omit_if_none("generator")
def _randperm_meta(n: int, *, device: Device, dtype: Dtype, generator: Any = None) -> TensorProxy:
    return _drawn((n,), device, dtype, generator)


randn = primitive(
    "randn",
    _randn_meta,
    eager=_by(torch.randn),
    tags=_RANDOM,
    batch=batched.with_shape,
)
randint = primitive(
    "randint",
    _randint_meta,
    eager=_by(torch.randint),
    tags=_RANDOM,
    batch=batched.with_shape,
)
randperm = primitive("randperm", _randperm_meta, eager=_by(torch.randperm), tags=_RANDOM)


# -- in-place methods, on a new tensor -----------------------------------------------------------------------


def _filling(
    name: str,
    method: Callable[..., torch.Tensor],
    *,
    contiguous_output: bool = False,
    tags: tuple[OpTags, ...] = _RANDOM,
) -> Callable[[Callable[..., None]], Symbol]:
    """Declare ``prims.<name>(shape, …, *, device, dtype, generator=None, strides=None)``.

    It returns a new tensor filled by torch's in-place ``method``. The decorated function has the parameters
    of the distribution, and raises OperatorError for those that torch refuses. ``contiguous_output`` declares
    the strides of the result, for a method that cannot run without data.
    """

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

    def declare(check: Callable[..., None]) -> Symbol:
        def meta(
            shape: Shape,
            *parameters: Any,
            device: Device,
            dtype: Dtype,
            generator: Any = None,
            strides: Strides = None,
        ) -> TensorProxy:
            check(*parameters)
            if strides is None and contiguous_output:
                strides = contiguous_strides(shape)
            return _drawn(shape, device, dtype, generator, strides)

        own, common = (list(inspect.signature(fn).parameters.values()) for fn in (check, meta))
        shape, _, *options = common
        meta.__signature__ = inspect.Signature([shape, *own, *options])  # type: ignore[attr-defined]
        meta.__name__, meta.__doc__ = name, check.__doc__
        return primitive(
            name, omit_if_none("generator", "strides")(meta), eager=fill, tags=tags, batch=batched.with_shape
        )

    return declare


@_filling("uniform", torch.Tensor.uniform_)
def uniform(minval: float, maxval: float) -> None:
    """Numbers between two bounds."""


@_filling("normal", torch.Tensor.normal_, tags=_CHECKED)
def normal(mean: float, std: float) -> None:
    """Numbers of a normal distribution."""
    _check(std >= 0, f"normal expects std >= 0.0, but found std {std}")


# The number of draws depends on the numbers drawn.
@_filling("trunc_normal", torch.nn.init.trunc_normal_, contiguous_output=True)
def trunc_normal(mean: float, std: float, a: float, b: float) -> None:
    """Numbers of a normal distribution, drawn again unless between ``a`` and ``b``."""


@_filling("log_normal", torch.Tensor.log_normal_)
def log_normal(mean: float, std: float) -> None:
    """Numbers whose logarithms are of a normal distribution."""
    _check(std > 0, f"log_normal_ expects std > 0.0, but found std={std}")


@_filling("cauchy", torch.Tensor.cauchy_)
def cauchy(median: float, sigma: float) -> None:
    """Numbers of a Cauchy distribution."""
    _check(sigma > 0, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")


@_filling("exponential", torch.Tensor.exponential_)
def exponential(rate: float) -> None:
    """Numbers of an exponential distribution."""
    _check(rate > 0, f"exponential_ expects lambda > 0.0, but found lambda={rate}")


@_filling("geometric", torch.Tensor.geometric_)
def geometric(p: float) -> None:
    """Numbers of trials until the first success, which has the probability ``p``."""
    _check(0 < p < 1, f"geometric_ expects p to be in (0, 1), but got p={p}")


@_filling("randint_fill", torch.Tensor.random_)
def randint_fill(*bounds: int | None) -> None:
    """Integers of the dtype, below a bound, or from one bound to below another."""
    if len(bounds) == 2 and bounds[1] is not None:
        low, high = bounds
        text = f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        _check(low is not None and high is not None and low < high, text)
    elif len(bounds) == 1 and bounds[0] is not None:
        text = f"random_ expects 'from' to be less than 'to', but got from=0 >= to={bounds[0]}"
        _check(bounds[0] > 0, text)


@_filling("bernoulli_fill", torch.Tensor.bernoulli_)
def bernoulli_fill(p: float | TensorProxy) -> None:
    """1 with the probability ``p`` (a number, or a tensor with one for each element), else 0."""
    if not isinstance(p, TensorProxy):
        _check(0 <= p <= 1, f"bernoulli_ expects p to be in [0, 1], but got p={p}")


# -- parameters in a tensor ----------------------------------------------------------------------------------


@omit_if_none("generator")
def _bernoulli_meta(a: TensorProxy, *, generator: Any = None) -> TensorProxy:
    return _drawn(a.shape, a.device, a.dtype, generator)


@omit_if_none("generator")
def _multinomial_meta(a: TensorProxy, n: int, replacement: bool, *, generator: Any = None) -> TensorProxy:
    _check(len(a.shape) in (1, 2), "prob_dist must be 1 or 2 dim")
    return _drawn((*a.shape[:-1], n), a.device, int64, generator)


#: ones with the probabilities in ``a``, else zeros
bernoulli = primitive(
    "bernoulli",
    _bernoulli_meta,
    eager=torch.bernoulli,
    eager_path="torch.bernoulli",
    tags=_CHECKED,
    batch=batched.bernoulli,
)
multinomial = primitive(
    "multinomial",
    _multinomial_meta,
    eager=torch.multinomial,
    eager_path="torch.multinomial",
    tags=_CHECKED,
    batch=batched.multinomial,
)
