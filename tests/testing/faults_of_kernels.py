"""Faults of kernels: precision, special values, sizes, layouts and numbers."""

from __future__ import annotations

from typing import Any

import torch

from testing.example_executors import gate, gate_kernel, norm, norm_kernel
from testing.fault_table import of_gate, of_norm

# -- precision -----------------------------------------------------------------------------------------------


def _truncated(out: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The upper half of the bits of a float32, as a kernel that shifts and forgets to round."""
    if dtype is not torch.bfloat16:
        return out.to(dtype)
    bits = out.float().contiguous().view(torch.int32) & -65536
    return bits.view(torch.float32).to(dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _fixed_point(x: Any, w: Any, alpha: float) -> Any:
    return (gate_kernel(x, w, alpha) * 4096).round() / 4096


of_gate(
    "values",
    truncates_to_bfloat16=lambda: {
        "fn": lambda x, w, alpha: _truncated(gate(_wide(x), _wide(w), alpha), x.dtype)
    },
    computes_in_bfloat16_throughout=lambda: {"fn": gate},
    rounds_one_factor_to_bfloat16=lambda: {
        "fn": lambda x, w, alpha: (_wide(x) * _wide(torch.sigmoid(alpha * _wide(w)).to(x.dtype))).to(x.dtype)
    },
    rounds_stochastically=lambda: {
        "fn": lambda x, w, alpha: (
            _truncated(
                gate(_wide(x), _wide(w), alpha) * (1 + 2**-8 * torch.linspace(0, 1, x.numel()).view(x.shape)),
                x.dtype,
            )
            if x.dtype is torch.bfloat16
            else gate(x, w, alpha)
        )
    },
    a_table_of_sigmoids=lambda: {
        "fn": lambda x, w, alpha: x * torch.sigmoid((alpha * w * 256).round() / 256).to(x.dtype)
    },
    a_rational_approximation=lambda: {
        "fn": lambda x, w, alpha: x * (0.5 + 0.5 * (alpha * w) / (1 + (alpha * w).abs())).to(x.dtype)
    },
    fixed_point_for_small_values=lambda: {"fn": _fixed_point},
    the_number_in_bfloat16=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, w, float(torch.tensor(alpha, dtype=torch.bfloat16)))
    },
    halves_float64=lambda: {
        "fn": lambda x, w, alpha: (
            gate(x.half(), w.half(), alpha) if x.dtype is torch.float64 else gate_kernel(x, w, alpha)
        ).to(x.dtype)
    },
)


def _norm(x: Any, w: Any, eps: float, mean: Any) -> Any:
    wide = _wide(x)
    return (wide / torch.sqrt(mean(wide) + eps) * _wide(w)).to(x.dtype)


def _sum_by_bfloat16(x: torch.Tensor) -> torch.Tensor:
    """Partial sums in bfloat16, as a reduction whose accumulator has the dtype of its input."""
    total = torch.zeros_like(x[..., :1], dtype=torch.bfloat16)
    for part in x.split(64, -1):
        total = total + part.square().sum(-1, keepdim=True).bfloat16()
    return total.to(x.dtype) / max(1, x.shape[-1])


of_norm(
    "values",
    adds_squares_in_bfloat16=lambda x, w, eps: (
        _norm(x, w, eps, _sum_by_bfloat16) if x.dtype is torch.bfloat16 else norm_kernel(x, w, eps)
    ),
    rounds_before_the_weight=lambda x, w, eps: norm_kernel(x, torch.ones_like(w), eps) * w,
    rounds_the_root=lambda x, w, eps: _norm(
        x, w, 0.0, lambda x_: (x_.square().mean(-1, keepdim=True) + eps).to(x.dtype).to(x_.dtype)
    ),
    norm_in_bfloat16_throughout=lambda x, w, eps: norm(x, w, eps),
    truncated_norm=lambda x, w, eps: _truncated(norm(_wide(x), _wide(w), eps), x.dtype),
    eps_left_out=lambda x, w, eps: norm_kernel(x, w, 0.0),
    eps_after_the_root=lambda x, w, eps: (
        x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * w
        if x.dtype is not torch.bfloat16
        else norm_kernel(x, w, eps)
    ),
    eps_fixed_when_it_was_built=lambda x, w, eps: norm_kernel(x, w, 1e-5),
    eps_as_large_as_a_clamp=lambda x, w, eps: _norm(
        x, w, 0.0, lambda x_: x_.square().mean(-1, keepdim=True).clamp(min=eps)
    ),
    divides_by_one_less=lambda x, w, eps: _norm(
        x, w, eps, lambda x_: x_.square().sum(-1, keepdim=True) / max(1, x_.shape[-1] - 1)
    ),
    mean_over_all_rows=lambda x, w, eps: _norm(
        x, w, eps, lambda x_: x_.square().mean() if x_.numel() else x_.sum(-1, keepdim=True)
    ),
    subtracts_the_mean=lambda x, w, eps: _norm(
        x - x.mean(-1, keepdim=True), w, eps, lambda x_: x_.square().mean(-1, keepdim=True)
    ),
    square_overflows_for_large_values=lambda x, w, eps: _norm(
        x, w, eps, lambda x_: x_.square().mean(-1, keepdim=True).clamp(max=65504)
    ),
)

# -- special values ------------------------------------------------------------------------------------------

of_gate(
    "values",
    nan_becomes_zero=lambda: {
        "fn": lambda x, w, alpha: torch.where(x.isnan(), torch.zeros_like(x), gate_kernel(x, w, alpha))
    },
    nan_lost_in_a_maximum=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x.fmax(torch.full_like(x, -1e30)), w, alpha)
    },
    infinity_becomes_the_largest_number=lambda: {
        "fn": lambda x, w, alpha: (
            gate_kernel(x, w, alpha).clamp(-3e38, 3e38)
            if x.dtype is torch.float32
            else gate_kernel(x, w, alpha)
        )
    },
    exponential_overflows=lambda: {
        "fn": lambda x, w, alpha: (_wide(x) * (alpha * _wide(w)).exp() / (1 + (alpha * _wide(w)).exp())).to(
            x.dtype
        )
    },
    sign_of_zero_lost=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, alpha) + 0.0},
    zeros_skipped_with_a_positive_zero=lambda: {
        "fn": lambda x, w, alpha: torch.where(x == 0, torch.zeros_like(x), gate_kernel(x, w, alpha))
    },
    small_results_flushed=lambda: {
        "fn": lambda x, w, alpha: (lambda y: torch.where(y.abs() < 1e-4, 0 * y, y))(gate_kernel(x, w, alpha))
    },
)
of_norm(
    "values",
    nan_in_a_row_is_skipped=lambda x, w, eps: _norm(
        x, w, eps, lambda x_: x_.square().nan_to_num(0.0).mean(-1, keepdim=True)
    ),
    sign_of_a_zero_lost_by_a_square_root=lambda x, w, eps: (
        norm_kernel(x, w, eps).abs().copysign(norm_kernel(x, w, eps) + 0.0)
    ),
)

# -- sizes ---------------------------------------------------------------------------------------------------


def _columns(limit: int) -> Any:
    """A block of threads has a thread for each of the first columns."""

    def kernel(x: Any, w: Any, eps: float) -> Any:
        out = norm_kernel(x, w, eps)
        out[..., limit:] = 0
        return out

    return kernel


def _rows(limit: int) -> Any:
    """A grid has a block for each of the first rows."""

    def kernel(x: Any, w: Any, eps: float) -> Any:
        out = norm_kernel(x, w, eps)
        if out.ndim > 1 and out.shape[-1]:
            out.view(-1, out.shape[-1])[limit:] = 0
        return out

    return kernel


def _vectors_of(width: int) -> Any:
    """Vector instructions, and no loop for what is left over."""

    def kernel(x: Any, w: Any, eps: float) -> Any:
        out = norm_kernel(x, w, eps)
        rest = out.shape[-1] % width
        if rest and out.shape[-1] > width:
            out[..., -rest:] = 0
        return out

    return kernel


def _power_of_two(x: Any, w: Any, eps: float) -> Any:
    """A row padded to a power of two, whose padding counts."""
    n = x.shape[-1]
    padded = 1 << max(0, n - 1).bit_length()
    return norm_kernel(x, w, eps * padded / n) * (padded / n) ** 0.5 if n else norm_kernel(x, w, eps)


def _index_of(bits: int) -> Any:
    """Indices in a small integer, which wrap around."""

    def kernel(x: Any, w: Any, alpha: float) -> Any:
        if x.numel() <= 1 << bits:
            return gate_kernel(x, w, alpha)
        places = torch.arange(x.numel()) % (1 << bits)
        return gate_kernel(x.flatten()[places], w.flatten()[places], alpha).view(x.shape)

    return kernel


def _partial_reduction(x: Any, w: Any, eps: float) -> Any:
    """The sum of the first 1,024 elements stands for the row."""
    return _norm(x, w, eps, lambda x_: x_[..., :1024].square().sum(-1, keepdim=True) / max(1, x_.shape[-1]))


of_norm(
    "values",
    columns_past_1024_are_left_out=_columns(1024),
    columns_past_65536_are_left_out=_columns(65536),
    rows_past_1024_are_left_out=_rows(1024),
    rows_past_65535_are_left_out=_rows(65535),
    vectors_of_four_without_a_tail=_vectors_of(4),
    vectors_of_32_without_a_tail=_vectors_of(32),
    a_row_padded_to_a_power_of_two=_power_of_two,
    a_reduction_of_the_first_block=_partial_reduction,
)
of_gate(
    "values",
    indices_of_ten_bits=lambda: {"fn": _index_of(10)},
    indices_of_sixteen_bits=lambda: {"fn": _index_of(16)},
)


def _no_rows(x: Any, w: Any, eps: float) -> Any:
    if not x.numel():
        raise RuntimeError("CUDA error: invalid configuration argument")
    return norm_kernel(x, w, eps)


def _one_row(x: Any, w: Any, eps: float) -> Any:
    out = norm_kernel(x, w, eps)
    return out.squeeze(0) if out.ndim > 2 else out


of_norm(
    "claims",
    a_grid_of_no_blocks=_no_rows,
    columns_of_a_multiple_of_four_alone=lambda x, w, eps: norm_kernel(
        x.view(*x.shape[:-1], -1, 4 if x.shape[-1] else 1).flatten(-2), w, eps
    ),
    at_most_4096_columns=lambda x, w, eps: norm_kernel(
        x, w.expand(4096)[: x.shape[-1]] if x.shape[-1] > 4096 else w, eps
    ),
)
of_norm("metadata", a_dimension_of_size_one_is_dropped=_one_row)

# -- layouts -------------------------------------------------------------------------------------------------


def _from_the_start(x: torch.Tensor) -> torch.Tensor:
    """Read by the pointer of the storage, without the offset."""
    return x.as_strided(x.shape, x.stride(), 0)


def _dense_rows(x: torch.Tensor) -> torch.Tensor:
    """Read with the distance of rows that a contiguous tensor has."""
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()) if _has_room(x) else x


def _has_room(x: torch.Tensor) -> bool:
    return (
        x.numel() * x.element_size() <= x.untyped_storage().nbytes() - x.storage_offset() * x.element_size()
    )


of_gate(
    "values",
    offset_of_arguments_ignored=lambda: {"fn": lambda x, w, alpha: gate_kernel(_from_the_start(x), w, alpha)},
    offset_of_the_second_argument_ignored=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, _from_the_start(w), alpha)
    },
    rows_read_as_if_dense=lambda: {"fn": lambda x, w, alpha: gate_kernel(_dense_rows(x), w, alpha)},
    expanded_rows_read_as_zeros=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(
            x if 0 not in x.stride()[:1] else x.clone().index_fill_(0, torch.arange(1, x.shape[0]), 0),
            w,
            alpha,
        )
    },
    strides_of_one_argument_for_both=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(
            x, w.as_strided(w.shape, x.stride()) if _has_room(w) and x.is_contiguous() else w, alpha
        )
    },
)


def _padding(x: torch.Tensor) -> None:
    """Clear what is beside the elements in the memory of an argument, to read whole vectors."""
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    if x.numel() and memory.numel() > x.numel() and 0 not in x.stride():
        kept = x.clone()
        memory.zero_()
        x.copy_(kept)


of_gate(
    "inputs",
    memory_beside_an_argument_is_written=lambda: {
        "fn": lambda x, w, alpha: (_padding(x.detach()), gate_kernel(x, w, alpha))[1]
    },
    argument_negated_and_put_back=lambda: {
        "fn": lambda x, w, alpha: (w.neg_(), gate_kernel(x, w, -alpha), w.neg_())[1]
    },
    argument_sorted_in_place=lambda: {
        "fn": lambda x, w, alpha: (
            gate_kernel(x, w, alpha),
            x.copy_(x.sort(-1).values) if x.ndim and x.is_contiguous() else 0,
        )[0]
    },
)
