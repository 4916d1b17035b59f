"""Where a compiled call may differ from eager's in `errors_as_eager`, reviewed: entries, cases, reason.

Entries and cases are regular expressions for whole names.
"""

from __future__ import annotations

from typing import Final

_GRADIENT_EXISTS = "eager's backward has a fault, and the gradient exists: "
_ENDS = "eager's kernel reads memory that is not there, and may end the process"
_LIST = "arguments that eager does not look at are refused"

DIFFERENCES: Final[tuple[tuple[str, str, str], ...]] = (
    (".*", r"\d+ meta(, grad)?", "some of torch's kernels compute with a tensor that has no data"),
    (
        r"(ldexp|logaddexp|where|dist|diagonal_scatter|linalg\.solve_triangular)",
        r"\d complex64, grad",
        _GRADIENT_EXISTS + "complex and real arguments",
    ),
    ("addr", r"\d (float64|complex64), grad", _GRADIENT_EXISTS + "arguments of several dtypes"),
    ("nn.functional.huber_loss", r"\d float64, grad", _GRADIENT_EXISTS + "arguments of several dtypes"),
    ("clamp", "1 one dimension more, grad", _GRADIENT_EXISTS + "a bound with more dimensions"),
    (
        r"scatter(_add|_reduce\..*)?",
        "(2 empty at the beginning|3 longer), grad",
        _GRADIENT_EXISTS + "a source that is larger than the index",
    ),
    (
        "nn.functional.adaptive_max_pool.d",
        ".* 0, grad",
        _GRADIENT_EXISTS + "a result without elements",
    ),
    ("(svd|pca)_lowrank", "complex64, grad", "eager compares phases before it differentiates"),
    ("logaddexp", r"\d bool, grad", "the gradient of truth values is refused when it is recorded"),
    ("geqrf", "(0 )?complex64, grad", "torch runs it as it is, and refuses its gradient in the backward"),
    ("combinations", "1 0, grad", "combinations of nothing require grad here"),
    (
        "(native_group_norm|native_dropout_backward)",
        ".*",
        "torch's meta functions have other dtypes than its kernels, and a result that differs is refused",
    ),
    (
        r"nn\.functional\.conv(_transpose[123]|[123])d",
        r"2 \w+(, grad)?",
        "torch's slow kernels take a bias of another dtype, and its fast ones do not",
    ),
    ("nn.functional.linear_cross_entropy.*", "2 .*", "one target for an input without a batch is refused"),
    ("nn.functional.scaled_dot_product_attention", "2 empty at the beginning, grad", _LIST),
    ("roll", "2 -?100(, grad)?", _LIST),
    (
        "lu_unpack|nn.functional.embedding",
        "0 .*",
        "another class of error, for a tensor with too few dimensions",
    ),
    (r"nn\.functional\.embedding_bag", "2 empty at the beginning, grad", _ENDS),
    (r"nn\.functional\.pdist", "0 empty at the beginning, grad", _ENDS),
    (r"(_?native)?_batch_norm.*", "[34] empty at the end(, grad)?", _ENDS),
    ("lu_unpack", "1 empty at the (beginning|end)(, grad)?", _ENDS),
    (
        "grid_sampler_2d",
        "[23] -?[0-9]+(, grad)?",
        "eager's kernel fills nothing for a mode that it does not know",
    ),
    (r"_segment_reduce\..*", "(0 )?complex.*, grad", "data are looked at before the dtype"),
    (r"_segment_reduce\.offsets", "0 .*", "torch reads beyond the data"),
    ("grid_sampler_3d", "2 (-1|100|-100)(, grad)?", "an unknown mode: torch returns memory as it is"),
)
