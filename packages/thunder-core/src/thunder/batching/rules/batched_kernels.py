"""Batching rules of torch's kernels that have no decomposition, in tables by what their dimensions mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunder.base.pytree import tree_map
from thunder.batching.batched_call import BatchedCall, batches, moved, shifted
from thunder.batching.rules.batched_reductions import along_dim
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

#: kernels of which each element of the result depends on one element of each argument
ELEMENTWISE = (
    *("angle", "deg2rad", "i0", "igamma", "igammac", "ldexp", "mvlgamma", "polygamma", "rad2deg", "sinc"),
    *("polar", "gcd", "heaviside", "isreal", "lcm", "conj_physical", "resolve_conj", "resolve_neg"),
    *(
        f"special.{name}"
        for name in ("bessel_j0", "bessel_j1", "entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr")
    ),
)
#: kernels that act on the last dimensions, whatever comes before
LAST_DIMS = (
    *("cholesky_inverse", "cholesky_solve", "logdet", "matrix_exp", "geqrf", "cdist"),
    *(
        f"linalg.{name}"
        for name in (
            *("cholesky", "cholesky_ex", "det", "eigh", "eigvalsh", "inv", "matrix_power", "pinv", "qr"),
            *("slogdet", "svd", "svdvals", "solve", "solve_triangular", "vander"),
        )
    ),
)
#: kernels along a dimension ``dim``
ALONG_DIM = (
    *("kthvalue", "mode", "logcumsumexp", "cross", "linalg.vecdot"),
    *(f"fft.{name}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")),
)
#: kernels over several dimensions ``dim``, by default all
OVER_DIMS = (
    *(f"fft.{name}{n}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for n in ("2", "n")),
    *("fft.fftshift", "fft.ifftshift", "linalg.matrix_norm"),
)
#: reductions over one dimension, or of all elements
REDUCTIONS = ("median", "nanmedian", "aminmax", "nanmean")
#: kernels of images: the dimensions of space, for a batch or one image
IMAGES = {
    **{
        f"{name}{n}d": n
        for name in ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool", "max_unpool")
        for n in (1, 2, 3)
    },
    **{f"{name}{n}d_with_indices": n for name in ("max_pool", "adaptive_max_pool") for n in (1, 2, 3)},
}
#: kernels whose tensors have a dimension ``dim`` each
AT_DIM = ("scatter_reduce", "select_scatter", "slice_scatter")


def _tensors(c: BatchedCall) -> dict[str, TensorProxy]:
    return {name: x for name, x in c.arguments.items() if isinstance(x, TensorProxy)}


def _aligned(c: BatchedCall, **changes: Any) -> Any:
    """Call the kernel with the batch before all dimensions of the examples."""
    tensors = _tensors(c)
    rank = max(map(c.rank, tensors.values()))
    return c.again(**{name: c.with_rank(x, rank) for name, x in tensors.items()}, **changes)


@batches(*(f"torch.{name}" for name in ELEMENTWISE))
def _elementwise(c: BatchedCall) -> Any:
    return _aligned(c)


@batches(*(f"torch.{name}" for name in LAST_DIMS), "torch.nn.functional.pairwise_distance")
def _of_last_dims(c: BatchedCall) -> Any:
    tensors = {name: c.full(x) for name, x in _tensors(c).items()}
    rank = max(len(x.shape) for x in tensors.values())
    if len(tensors) == 1 or any(len(x.shape) < 3 for x in tensors.values()):
        return c.again(**tensors)
    return c.again(**{name: c.with_rank(x, rank - 1) for name, x in tensors.items()})


@batches(*(f"torch.{name}" for name in ALONG_DIM), "torch.nn.functional.cosine_similarity")
def _along_dim(c: BatchedCall) -> Any:
    tensors = _tensors(c)
    rank = max(map(c.rank, tensors.values()))
    if c.dim is None:
        return NotImplemented
    if len(tensors) == 1:
        ((name, x),) = tensors.items()
        return along_dim(c, x, lambda x, dim: c.again(**{name: x}, dim=dim), c.dim)
    return _aligned(c, dim=c.dim % rank + 1) if rank else NotImplemented


@batches(*(f"torch.{name}" for name in OVER_DIMS))
def _over_dims(c: BatchedCall) -> Any:
    rank = c.rank(next(iter(c.arguments.values())))
    dims = c.dim
    if dims is None:
        sizes = c.arguments.get("s")
        dims = range(rank) if sizes is None else range(rank - len(sizes), rank)
    elif not isinstance(dims, Sequence):
        dims = (dims,)
    return c.again(dim=shifted(d % rank for d in dims)) if rank else NotImplemented


@batches(*(f"torch.{name}" for name in REDUCTIONS))
def _reduction(c: BatchedCall) -> Any:
    rank = c.rank(c.input)
    dim = c.arguments.get("dim")
    dims = dim if not isinstance(dim, Sequence) or dim else None
    if dims is not None and rank:
        dims = shifted(d % rank for d in dims) if isinstance(dims, Sequence) else dims % rank + 1
        return c.again(dim=dims)
    if c.sym.name in ("median", "nanmedian") and dim is None:
        out = c.again(input=prims.reshape(c.input, (c.size, math.prod(c.shape(c.input)))), dim=1)
        return out[0]
    out = c.again(input=prims.reshape(c.input, (c.size, math.prod(c.shape(c.input)))), dim=1, keepdim=False)
    shape = (c.size, *(1,) * (rank if c.keepdim else 0))
    return tree_map(lambda x: prims.reshape(x, shape) if isinstance(x, TensorProxy) else x, out)


@batches("torch.quantile", "torch.nanquantile")
def _quantile(c: BatchedCall) -> Any:
    if c.is_batched(c.q):
        return NotImplemented
    input, dim = c.input, c.dim
    rank = c.rank(input)
    keepdim = c.keepdim and bool(rank)
    if dim is None or not rank:
        input, dim = prims.reshape(input, (c.size, math.prod(c.shape(input)))), 0
    out = c.again(input=input, dim=dim % max(rank, 1) + 1, keepdim=keepdim)
    has_positions = isinstance(c.q, TensorProxy) and len(c.q.shape) == 1
    out = moved(out, 1, 0) if has_positions else out
    return prims.reshape(out, (c.size, *c.output.shape))


@batches(*(f"torch.{name}" for name in AT_DIM))
def _at_dim(c: BatchedCall) -> Any:
    if not c.rank(c.input):
        return NotImplemented
    tensors = {name: c.full(x) for name, x in _tensors(c).items()}
    return c.again(**tensors, dim=c.dim % c.rank(c.input) + 1)


@batches("torch.diagonal_scatter")
def _diagonal_scatter(c: BatchedCall) -> Any:
    rank = c.rank(c.input)
    dims = {"dim1": c.dim1 % rank + 1, "dim2": c.dim2 % rank + 1}
    return c.again(input=c.full(c.input), src=c.full(c.src), **dims)


@batches("torch.isin")
def _isin(c: BatchedCall) -> Any:
    return NotImplemented if c.is_batched(c.test_elements) else c.again()


@batches("torch.bucketize")
def _bucketize(c: BatchedCall) -> Any:
    return NotImplemented if c.is_batched(c.boundaries) else c.again()


# -- images --------------------------------------------------------------------------------------------------


@batches(*(f"torch.nn.functional.{name}" for name in IMAGES))
def _pool(c: BatchedCall) -> Any:
    return _of_images(c, IMAGES[c.sym.id.rpartition(".")[2]])


@batches("ltorch.avg_pool2d_backward", "ltorch._adaptive_avg_pool2d_backward")
def _pool_backward(c: BatchedCall) -> Any:
    return _of_images(c, 2)


@batches("ltorch.avg_pool3d_backward", "ltorch._adaptive_avg_pool3d_backward")
def _pool_backward_of_volumes(c: BatchedCall) -> Any:
    return _of_images(c, 3)


@batches("torch.nn.functional.interpolate")
def _interpolate(c: BatchedCall) -> Any:
    return _of_images(c, c.rank(c.input) - 2)


@batches("torch.nn.functional.fold", "torch.nn.functional.unfold")
def _fold(c: BatchedCall) -> Any:
    return _of_images(c, 1 if c.sym.name == "fold" else 2)


def _of_images(c: BatchedCall, space: int) -> Any:
    """Call a kernel of images: those of all examples are one batch."""
    tensors = {name: c.full(x) for name, x in _tensors(c).items()}
    if any(0 in x.shape for x in tensors.values()):
        return NotImplemented
    if all(len(x.shape) == space + 2 for x in tensors.values()):
        return c.again(**tensors)
    folded = {name: prims.reshape(x, (c.size * x.shape[1], *x.shape[2:])) for name, x in tensors.items()}

    def unfolded(x: Any) -> Any:
        return (
            prims.reshape(x, (c.size, x.shape[0] // c.size, *x.shape[1:]))
            if isinstance(x, TensorProxy)
            else x
        )

    return tree_map(unfolded, c.again(**folded))
