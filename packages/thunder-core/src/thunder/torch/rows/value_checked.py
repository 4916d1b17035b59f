"""Rows of functions that check the data of their arguments before they compute.

Such a function raises or warns by data, or has no kernel for tensors without data. The shapes of its results
do not depend on data: they are computed here, and torch checks the data when the program runs. Gradients are
those of torch's autograd, as for functions without a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import int64
from thunder.base.errors import UnsupportedOperator
from thunder.base.memory_layout import contiguous_strides
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import eager_error, eager_error_on_identity
from thunder.ops.prims.linalg import broadcast_shapes
from thunder.ops.promotion import float_result, real_result, result_dtype
from thunder.ops.torch_errors import operator_error
from thunder.torch.batch_rules.batched_kernels import of_last_dims
from thunder.torch.fallback.fallback_rows import gradients_by_torch
from thunder.torch.meta_by_torch import signature_of
from thunder.torch.registration import torch_names, torchsymbol

Fn = Callable[..., Any]
RAISES = (OpTags.RAISES_ON_DATA,)


def value_checked(
    path: str,
    parameters: str,
    *,
    eager: Fn | None = None,
    finish: Fn | None = None,
    tags: tuple[OpTags, ...] = (),
    **row: Any,
) -> Callable[[Fn], Symbol]:
    """Register the decorated function as the metadata of torch's function at ``path``.

    Torch checks the arguments, on zeros and on regular matrices. ``finish(result, *args, **kwargs)`` returns
    what the program receives. ``row`` are further arguments of ``torchsymbol``.
    """

    def decorate(shapes: Fn) -> Symbol:
        fn, name = eager or find_torch(path), path.rpartition(".")[2]

        def meta(*args: Any, **kwargs: Any) -> Any:
            error = eager_error_on_identity(fn, args, kwargs)
            if error is not None and eager_error(fn, args, kwargs) is not None:
                raise operator_error(error, args, kwargs)
            return shapes(*args, **kwargs)

        def by_name(**arguments: Any) -> Any:
            bound = signature.bind(**arguments)
            return fn(*bound.args, **bound.kwargs)

        signature = signature_of(parameters)
        meta.__name__, meta.__doc__ = name, shapes.__doc__
        meta.__signature__ = signature  # type: ignore[attr-defined]
        gradients, all_tags = gradients_by_torch(path, by_name), (OpTags.DONT_RECOMPUTE_IN_BACKWARD, *tags)
        symbol = torchsymbol(id=path, prim=True, eager=eager, vjp=gradients, tags=all_tags, **row)(meta)

        @torch_names(path, methods=(name,) if path.count(".") == 1 and hasattr(torch.Tensor, name) else ())
        def call(*args: Any, **kwargs: Any) -> Any:
            result = symbol(*args, **kwargs)
            return result if finish is None else finish(result, *args, **kwargs)

        return symbol

    return decorate


def _like(x: TensorProxy, shape: Sequence[int], dtype: Dtype | None = None) -> TensorProxy:
    return TensorProxy(shape=shape, device=x.device, dtype=x.dtype if dtype is None else dtype)


def _dense(x: TensorProxy, shape: Sequence[int], dtype: Dtype | None = None) -> TensorProxy:
    """Like ``_like``, for a contiguous result."""
    result = _like(x, shape, dtype)
    result.strides = contiguous_strides(result.shape)
    return result


# -- statistics ----------------------------------------------------------------------------------------------


def _between_variables(x: TensorProxy, dtype: Dtype) -> TensorProxy:
    several = len(x.shape) == 2 and x.shape[0] != 1
    return _dense(x, (x.shape[0], x.shape[0]) if several else (), float_result(dtype))


@value_checked("torch.cov", "input, *, correction=1, fweights=None, aweights=None", tags=RAISES)
def cov(input: TensorProxy, *, aweights: TensorProxy | None = None, **how: Any) -> TensorProxy:
    """``input: (v, n)`` → ``(v, v)``; torch warns where there are too few observations."""
    weighted = input.dtype if aweights is None else result_dtype(input, aweights)
    return _between_variables(input, weighted)


@value_checked("torch.corrcoef", "input")
def corrcoef(input: TensorProxy) -> TensorProxy:
    """``input: (v, n)`` → ``(v, v)``."""
    return _between_variables(input, input.dtype)


@value_checked("torch.combinations", "input, r=2, with_replacement=False")
def combinations(input: TensorProxy, r: int = 2, with_replacement: bool = False) -> TensorProxy:
    """``input: (n,)`` → each choice of ``r`` elements, ``(count, r)``."""
    n = input.shape[0]
    if r == 0:
        return _dense(input, (0,))
    largest = n + r - 1 if with_replacement and n else n
    return _dense(input, (math.prod(largest - i for i in range(r)) // math.factorial(r), r))


# -- histograms ----------------------------------------------------------------------------------------------


def _histogram(input: torch.Tensor, bins: Any, *, range: Any, **how: Any) -> Any:
    """Call ``torch.histogram``, which takes a range only with a number of bins."""
    return torch.histogram(input, bins, **how, **({} if range is None else {"range": range}))


@value_checked(
    "torch.histogram",
    "input, bins=100, *, range=None, weight=None, density=False",
    eager=_histogram,
    tags=RAISES,
)
def histogram(input: TensorProxy, bins: Any, **how: Any) -> Any:
    """Counts ``(bins,)``, or sums of weights, and the edges of the bins ``(bins + 1,)``."""
    count = bins.shape[0] - 1 if isinstance(bins, TensorProxy) else bins
    return torch.return_types.histogram((_like(input, (count,)), _like(input, (count + 1,))))


def _histogramdd(*args: Any, **kwargs: Any) -> Any:
    """``torch.histogramdd`` whose edges do not share memory with the arguments."""
    counts, edges = torch.histogramdd(*args, **kwargs)
    return counts, tuple(edge.clone() for edge in edges)


def _with_given_edges(result: Any, input: TensorProxy, bins: Any, *how: Any, **named: Any) -> Any:
    """Return the program's edges in place of equal results, as torch does."""
    program_edges = bins if isinstance(bins, list | tuple) else [bins] * len(result[1])
    pairs = zip(program_edges, result[1], strict=True)
    edges = tuple(b if isinstance(b, TensorProxy) else e for b, e in pairs)
    return torch.return_types.histogramdd((result[0], edges))


@value_checked(
    "torch.histogramdd",
    "input, bins, range=None, weight=None, density=False",
    eager=_histogramdd,
    finish=_with_given_edges,
    tags=RAISES,
)
def histogramdd(input: TensorProxy, bins: Any, *how: Any, **named: Any) -> Any:
    """``input: (*, d)`` → counts with one dimension for each of ``d``, and the edges of each."""
    each = list(bins) if isinstance(bins, list | tuple) else [bins] * input.shape[-1]
    counts = [b.shape[0] - 1 if isinstance(b, TensorProxy) else b for b in each]
    edges = tuple(_like(input, (count + 1,)) for count in counts)
    return _like(input, counts), edges


# -- matrices ------------------------------------------------------------------------------------------------


@value_checked("torch.geqrf", "input", batch=of_last_dims)
def geqrf(input: TensorProxy) -> Any:
    """``input: (*, m, n)`` → LAPACK's form of Q and R: ``(*, m, n)`` and ``(*, min(m, n))``."""
    *batch, m, n = input.shape
    return torch.return_types.geqrf((_like(input, input.shape), _like(input, (*batch, min(m, n)))))


#: drivers of LAPACK that find out the rank; the others take it for full
_OF_ANY_RANK = ("gelss", "gelsd")


def _without_gradient_of_singular_values(result: Any, *args: Any, **kwargs: Any) -> Any:
    result[3].requires_grad = False
    return result


@value_checked(
    "torch.linalg.lstsq",
    "A, B, rcond=None, *, driver=None",
    finish=_without_gradient_of_singular_values,
    tags=RAISES,
)
def lstsq(A: TensorProxy, B: TensorProxy, rcond: Any = None, *, driver: str | None = None) -> Any:
    """``A: (*, m, n)``, ``B: (*, m, k)`` → solutions ``(*, n, k)``, and three other results.

    They are residuals, rank and singular values. ``B`` may be vectors ``(*, m)``; the solutions are ``(*,
    n)`` then.
    """
    *batch, m, n = A.shape
    if driver in _OF_ANY_RANK and m > n:
        raise UnsupportedOperator(
            f"torch.linalg.lstsq with driver={driver!r}: the shape of its residuals depends on the rank",
            hint='Use driver="gelsy" or "gels", or call it outside the compiled function.',
        )
    vector = len(B.shape) == 1 or (len(A.shape) - 1 == len(B.shape) and A.shape[:-1] == B.shape)
    right = () if vector else (B.shape[-1],)
    lead = tuple(batch) if vector else broadcast_shapes(tuple(batch), B.shape[:-2])
    real = real_result(A.dtype)
    return torch.return_types.linalg_lstsq(  # type: ignore[attr-defined]
        (
            _like(A, (*lead, n, *right)),
            _like(A, (*lead, *right) if m > n and driver == "gels" else (0,), real),
            _like(A, (0,) if driver == "gels" else batch, int64),
            _like(A, (*batch, min(m, n)) if driver in _OF_ANY_RANK else (0,), real),
        )
    )


# -- signals -------------------------------------------------------------------------------------------------


@value_checked(
    "torch.istft",
    "input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, "
    "onesided=None, length=None, return_complex=False",
    tags=RAISES,
)
def istft(
    input: TensorProxy,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: TensorProxy | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> TensorProxy:
    """``input: (*, f, t)`` → signals ``(*, n)``. At run time torch refuses a window with gaps."""
    hop = n_fft // 4 if hop_length is None else hop_length
    total = n_fft + hop * (input.shape[-1] - 1)
    if length is None:
        length = total - 2 * (n_fft // 2) if center else total
    dtype = input.dtype if return_complex else real_result(input.dtype)
    return _like(input, (*input.shape[:-2], length), dtype)


# -- attention -----------------------------------------------------------------------------------------------


@value_checked(
    "torch._transformer_encoder_layer_fwd",
    "src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, "
    "norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, "
    "ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None",
)
def transformer_encoder_layer_fwd(src: TensorProxy, *rest: Any, **named: Any) -> TensorProxy:
    """``src: (b, s, embed_dim)`` → the same shape, contiguous whatever the strides of ``src`` are.

    ``nn.TransformerEncoderLayer`` calls it in evaluation without gradients. Torch has no meta kernel of it
    before 2.13, and the later ones return the strides of ``src``.
    """
    return _dense(src, src.shape) if math.prod(src.shape) else _like(src, src.shape)
