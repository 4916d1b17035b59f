"""Functions of torch that compute nvFuser's operations, and the dtypes of the results.

nvFuser computes on float16 and bfloat16 in float32, and the result is float32; comparisons give bools. A
number does not promote the tensors that it is combined with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from .data_types import compute_dtype, names
from .flash_attention import flash_attention, flash_attention_backward

__all__ = ["REPLAY", "Replayed"]


@dataclass(frozen=True)
class Replayed:
    """An operation: how torch computes it, and the dtypes of its results from its arguments.

    `creates` marks one without tensor arguments, whose function takes the device as well, and `is_number` one
    whose result is a number although its argument is a tensor.
    """

    compute: Callable[..., Any]
    dtypes: Callable[..., Any]
    creates: bool = False
    is_number: bool = False


def _promoted(*operands: Any, **kwargs: Any) -> torch.dtype:
    """Return the dtype that nvFuser computes tensors of these dtypes in."""
    dtypes = [x.dtype for x in operands if getattr(x, "is_tensor", False)]
    result = compute_dtype(dtypes[0])
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, compute_dtype(dtype))
    return result


def _same(x: Any, *args: Any, **kwargs: Any) -> torch.dtype:
    dtype: torch.dtype = x.dtype
    return dtype


def _bool(*args: Any, **kwargs: Any) -> torch.dtype:
    return torch.bool


def _wide(x: Any) -> Any:
    """Return an operand in the dtype that nvFuser computes in."""
    return x.to(compute_dtype(x.dtype)) if isinstance(x, Tensor) else x


def _elementwise(fn: Callable[..., Any], dtypes: Callable[..., Any] = _promoted) -> Replayed:
    return Replayed(lambda *args: _with_tensors(fn, [_wide(x) for x in args]), dtypes)


def _with_tensors(fn: Callable[..., Any], operands: list[Any]) -> Any:
    """Call a function of torch that takes tensors alone; numbers become tensors of the others' dtype."""
    first = next(x for x in operands if isinstance(x, Tensor))
    common = next((x for x in operands if isinstance(x, Tensor) and x.dtype is not torch.bool), first)

    def tensor(x: Any) -> Tensor:
        if isinstance(x, Tensor):
            return x
        return torch.full((), x, dtype=_of_number(x, common), device=first.device)

    return fn(*map(tensor, operands))


def _of_number(x: Any, like: Tensor) -> torch.dtype:
    return torch.promote_types(like.dtype, torch.float32) if isinstance(x, float) else like.dtype


def _truncated(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode=None if a.dtype.is_floating_point else "trunc")


_UNARY: Final = {
    **{
        name: getattr(torch, name)
        for name in names(
            "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfinv exp exp2 "
            "expm1 floor frac lgamma log log10 log1p log2 logical_not neg reciprocal relu round "
            "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
        )
    },
    "erfcinv": lambda a: torch.special.ndtri(a * 0.5) * -(0.5**0.5),
    "silu": torch.nn.functional.silu,
}
_TESTS: Final = names("isfinite isinf isnan isneginf isposinf signbit")
_BINARY: Final = {
    **{
        name: getattr(torch, name)
        for name in names(
            "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor "
            "fmod gcd maximum minimum mul nextafter pow remainder sub"
        )
    },
    "div": _truncated,
    "truediv": torch.true_divide,
}
_COMPARISONS: Final = names("eq ge gt le lt ne logical_and logical_or")


def _cast(a: Any, dtype: torch.dtype) -> Any:
    return a.to(dtype) if isinstance(a, Tensor) else torch.tensor(a, dtype=dtype).item()


def _reduced(fn: Callable[..., Any]) -> Replayed:
    def compute(a: Tensor, dims: Any, keepdim: bool = False, dtype: Any = None) -> Tensor:
        result: Tensor = fn(_wide(a), [dims] if isinstance(dims, int) else list(dims), keepdim)
        return result

    return Replayed(compute, lambda a, *args, **kwargs: compute_dtype(a.dtype))


def _prod(a: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    for d in sorted(dims, reverse=True):
        a = torch.prod(a, d, keepdim, dtype=a.dtype)
    return a


def _in_dims(a: Tensor, shape: list[int], dims: list[int]) -> Tensor:
    sizes = [1] * len(shape)
    for d, size in zip(dims, a.shape, strict=True):
        sizes[d] = size
    return a.reshape(sizes).expand(shape)


def _sliced(
    a: Tensor,
    start_indices: list[int],
    end_indices: list[int],
    strides: list[int] | None = None,
    **kwargs: Any,
) -> Tensor:
    steps = strides or [1] * a.ndim
    return a[tuple(map(slice, start_indices, end_indices, steps))]


def _scanned(fn: Callable[..., Any]) -> Replayed:
    return Replayed(lambda a, dim: fn(_wide(a), dim), lambda a, dim: compute_dtype(a.dtype))


def _iota(length: int, start: int, step: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return (torch.arange(length, device=device) * step + start).to(dtype)


def _full(shape: list[int], fill_value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full(shape, fill_value, dtype=dtype, device=device)


def _uniform(
    minval: float,
    maxval: float,
    shape: list[int],
    *,
    rng_seed: int,
    rng_offset: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Other numbers than nvFuser's, of the same distribution, that depend on seed and offset alone."""
    generator = torch.Generator().manual_seed((rng_seed * 1_000_003 + rng_offset) % 2**63)
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (values * (maxval - minval) + minval).to(device, dtype)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    dropout_p: float,
    is_causal: bool,
    scale: float | None = None,
) -> Any:
    _check_no_dropout(dropout_p)
    return flash_attention(query, key, value, is_causal, scale)


def _attention_dtypes(query: Any, *args: Any, **kwargs: Any) -> tuple[torch.dtype, ...]:
    return query.dtype, torch.float32, torch.uint64, torch.uint64


def _attention_backward(
    *tensors: Tensor,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    scale: float | None,
) -> Any:
    _check_no_dropout(dropout_p)
    return flash_attention_backward(*tensors, is_causal, philox_seed, philox_offset, scale)


def _attention_backward_dtypes(grad: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    return query.dtype, key.dtype, value.dtype


def _check_no_dropout(dropout_p: float) -> None:
    if dropout_p != 0.0:
        raise TypeError(f"torch drops other weights than nvFuser: dropout_p={dropout_p}")


def _stated(*args: Any, dtype: Any, **kwargs: Any) -> torch.dtype:
    result: torch.dtype = dtype.value
    return result


def _pair(a: Any, *args: Any, **kwargs: Any) -> tuple[torch.dtype, torch.dtype]:
    return compute_dtype(a.dtype), compute_dtype(a.dtype)


REPLAY: Final[dict[str, Replayed]] = {
    **{name: _elementwise(fn) for name, fn in _UNARY.items()},
    **{name: _elementwise(getattr(torch, name), _bool) for name in _TESTS},
    **{name: _elementwise(fn) for name, fn in _BINARY.items()},
    **{name: _elementwise(getattr(torch, name), _bool) for name in _COMPARISONS},
    "where": _elementwise(torch.where, lambda c, a, b: _promoted(a, b)),
    "lerp": _elementwise(torch.lerp),
    "set": Replayed(torch.clone, _same),
    "cast": Replayed(_cast, lambda a, dtype: dtype.value),
    "sum": _reduced(lambda a, dims, keepdim: torch.sum(a, dims, keepdim, dtype=a.dtype)),
    "max": _reduced(torch.amax),
    "min": _reduced(torch.amin),
    "prod": _reduced(_prod),
    "var": Replayed(
        lambda a, dims, correction=1, keepdim=False: torch.var(
            _wide(a), dims, correction=correction, keepdim=keepdim
        ),
        lambda a, *args, **kwargs: compute_dtype(a.dtype),
    ),
    "var_mean": Replayed(
        lambda a, dims, correction=1, keepdim=False: torch.var_mean(
            _wide(a), dims, correction=correction, keepdim=keepdim
        ),
        _pair,
    ),
    "size": Replayed(lambda a, dim: a.shape[dim], lambda a, dim: torch.int64, is_number=True),
    "argsort": Replayed(
        lambda a, dim, descending=False, stable=False: torch.sort(
            a, dim=dim, descending=descending, stable=stable
        )[1],
        lambda a, *args, **kwargs: torch.int64,
    ),
    "topk": Replayed(
        lambda a, k, dim=-1, largest=True, sorted=False: tuple(torch.topk(a, k, dim, largest, sorted)),
        lambda a, *args, **kwargs: (a.dtype, torch.int64),
    ),
    "cummax": Replayed(lambda a, dim: torch.cummax(a, dim)[0], _same),
    "cummin": Replayed(lambda a, dim: torch.cummin(a, dim)[0], _same),
    "cumsum": _scanned(torch.cumsum),
    "cumprod": _scanned(torch.cumprod),
    "broadcast_in_dim": Replayed(lambda a, shape, broadcast_dims: _in_dims(a, shape, broadcast_dims), _same),
    "expand": Replayed(lambda a, shape: a.expand(shape), _same),
    "permute": Replayed(torch.permute, _same),
    "reshape": Replayed(lambda a, new_shape: a.reshape(new_shape), _same),
    "squeeze": Replayed(lambda a, dims: torch.squeeze(a, tuple(dims)), _same),
    "slice": Replayed(_sliced, _same),
    "pad": Replayed(
        lambda a, pad_widths, value=0: torch.nn.functional.pad(a, pad_widths, value=value), _same
    ),
    "cat": Replayed(lambda tensors, dim=0: torch.cat(tensors, dim), lambda tensors, dim=0: tensors[0].dtype),
    "triu": Replayed(torch.triu, _same),
    "stride_order": Replayed(lambda a, stride_order: a, _same),
    "full": Replayed(_full, _stated, creates=True),
    "iota": Replayed(_iota, _stated, creates=True),
    "index_select": Replayed(lambda a, index, dim: torch.index_select(a, dim, index), _same),
    "gather": Replayed(lambda a, index, dim: torch.gather(a, dim, index), _same),
    "take_along_axis": Replayed(lambda a, index, dim: torch.take_along_dim(a, index, dim), _same),
    "scatter": Replayed(lambda a, index, src, dim: torch.scatter(a, dim, index, src), _same),
    "embedding_fwd": Replayed(
        lambda input, weight: torch.nn.functional.embedding(input, weight), lambda input, weight: weight.dtype
    ),
    "uniform": Replayed(_uniform, _stated, creates=True),
    "sdpfa_fwd": Replayed(_attention, _attention_dtypes),
    "sdpfa_bwd": Replayed(_attention_backward, _attention_backward_dtypes),
    "linear": Replayed(torch.nn.functional.linear, _same),
    "matmul": Replayed(torch.matmul, _same),
}
