"""Random numbers, drawn from the generators that eager draws from, in eager's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.dtypes import int64, to_dtype
from thunder.base.errors import OperatorError
from thunder.base.memory_layout import contiguous_strides
from thunder.base.signature import omit_if_none
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ir.trace_context import get_tracectx
from thunder.ops import prims
from thunder.ops.layout_rules import NEW, NEW_LIKE
from thunder.ops.layouts import Layouts
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.random import check_generator
from thunder.torch.argument_binding import BindingError, unpacked
from thunder.torch.broadcasting import broadcast_to_shape, common_shape
from thunder.torch.inplace import assign
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.creation import default_device, default_dtype

RANDOM = (OpTags.RANDOM_OP,)
CHECKED = (*RANDOM, OpTags.RAISES_ON_DATA)
IN_PLACE = (OpTags.RANDOM_OP, OpTags.IN_PLACE)

Bound = tuple[tuple[Any, ...], dict[str, Any]]
_optional_generator = omit_if_none("generator")


def _options(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a factory, with a generator only if there is one."""
    if not kwargs.keys() <= {"dtype", "device", "generator"}:
        raise BindingError(f"{name}() received an invalid combination of arguments")
    generator = kwargs.get("generator")
    optional = {} if generator is None else {"generator": generator}
    return {"dtype": kwargs.get("dtype"), "device": kwargs.get("device"), **optional}


# -- of a shape ----------------------------------------------------------------------------------------------


def _drawn(name: str, draw: Callable[..., TensorProxy]) -> tuple[Symbol, Symbol]:
    """Register ``torch.<name>`` and ``torch.<name>_like``."""

    def spelling(*size: Any, **kwargs: Any) -> Bound:
        if "size" in kwargs and not size:
            size = (kwargs.pop("size"),)
        return (unpacked(size),), _options(name, kwargs)

    def plain(
        size: Sequence[int], *, dtype: Any = None, device: Any = None, generator: Any = None
    ) -> TensorProxy:
        where, result_type = default_device(device), default_dtype(dtype)
        return draw(tuple(size), device=where, dtype=result_type, generator=generator)

    def like(
        input: TensorProxy,
        *,
        dtype: Any = None,
        device: Any = None,
        memory_format: Any = torch.preserve_format,
        generator: Any = None,
    ) -> TensorProxy:
        return draw(
            input.shape,
            device=input.device if device is None else default_device(device),
            dtype=input.dtype if dtype is None else to_dtype(dtype),
            generator=generator,
        )

    row: dict[str, Any] = {"tags": RANDOM, "vjp": NONDIFFERENTIABLE}
    return (
        torchsymbol(
            f"torch.{name}",
            spelling=spelling,
            layout=NEW,
            integers="sizes",
            **(row | {"tags": (*RANDOM, OpTags.DEFAULT_DTYPE)}),
        )(_optional_generator(plain)),
        torchsymbol(f"torch.{name}_like", layout=NEW_LIKE, **row)(_optional_generator(like)),
    )


rand, rand_like = _drawn("rand", lambda shape, **kw: prims.uniform(shape, 0.0, 1.0, **kw))
randn, randn_like = _drawn("randn", lambda shape, **kw: prims.randn(shape, **kw))


def _randint_spelling(*bounds: Any, **kwargs: Any) -> Bound:
    """Bind ``randint(high, size)`` and ``randint(low, high, size)``."""
    positional = list(bounds)
    size = kwargs.pop("size", None)
    if size is None:
        size = positional.pop()
    high = kwargs.pop("high", None)
    if high is None:
        high = positional.pop()
    low = kwargs.pop("low", None)
    if low is None:
        low = positional.pop() if positional else 0
    if positional:
        raise BindingError("randint() received an invalid combination of arguments")
    return (low, high, tuple(size)), _options("randint", kwargs)


@torchsymbol("torch.randint", spelling=_randint_spelling, tags=RANDOM, vjp=NONDIFFERENTIABLE, layout=NEW)
@_optional_generator
def randint(
    low: int,
    high: int,
    size: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> TensorProxy:
    """Integers from ``low`` to ``high - 1``."""
    result_type = int64 if dtype is None else to_dtype(dtype)
    where = default_device(device)
    return prims.randint(low, high, tuple(size), device=where, dtype=result_type, generator=generator)


def _randint_like_spelling(
    input: Any, *bounds: Any, low: int = 0, high: int | None = None, **kwargs: Any
) -> Bound:
    if len(bounds) == 2:
        low, high = bounds
    elif bounds:
        high = bounds[0]
    if high is None:
        raise BindingError("randint_like() received an invalid combination of arguments")
    return (input, low, high), _options("randint_like", kwargs)


@torchsymbol(
    "torch.randint_like", spelling=_randint_like_spelling, tags=RANDOM, vjp=NONDIFFERENTIABLE, layout=NEW_LIKE
)
@_optional_generator
def randint_like(
    input: TensorProxy, low: int, high: int, *, dtype: Any = None, device: Any = None, generator: Any = None
) -> TensorProxy:
    """Integers from ``low`` to ``high - 1``, of the input's shape."""
    where = input.device if device is None else default_device(device)
    result_type = input.dtype if dtype is None else to_dtype(dtype)
    return prims.randint(low, high, input.shape, device=where, dtype=result_type, generator=generator)


@torchsymbol("torch.randperm", tags=RANDOM, vjp=NONDIFFERENTIABLE)
@_optional_generator
def randperm(n: int, *, dtype: Any = None, device: Any = None, generator: Any = None) -> TensorProxy:
    """A random permutation of the numbers below ``n``."""
    if n < 0:
        raise OperatorError(f"n must be non-negative, got{n}")
    result_type = int64 if dtype is None else to_dtype(dtype)
    return prims.randperm(n, device=default_device(device), dtype=result_type, generator=generator)


# -- by parameters in tensors --------------------------------------------------------------------------------


def _bernoulli_spelling(input: Any, p: Any = None, *, generator: Any = None) -> Bound:
    optional = {} if generator is None else {"generator": generator}
    return ((input,) if p is None else (input, p)), optional


@torchsymbol("torch.bernoulli", methods=("bernoulli",), spelling=_bernoulli_spelling, tags=CHECKED)
@_optional_generator
def bernoulli(input: TensorProxy, p: float | None = None, *, generator: Any = None) -> TensorProxy:
    """1 with the probability in the input (or ``p``), else 0."""
    if p is None:
        return prims.bernoulli(input, generator=generator)
    return prims.bernoulli_fill(input.shape, p, device=input.device, dtype=input.dtype, generator=generator)


@torchsymbol("torch.multinomial", methods=("multinomial",), tags=CHECKED, vjp=NONDIFFERENTIABLE)
@_optional_generator
def multinomial(
    input: TensorProxy, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> TensorProxy:
    """Indices drawn with the weights in the input's last dimension."""
    return prims.multinomial(input, num_samples, replacement, generator=generator)


@torchsymbol("torch.poisson", prim=True, tags=CHECKED)
def poisson(input: TensorProxy, generator: Any = None) -> TensorProxy:
    """Counts of events whose rates are the elements of the input."""
    check_generator(generator, input.device)
    if not input.dtype.is_floating_point:
        raise OperatorError(f'"poisson_cpu" not implemented for {input.dtype}')
    return TensorProxy(like=input)


@torchsymbol("torch.binomial", prim=True, tags=CHECKED)
def binomial(count: TensorProxy, prob: TensorProxy, generator: Any = None) -> TensorProxy:
    """The number of successes among ``count`` trials with probability ``prob``."""
    check_generator(generator, count.device)
    if not (count.dtype.is_floating_point and count.dtype is prob.dtype):
        raise OperatorError("binomial only supports floating-point dtypes for count and prob")
    shape = common_shape([count.shape, prob.shape])
    return TensorProxy(shape=shape, device=count.device, dtype=count.dtype)


@torchsymbol("torch._standard_gamma", prim=True, tags=RANDOM)
def _standard_gamma(concentration: TensorProxy, generator: Any = None) -> TensorProxy:
    """Draw from Gamma distributions of rate 1 with these concentrations."""
    return _drawn_by(concentration, generator, "standard_gamma")


@torchsymbol("torch._sample_dirichlet", prim=True, tags=RANDOM)
def _sample_dirichlet(concentration: TensorProxy, generator: Any = None) -> TensorProxy:
    """Draw from Dirichlet distributions over the last dimension."""
    return _drawn_by(concentration, generator, "dirichlet")


@torchsymbol("torch._standard_gamma_grad", prim=True)
def _standard_gamma_grad(concentration: TensorProxy, output: TensorProxy) -> TensorProxy:
    """The derivative of a draw of ``torch._standard_gamma`` by its concentration."""
    return TensorProxy(like=concentration)


def _drawn_by(concentration: TensorProxy, generator: Any, name: str) -> TensorProxy:
    check_generator(generator, concentration.device)
    if not concentration.dtype.is_floating_point:
        raise OperatorError(f'"{name}" not implemented for {concentration.dtype}')
    return TensorProxy(like=concentration)


def _normal_spelling(mean: Any = 0.0, std: Any = 1.0, size: Any = None, **kwargs: Any) -> Bound:
    options = _options("normal", kwargs)
    if size is None:
        return (mean, std), {k: v for k, v in options.items() if k == "generator"}
    return (mean, std, tuple(size)), options


@torchsymbol("torch.normal", spelling=_normal_spelling, tags=CHECKED)
@_optional_generator
def normal(
    mean: Any,
    std: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    generator: Any = None,
) -> TensorProxy:
    """Normally distributed numbers; mean and deviation may be tensors."""
    tensors = [x for x in (mean, std) if isinstance(x, TensorProxy)]
    if not tensors:
        options = {"device": default_device(device), "dtype": default_dtype(dtype), "generator": generator}
        return prims.normal(tuple(size or ()), mean, std, **options)
    shape = common_shape([t.shape for t in tensors])
    mean, std = (broadcast_to_shape(x, shape) if isinstance(x, TensorProxy) else x for x in (mean, std))
    options = {"device": tensors[0].device, "dtype": tensors[0].dtype, "generator": generator}
    return prims.add(prims.mul(prims.normal(shape, 0.0, 1.0, **options), std), mean)


# -- filling in place ----------------------------------------------------------------------------------------


def _fill(input: TensorProxy, draw: Symbol, *parameters: Any, generator: Any) -> TensorProxy:
    options = {"device": input.device, "dtype": input.dtype, "generator": generator}
    return assign(draw(input.shape, *parameters, strides=_strides(input), **options), input)


def _strides(target: TensorProxy) -> tuple[int, ...] | None:
    """Return the strides of the tensor that eager fills; None where it is contiguous."""
    trace = get_tracectx()
    recorded = [bsym for scope in trace.scopes for bsym in scope] if trace is not None else []
    strides = Layouts((), recorded).strides(target)
    return None if strides == contiguous_strides(target.shape) else strides


@torchsymbol("torch.Tensor.uniform_", tags=IN_PLACE)
@_optional_generator
def uniform_(
    input: TensorProxy, from_: float = 0.0, to: float = 1.0, *, generator: Any = None
) -> TensorProxy:
    """Uniformly distributed numbers."""
    return _fill(input, prims.uniform, from_, to, generator=generator)


@torchsymbol("torch.Tensor.normal_", tags=IN_PLACE)
@_optional_generator
def normal_(input: TensorProxy, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> TensorProxy:
    """Normally distributed numbers."""
    return _fill(input, prims.normal, mean, std, generator=generator)


@torchsymbol("torch.nn.init.trunc_normal_", tags=IN_PLACE)
def trunc_normal_(
    tensor: TensorProxy,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> TensorProxy:
    """Normally distributed numbers between two bounds.

    Of torch's initialisers, the only one whose code reads the numbers that it has drawn.
    """
    with torch.no_grad():
        return _fill(tensor, prims.trunc_normal, mean, std, a, b, generator=generator)


@torchsymbol("torch.Tensor.log_normal_", tags=IN_PLACE)
@_optional_generator
def log_normal_(
    input: TensorProxy, mean: float = 1.0, std: float = 2.0, *, generator: Any = None
) -> TensorProxy:
    """Numbers whose logarithms are normally distributed."""
    return _fill(input, prims.log_normal, mean, std, generator=generator)


@torchsymbol("torch.Tensor.cauchy_", tags=IN_PLACE)
@_optional_generator
def cauchy_(
    input: TensorProxy, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None
) -> TensorProxy:
    """Numbers of a Cauchy distribution."""
    return _fill(input, prims.cauchy, median, sigma, generator=generator)


@torchsymbol("torch.Tensor.exponential_", tags=IN_PLACE)
@_optional_generator
def exponential_(input: TensorProxy, lambd: float = 1.0, *, generator: Any = None) -> TensorProxy:
    """Exponentially distributed numbers."""
    return _fill(input, prims.exponential, lambd, generator=generator)


@torchsymbol("torch.Tensor.geometric_", tags=IN_PLACE)
@_optional_generator
def geometric_(input: TensorProxy, p: float, *, generator: Any = None) -> TensorProxy:
    """The number of trials until the first success, each with probability ``p``."""
    return _fill(input, prims.geometric, p, generator=generator)


@torchsymbol("torch.Tensor.bernoulli_", tags=IN_PLACE)
@_optional_generator
def bernoulli_(input: TensorProxy, p: Any = 0.5, *, generator: Any = None) -> TensorProxy:
    """1 with probability ``p``, else 0."""
    chance = broadcast_to_shape(p, input.shape) if isinstance(p, TensorProxy) else p
    return _fill(input, prims.bernoulli_fill, chance, generator=generator)


def _random_spelling(input: Any, *bounds: Any, generator: Any = None, **named: Any) -> Bound:
    """Bind ``random_()``, ``random_(to)`` and ``random_(from, to)``, where ``to`` may be None."""
    if not named.keys() <= {"from", "to"}:
        raise BindingError("random_() received an invalid combination of arguments")
    bounds = (*bounds, *(named[name] for name in ("from", "to") if name in named))
    if len(bounds) > 2:
        raise BindingError("random_() received an invalid combination of arguments")
    return (input, *bounds), {} if generator is None else {"generator": generator}


@torchsymbol("torch.Tensor.random_", spelling=_random_spelling, tags=IN_PLACE)
@_optional_generator
def random_(input: TensorProxy, *bounds: int | None, generator: Any = None) -> TensorProxy:
    """Whole numbers: of all that the dtype holds, or between bounds."""
    return _fill(input, prims.randint_fill, *bounds, generator=generator)
