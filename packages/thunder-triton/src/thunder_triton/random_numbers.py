"""Random numbers that kernels compute, in place of those of torch: the option `triton_random`.

    y = dropout(x, p)   →   seed = seed(x.device)              drawn from torch's generator
                            y = dropped(x, seed, p)            in a kernel
                            grad_x = dropped(grad_y, seed, p)  in a kernel of the backward

A number depends on the seed and the place of an element, so that it is computed wherever it is read, and not
saved. `torch.manual_seed` decides the seeds. The numbers have the distribution of torch's, and are not those
that torch draws with the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder import TensorProxy, dtypes
from thunder.core.errors import UnknownOption
from thunder.core.prims import OpTags
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Refusal, compile_option

from .environment import triton_version
from .fusions.building import NUMBERS
from .fusions.program import contiguous_strides
from .library.declaration import kernel

__all__ = ["COMPOSITES", "DRAWS", "Draw"]

_operators = OperatorExecutor("triton_random", version=triton_version())

#: dtype → significant binary digits of numbers of [0, 1), of which float32 has 24
_DIGITS: Final[Mapping[Any, int]] = {dtypes.float32: 24, dtypes.bfloat16: 8, dtypes.float16: 11}


def _draws_in_kernels() -> bool:
    """Return the option `triton_random`; False where the plugin is not registered that declares it."""
    try:
        return bool(compile_option("triton_random"))
    except UnknownOption:
        return False


# -- operators -----------------------------------------------------------------------------------------------


def _seed_meta(device: Any) -> TensorProxy:
    return TensorProxy(shape=(), device=device, dtype=dtypes.int64, requires_grad=False)


def _drawn_seed(device: Any) -> torch.Tensor:
    return torch.randint(1 << 62, (), device=torch.device(str(device)))


def _numbers_meta(shape: Any, seed: TensorProxy) -> TensorProxy:
    strides = contiguous_strides(shape)
    return TensorProxy(
        shape=tuple(shape), device=seed.device, dtype=dtypes.float32, requires_grad=False, strides=strides
    )


#: a number from the default generator of a device
seed = _operators.register_operator(
    "seed", meta=_seed_meta, fn=_drawn_seed, tags=[OpTags.RANDOM_OP, OpTags.NONDIFFERENTIABLE]
)
#: float32 numbers of [0, 1), each a function of a seed and its place
numbers = _operators.register_operator(
    NUMBERS.rpartition(".")[2],
    meta=_numbers_meta,
    fn=kernel("random", "uniform"),
    tags=[OpTags.NONDIFFERENTIABLE],
)


def _uniform(like: Any, seed: Any, steps: float) -> Any:
    """Compute multiples of 1 / steps in [0, 1), which a dtype holds exactly: rounded numbers could be 1."""
    drawn = torch.floor(numbers(tuple(like.shape), seed) * steps) * (1 / steps)
    return torch.zeros_like(like) + drawn.to(like.dtype)  # with the strides of `like`, as in eager


def _normal(like: Any, seed: Any) -> Any:
    """Compute normal numbers from two of [0, 1) each, with the strides of a tensor.

    Box and Muller, A note on the generation of random normal deviates, 1958. The least of the first numbers
    is taken to be 2**-32, half of what they are multiples of, so that no number is infinite or beyond 6.7.
    """
    drawn = numbers((2, *like.shape), seed)
    radius = torch.sqrt(torch.log(torch.clamp(drawn[0], min=2.0**-32)) * -2)
    return torch.zeros_like(like) + (radius * torch.cos(drawn[1] * (2 * math.pi))).to(like.dtype)


def _bernoulli(like: Any, seed: Any, p: float) -> Any:
    """Compute 1 with a probability, else 0, with the dtype of a tensor; contiguous, as in eager."""
    return (numbers(tuple(like.shape), seed) < p).to(like.dtype)


def _dropped(x: Any, seed: Any, p: float) -> Any:
    """Compute a dropout, in the order of torch's kernel: NaN stays, and the factor is not rounded."""
    return x * (numbers(tuple(x.shape), seed) < 1 - p) * (1 / (1 - p))


uniform = _operators.register_operator("uniform", like=_uniform)
normal = _operators.register_operator("normal", like=_normal)
bernoulli = _operators.register_operator("bernoulli", like=_bernoulli)
dropped = _operators.register_operator("dropped", like=_dropped)

#: operators that are computed within a region
COMPOSITES: Final = (uniform, normal, bernoulli, dropped)


# -- torch's operators ---------------------------------------------------------------------------------------


def _is_drawn(result: TensorProxy, generator: Any = None) -> bool | Refusal:
    """Return True if a kernel draws numbers like a tensor, else a refusal."""
    if not _draws_in_kernels():
        return Refusal("random", "kernels draw other numbers than torch: triton_random=True allows it")
    if generator is not None:
        return Refusal("random", "a kernel draws from torch's default generator")
    if result.dtype not in _DIGITS or result.numel() == 0:
        return Refusal("random", "a kernel draws numbers of at most 24 digits", dtype=result.dtype)
    return True


def _check_dropout(
    input: TensorProxy, p: float = 0.5, training: bool = True, inplace: bool = False
) -> bool | Refusal:
    """Refuse what keeps all elements, drops all, or writes."""
    if not training or inplace or not 0 < p < 1:
        return Refusal("random", "a kernel drops some elements, and writes to no argument", p=p)
    return _is_drawn(input)


def _dropout(input: TensorProxy, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Compute a dropout and its gradient, from one seed."""
    drawn = seed(input.device)
    result = dropped(input, drawn, p)
    put_grads((input,), (dropped(get_grad(result), drawn, p),))
    return result


def _check_rand_like(
    input: TensorProxy,
    *,
    dtype: Any = None,
    device: Any = None,
    memory_format: Any = None,
    generator: Any = None,
) -> bool | Refusal:
    """Refuse another dtype or device than the input's."""
    if dtype is not None or device is not None:
        return Refusal("random", "a kernel draws numbers of the dtype and on the device of the input")
    return _is_drawn(input, generator)


def _rand_like(input: TensorProxy, **options: Any) -> Any:
    return uniform(input, seed(input.device), 2.0 ** _DIGITS[input.dtype])


def _randn_like(input: TensorProxy, **options: Any) -> Any:
    return normal(input, seed(input.device))


def _check_bernoulli(input: TensorProxy, p: Any = None, *, generator: Any = None) -> bool | Refusal:
    """Refuse probabilities in a tensor, which torch checks."""
    if not isinstance(p, float):
        return Refusal("random", "a kernel draws with one probability for all elements")
    return _is_drawn(input, generator)


def _bernoulli_of(input: TensorProxy, p: float, **options: Any) -> Any:
    return bernoulli(input, seed(input.device), p)


@dataclass(frozen=True)
class Draw:
    """The rules by which kernels compute an operator that draws; see `FusionExecutor.register_supported`."""

    checker: Callable[..., bool | Refusal]
    execution_transform: Callable[..., Any]
    grad_transform: Callable[..., Any] | None = None


#: name of an operator → how kernels compute it
DRAWS: Final[Mapping[str, Draw]] = {
    "torch.nn.functional.dropout": Draw(_check_dropout, _dropout, _dropout),
    "torch.rand_like": Draw(_check_rand_like, _rand_like),
    "torch.randn_like": Draw(_check_rand_like, _randn_like),
    "torch.bernoulli": Draw(_check_bernoulli, _bernoulli_of),
}
