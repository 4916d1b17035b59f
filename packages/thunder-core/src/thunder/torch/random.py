"""Random numbers, drawn from the default generators in eager's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.core import prims
from thunder.core.dtypes import int64, to_dtype
from thunder.core.errors import OperatorError
from thunder.core.operator import NONDIFFERENTIABLE
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.torch.broadcasting import broadcast_to_shape, common_shape
from thunder.torch.creation import default_device, default_dtype, size_spelling
from thunder.torch.inplace import assign
from thunder.torch.registration import torchsymbol

RANDOM = (OpTags.RANDOM_OP,)
IN_PLACE = (OpTags.RANDOM_OP, OpTags.IN_PLACE)


def _drawn(name: str, draw: Callable[..., TensorProxy]) -> tuple[Symbol, Symbol]:
    """``torch.<name>`` and ``torch.<name>_like``."""

    def plain(size: Sequence[int], *, dtype: Any = None, device: Any = None) -> TensorProxy:
        return draw(tuple(size), device=default_device(device), dtype=default_dtype(dtype))

    def like(
        input: TensorProxy,
        *,
        dtype: Any = None,
        device: Any = None,
        memory_format: Any = torch.preserve_format,
    ) -> TensorProxy:
        return draw(
            input.shape,
            device=input.device if device is None else default_device(device),
            dtype=input.dtype if dtype is None else to_dtype(dtype),
        )

    return (
        torchsymbol(f"torch.{name}", spelling=size_spelling, tags=RANDOM, vjp=NONDIFFERENTIABLE)(plain),
        torchsymbol(f"torch.{name}_like", tags=RANDOM, vjp=NONDIFFERENTIABLE)(like),
    )


rand, rand_like = _drawn("rand", lambda shape, **kw: prims.uniform(shape, 0.0, 1.0, **kw))
randn, randn_like = _drawn("randn", lambda shape, **kw: prims.randn(shape, **kw))


def _randint_spelling(*bounds: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``randint(high, size)``, ``randint(low, high, size)`` → ``randint(low, high, size)``."""
    given = list(bounds)
    size = kwargs.pop("size", None)
    if size is None:
        size = given.pop()
    high = kwargs.pop("high", None)
    if high is None:
        high = given.pop()
    low = kwargs.pop("low", None)
    if low is None:
        low = given.pop() if given else 0
    if given or not kwargs.keys() <= {"dtype", "device"}:
        raise TypeError("randint() received an invalid combination of arguments")
    return (low, high, tuple(size)), {"dtype": kwargs.get("dtype"), "device": kwargs.get("device")}


@torchsymbol("torch.randint", spelling=_randint_spelling, tags=RANDOM, vjp=NONDIFFERENTIABLE)
def randint(
    low: int, high: int, size: Sequence[int], *, dtype: Any = None, device: Any = None
) -> TensorProxy:
    """Integers from ``low`` to ``high - 1``."""
    wanted = int64 if dtype is None else to_dtype(dtype)
    return prims.randint(low, high, tuple(size), device=default_device(device), dtype=wanted)


def _randint_like_spelling(
    input: Any, *bounds: Any, low: int = 0, high: int | None = None, **kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if len(bounds) == 2:
        low, high = bounds
    elif bounds:
        high = bounds[0]
    options = {"dtype": kwargs.pop("dtype", None), "device": kwargs.pop("device", None)}
    if kwargs or high is None:
        raise TypeError("randint_like() received an invalid combination of arguments")
    return (input, low, high), options


@torchsymbol("torch.randint_like", spelling=_randint_like_spelling, tags=RANDOM, vjp=NONDIFFERENTIABLE)
def randint_like(
    input: TensorProxy, low: int, high: int, *, dtype: Any = None, device: Any = None
) -> TensorProxy:
    """Integers from ``low`` to ``high - 1``, of the input's shape."""
    where = input.device if device is None else default_device(device)
    wanted = input.dtype if dtype is None else to_dtype(dtype)
    return prims.randint(low, high, input.shape, device=where, dtype=wanted)


@torchsymbol("torch.randperm", tags=RANDOM, vjp=NONDIFFERENTIABLE)
def randperm(n: int, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """A random permutation of the numbers below ``n``."""
    if n < 0:
        raise OperatorError(f"n must be non-negative, got{n}")
    wanted = int64 if dtype is None else to_dtype(dtype)
    return prims.randperm(n, device=default_device(device), dtype=wanted)


def _bernoulli_spelling(input: Any, p: Any = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((input,) if p is None else (input, p)), {}


@torchsymbol(
    "torch.bernoulli",
    methods=("bernoulli",),
    spelling=_bernoulli_spelling,
    tags=RANDOM,
)
def bernoulli(input: TensorProxy, p: float | None = None) -> TensorProxy:
    """1 with the probability that the input (or ``p``) says, else 0."""
    if p is None:
        return prims.bernoulli(input)
    if not 0 <= p <= 1:
        raise OperatorError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    chance = prims.full(input.shape, p, device=input.device, dtype=to_dtype(torch.float64))
    return prims.convert_element_type(prims.bernoulli(chance), input.dtype)


@torchsymbol("torch.multinomial", methods=("multinomial",), tags=RANDOM, vjp=NONDIFFERENTIABLE)
def multinomial(input: TensorProxy, num_samples: int, replacement: bool = False) -> TensorProxy:
    """Indices drawn with the weights in the input's last dimension."""
    return prims.multinomial(input, num_samples, replacement)


def _normal_spelling(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, **kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not kwargs.keys() <= {"dtype", "device"}:
        raise TypeError(f"unexpected keyword arguments {sorted(kwargs)}")
    if size is None:
        return (mean, std), {}
    return (mean, std, tuple(size)), {"dtype": kwargs.get("dtype"), "device": kwargs.get("device")}


@torchsymbol("torch.normal", spelling=_normal_spelling, tags=RANDOM)
def normal(
    mean: Any, std: Any, size: Sequence[int] | None = None, *, dtype: Any = None, device: Any = None
) -> TensorProxy:
    """Normally distributed numbers; mean and deviation may be tensors."""
    tensors = [x for x in (mean, std) if isinstance(x, TensorProxy)]
    if not tensors:
        shape = tuple(size or ())
        return prims.normal(shape, mean, std, device=default_device(device), dtype=default_dtype(dtype))
    shape = common_shape([t.shape for t in tensors])
    mean, std = (broadcast_to_shape(x, shape) if isinstance(x, TensorProxy) else x for x in (mean, std))
    drawn = prims.normal(shape, 0.0, 1.0, device=tensors[0].device, dtype=tensors[0].dtype)
    return prims.add(prims.mul(drawn, std), mean)


# -- filling in place ----------------------------------------------------------------------------------------


@torchsymbol("torch.Tensor.uniform_", tags=IN_PLACE)
def uniform_(input: TensorProxy, from_: float = 0.0, to: float = 1.0) -> TensorProxy:
    """Uniformly distributed numbers."""
    return assign(prims.uniform(input.shape, from_, to, device=input.device, dtype=input.dtype), input)


@torchsymbol("torch.Tensor.normal_", tags=IN_PLACE)
def normal_(input: TensorProxy, mean: float = 0.0, std: float = 1.0) -> TensorProxy:
    """Normally distributed numbers."""
    return assign(prims.normal(input.shape, mean, std, device=input.device, dtype=input.dtype), input)


@torchsymbol("torch.Tensor.exponential_", tags=IN_PLACE)
def exponential_(input: TensorProxy, lambd: float = 1.0) -> TensorProxy:
    """Exponentially distributed numbers."""
    if lambd <= 0:
        raise OperatorError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return assign(prims.exponential(input.shape, lambd, device=input.device, dtype=input.dtype), input)


@torchsymbol("torch.Tensor.bernoulli_", tags=IN_PLACE)
def bernoulli_(input: TensorProxy, p: Any = 0.5) -> TensorProxy:
    """1 with probability ``p``, else 0."""
    if not isinstance(p, TensorProxy):
        return assign(bernoulli(input, p), input)
    drawn = prims.bernoulli(broadcast_to_shape(p, input.shape))
    return assign(prims.convert_element_type(drawn, input.dtype), input)
