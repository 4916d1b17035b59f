"""Primitives whose metadata torch computes, for operators that models rarely call.

One line each: path, parameters, and the batching rule if there is one. A method of the same name shares the
row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.batched_call import BatchRule
from thunder.ops.in_place import elementwise_kernel, part, restoring_rows
from thunder.ops.layout_rules import BY_KERNEL, COMPARED, REORDERED
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.torch import kernel_shapes
from thunder.torch.batch_rules import batched_kernels as batched
from thunder.torch.meta_by_torch import meta_by_torch
from thunder.torch.registration import SYMBOLS, torch_names, torchsymbol
from thunder.torch.rows.casts import refuse_if_grad_is_retained

Lines = tuple[tuple[str, str] | tuple[str, str, BatchRule], ...]

#: their batching rule is that of elementwise kernels
ELEMENTWISE: tuple[tuple[str, str], ...] = (
    ("torch.angle", "input"),
    ("torch.deg2rad", "input"),
    ("torch.i0", "input"),
    ("torch.igamma", "input, other"),
    ("torch.igammac", "input, other"),
    ("torch.ldexp", "input, other"),
    ("torch.mvlgamma", "input, p"),
    ("torch.heaviside", "input, values"),
    ("torch.polygamma", "n, input"),
    ("torch.rad2deg", "input"),
    ("torch.sinc", "input"),
    ("torch.polar", "abs, angle"),
    ("torch.special.bessel_j0", "input"),
    ("torch.special.bessel_j1", "input"),
    ("torch.special.entr", "input"),
    ("torch.special.erfcx", "input"),
    ("torch.special.i0e", "input"),
    ("torch.special.i1", "input"),
    ("torch.special.i1e", "input"),
    ("torch.special.log_ndtr", "input"),
    ("torch.special.ndtr", "input"),
)

#: without gradient: integers, truth values
DISCRETE: Lines = (
    ("torch.gcd", "input, other", batched.elementwise),
    ("torch.isin", "elements, test_elements, *, assume_unique=False, invert=False", batched.isin),
    ("torch.isreal", "input", batched.elementwise),
    ("torch.lcm", "input, other", batched.elementwise),
    ("torch.logspace", "start, end, steps, base=10.0, *, dtype=None, device=None"),
    ("torch.tril_indices", "row, col, offset=0, *, dtype=torch.int64, device=None"),
    ("torch.triu_indices", "row, col, offset=0, *, dtype=torch.int64, device=None"),
    ("torch.histc", "input, bins=100, min=0, max=0"),
    ("torch.fft.fftfreq", "n, d=1.0, *, dtype=None, device=None"),
    ("torch.fft.rfftfreq", "n, d=1.0, *, dtype=None, device=None"),
    ("torch.range", "start, end, step=1, *, dtype=None, device=None"),
    *(
        (f"torch.{name}_window", f"window_length, periodic=True, {more}*, dtype=None, device=None")
        for name, more in (
            ("bartlett", ""),
            ("blackman", ""),
            ("hamming", "alpha=0.54, beta=0.46, "),
            ("hann", ""),
            ("kaiser", "beta=12.0, "),
        )
    ),
)

SELECTIONS: Lines = (
    ("torch.aminmax", "input, *, dim=None, keepdim=False", batched.reduction),
    ("torch.kthvalue", "input, k, dim=-1, keepdim=False", batched.of_one_dim),
    ("torch.mode", "input, dim=-1, keepdim=False", batched.of_one_dim),
    ("torch.nanquantile", "input, q, dim=None, keepdim=False, *, interpolation='linear'", batched.quantile),
    ("torch.quantile", "input, q, dim=None, keepdim=False, *, interpolation='linear'", batched.quantile),
    ("torch.nanmean", "input, dim=None, keepdim=False, *, dtype=None", batched.reduction),
    ("torch.dist", "input, other, p=2"),
    (
        "torch.cdist",
        "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'",
        batched.of_last_dims,
    ),
)

ARRANGEMENTS: Lines = (
    ("torch.block_diag", "*tensors"),
    ("torch.cartesian_prod", "*tensors"),
    ("torch.cross", "input, other, dim=None", batched.of_one_dim),
    ("torch.diagonal_scatter", "input, src, offset=0, dim1=0, dim2=1", batched.diagonal_scatter),
    ("torch.index_reduce", "input, dim, index, source, reduce, *, include_self=True"),
    ("torch.kron", "input, other"),
    ("torch.put", "input, index, source, accumulate=False"),
    ("torch.select_scatter", "input, src, dim, index", batched.at_dim),
    ("torch.slice_scatter", "input, src, dim=0, start=None, end=None, step=1", batched.at_dim),
    ("torch.unravel_index", "indices, shape"),
    ("torch.diagflat", "input, offset=0"),
    ("torch.vander", "x, N=None, increasing=False"),
)

MATRICES: Lines = (
    ("torch.cholesky_inverse", "L, upper=False", batched.of_last_dims),
    ("torch.cholesky_solve", "B, L, upper=False", batched.of_last_dims),
    ("torch.linalg.cholesky", "A, *, upper=False", batched.of_last_dims),
    ("torch.linalg.cholesky_ex", "A, *, upper=False, check_errors=False", batched.of_last_dims),
    ("torch.linalg.det", "A", batched.of_last_dims),
    ("torch.linalg.eigh", "A, UPLO='L'", batched.of_last_dims),
    ("torch.linalg.eigvalsh", "A, UPLO='L'", batched.of_last_dims),
    ("torch.linalg.inv", "A", batched.of_last_dims),
    ("torch.linalg.matrix_power", "A, n", batched.of_last_dims),
    ("torch.linalg.pinv", "A, *, atol=None, rtol=None, hermitian=False", batched.of_last_dims),
    ("torch.linalg.qr", "A, mode='reduced'", batched.of_last_dims),
    ("torch.linalg.slogdet", "A", batched.of_last_dims),
    ("torch.linalg.svd", "A, full_matrices=True, *, driver=None", batched.of_last_dims),
    ("torch.linalg.svdvals", "A, *, driver=None", batched.of_last_dims),
    ("torch.linalg.solve", "A, B, *, left=True", batched.of_last_dims),
    ("torch.linalg.solve_triangular", "A, B, *, upper, left=True, unitriangular=False", batched.of_last_dims),
    ("torch.linalg.vander", "x, *, N=None", batched.of_last_dims),
    ("torch.linalg.vecdot", "x, y, *, dim=-1", batched.of_one_dim),
    ("torch.logdet", "input", batched.of_last_dims),
    ("torch.matrix_exp", "input", batched.of_last_dims),
    ("torch.nn.functional.bilinear", "input1, input2, weight, bias=None"),
    ("torch.nn.functional.cosine_similarity", "x1, x2, dim=1, eps=1e-08", batched.of_one_dim),
    (
        "torch.nn.functional.pairwise_distance",
        "x1, x2, p=2.0, eps=1e-06, keepdim=False",
        batched.of_last_dims,
    ),
)

_SPECTRA = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_ONE_DIM = "input, n=None, dim=-1, norm=None"
_TWO_DIMS = "input, s=None, dim=(-2, -1), norm=None"
_MANY_DIMS = "input, s=None, dim=None, norm=None"

TRANSFORMS: Lines = (
    *((f"torch.fft.{name}", _ONE_DIM, batched.of_one_dim) for name in _SPECTRA),
    *((f"torch.fft.{name}2", _TWO_DIMS, batched.over_dims) for name in _SPECTRA),
    *((f"torch.fft.{name}n", _MANY_DIMS, batched.over_dims) for name in _SPECTRA),
    ("torch.fft.fftshift", "input, dim=None", batched.over_dims),
    ("torch.fft.ifftshift", "input, dim=None", batched.over_dims),
)

#: other names of functions above
ALIASES = {
    "torch.mvlgamma": ("torch.special.multigammaln",),
    "torch.polygamma": ("torch.special.polygamma",),
    "torch.i0": ("torch.special.i0",),
    "torch.igamma": ("torch.special.gammainc",),
    "torch.igammac": ("torch.special.gammaincc",),
    "torch.sinc": ("torch.special.sinc",),
    "torch.linalg.det": ("torch.det",),
    "torch.linalg.inv": ("torch.inverse",),
    "torch.linalg.matrix_power": ("torch.matrix_power",),
    "torch.matrix_exp": ("torch.linalg.matrix_exp",),
}


#: shapes of results that torch's metadata computes from numbers only
SHAPES: dict[str, kernel_shapes.ShapeRule] = {
    "torch.kron": kernel_shapes.kron,
    "torch.nn.functional.bilinear": kernel_shapes.bilinear,
    **{
        f"torch.fft.{name}{several}": kernel_shapes.spectra(name, dims)
        if several
        else kernel_shapes.one_spectrum(name)
        for name in _SPECTRA
        for several, dims in (("", None), ("2", (-2, -1)), ("n", None))
    },
}


#: facts of functions above
FACTS: dict[str, dict[str, Any]] = {
    "torch.cartesian_prod": {"tags": (OpTags.MAYBE_VIEW,)},
    "torch.cross": {"tags": (OpTags.NO_OVERLAP,)},
    **{line[0]: {"tags": (OpTags.DEFAULT_DTYPE,)} for line in DISCRETE if "dtype=None" in line[1]},
    "torch.heaviside": {"layout": COMPARED},
    "torch.index_reduce": {
        "tags": (OpTags.NO_OVERLAP_BUT_FIRST, OpTags.RAISES_ON_DATA),
        "layout": REORDERED,
        "in_place": part(torch.Tensor.index_reduce_, restoring_rows),
    },
    "torch.ldexp": {"layout": BY_KERNEL},
    "torch.linalg.cholesky": {"tags": (OpTags.OTHER_TANGENTS, OpTags.RAISES_ON_DATA)},
    "torch.linalg.cholesky_ex": {"tags": (OpTags.OTHER_TANGENTS, OpTags.RAISES_ON_DATA)},
    "torch.linalg.eigh": {"tags": (OpTags.OTHER_TANGENTS, OpTags.RAISES_ON_DATA)},
    "torch.linalg.matrix_power": {"tags": (OpTags.NO_OVERLAP, OpTags.RAISES_BY_PARTS)},
    "torch.linalg.solve_triangular": {"tags": (OpTags.NO_OVERLAP,)},
    "torch.mvlgamma": {"layout": REORDERED},
    "torch.put": {"tags": (OpTags.NO_OVERLAP_BUT_FIRST, OpTags.RAISES_ON_DATA)},
    "torch.sinc": elementwise_kernel("sinc"),
    **{
        path: {"tags": (OpTags.RAISES_ON_DATA,)}
        for path in (
            *("torch.cholesky_inverse", "torch.histc", "torch.nanquantile", "torch.quantile"),
            *(f"torch.linalg.{name}" for name in ("eigvalsh", "inv", "pinv", "solve", "svd", "svdvals")),
            "torch.unravel_index",
        )
    },
}

#: functions above of which the method has other parameters
WITHOUT_METHOD = frozenset({"torch.polygamma"})


def _add(path: str, parameters: str, batch: BatchRule | None = None, **row: Any) -> None:
    if find_torch(path) is None:
        return
    paths = (path, *ALIASES.get(path, ()))
    methods = [p.rpartition(".")[2] for p in paths if p.count(".") == 1 and p not in WITHOUT_METHOD]
    meta_by_torch(
        path,
        parameters,
        *ALIASES.get(path, ()),
        methods=[m for m in methods if hasattr(torch.Tensor, m)],
        shape=SHAPES.get(path),
        batch=batch,
        **FACTS.get(path, {}),
        **row,
    )


for _path, _parameters in ELEMENTWISE:
    _add(_path, _parameters, batched.elementwise)
for _line in (*SELECTIONS, *ARRANGEMENTS, *MATRICES, *TRANSFORMS):
    _add(*_line)
for _line in DISCRETE:
    _add(*_line, vjp=NONDIFFERENTIABLE)


@torch_names(methods=("polygamma",))
def polygamma(input: TensorProxy, n: int) -> TensorProxy:
    """``torch.polygamma`` with the arguments of the method, in the other order."""
    return SYMBOLS["polygamma"](n, input)


@torchsymbol("torch.pinverse", methods=("pinverse",))
def pinverse(input: TensorProxy, rcond: float = 1e-15) -> TensorProxy:
    """``torch.linalg.pinv`` with another default tolerance."""
    return SYMBOLS["pinv"](input, atol=0.0, rtol=rcond)


@torch_names("torch.slogdet", methods=("slogdet",))
def slogdet(input: TensorProxy) -> Any:
    """``torch.linalg.slogdet`` with another type of result."""
    return torch.return_types.slogdet(tuple(SYMBOLS["slogdet"](input)))


def _resolved(name: str, unchanged: Callable[[TensorProxy], bool], *tags: OpTags) -> None:
    """Register a function that returns its argument where it has no lazy bit to resolve.

    The lazy bits of torch's tensors are conjugation and negation.
    """
    symbol = meta_by_torch(
        f"torch.{name}",
        "input",
        in_language=False,
        tags=(OpTags.MAYBE_VIEW, *tags),
        batch=batched.elementwise,
    )

    @torch_names(f"torch.{name}", methods=(name,))
    def resolve(input: TensorProxy) -> TensorProxy:
        if unchanged(input):
            return input
        refuse_if_grad_is_retained(name, input)
        return symbol(input)


_resolved("conj_physical", lambda x: not x.dtype.is_complex)
_resolved("resolve_conj", lambda x: not x.dtype.is_complex, OpTags.MAYBE_ARGUMENT)
_resolved("resolve_neg", lambda x: not x.dtype.is_inexact, OpTags.MAYBE_ARGUMENT)
