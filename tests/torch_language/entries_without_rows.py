"""Which entries of torch's operator database have no row: torch runs them as they are, or their code is
interpreted, or they are refused by name. Everything else must pass.
"""

from __future__ import annotations

#: entries without a row that torch runs as they are
FALLBACK = frozenset(
    [
        "_chunk_cat",
        "_segment_reduce.lengths",
        "_segment_reduce.offsets",
        "_unsafe_masked_index",
        "_unsafe_masked_index_put_accumulate",
        "_upsample_bilinear2d_aa",
        "alias_copy",
        "as_strided_copy",
        "as_strided_scatter",
        "cholesky",
        "diagonal_copy",
        "expand_copy",
        "gradient",
        "grid_sampler_2d",
        "grid_sampler_3d",
        "hash_tensor",
        "linalg.cond",
        "linalg.eig",
        "linalg.eigvals",
        "linalg.householder_product",
        "linalg.inv_ex",
        "linalg.ldl_factor",
        "linalg.ldl_factor_ex",
        "linalg.ldl_solve",
        "linalg.lu",
        "linalg.lu_factor",
        "linalg.lu_factor_ex",
        "linalg.lu_solve",
        "linalg.matrix_rank",
        "linalg.matrix_rank.hermitian",
        "linalg.solve_ex",
        "linalg.tensorinv",
        "linalg.tensorsolve",
        "lu",
        "lu_solve",
        "lu_unpack",
        "max_pool2d_with_indices_backward",
        "narrow_copy",
        "native_dropout_backward",
        "native_group_norm",
        "new_empty_strided",
        "nn.functional.linear_cross_entropy",
        "nn.functional.pdist",
        "nonzero_static",
        "ormqr",
        "pca_lowrank",
        "permute_copy",
        "qr",
        "special.airy_ai",
        "special.bessel_y0",
        "special.bessel_y1",
        "special.chebyshev_polynomial_t",
        "special.chebyshev_polynomial_u",
        "special.chebyshev_polynomial_v",
        "special.chebyshev_polynomial_w",
        "special.hermite_polynomial_h",
        "special.hermite_polynomial_he",
        "special.laguerre_polynomial_l",
        "special.legendre_polynomial_p",
        "special.modified_bessel_i0",
        "special.modified_bessel_i1",
        "special.modified_bessel_k0",
        "special.modified_bessel_k1",
        "special.scaled_modified_bessel_k0",
        "special.scaled_modified_bessel_k1",
        "special.shifted_chebyshev_polynomial_t",
        "special.shifted_chebyshev_polynomial_u",
        "special.shifted_chebyshev_polynomial_v",
        "special.shifted_chebyshev_polynomial_w",
        "special.spherical_bessel_j0",
        "split_with_sizes_copy",
        "squeeze_copy",
        "stft",
        "svd",
        "svd_lowrank",
        "t_copy",
        "torch.ops.aten._safe_softmax.default",
        "transpose_copy",
        "triangular_solve",
        "unbind_copy",
        "unfold_copy",
        "unsqueeze_copy",
        "view_copy",
    ]
)

#: entries without a row that are Python code of torch's, followed as a program's own
INTERPRETED = frozenset(
    [
        "nn.functional.linear_cross_entropy.chunked",
        "nn.functional.linear_cross_entropy.chunked_none",
        "nn.functional.triplet_margin_with_distance_loss",
    ]
)

#: entries that are refused by name, and why
REFUSED: dict[str, str] = {
    "_batch_norm_with_update": "writes to its arguments",
    "_native_batch_norm_legit": "writes to its arguments",
    "allclose": "returns a Python value made of data",
    "equal": "returns a Python value made of data",
    "native_batch_norm": "writes to its arguments, and its schema does not say so",
    "slice": "returns memory of its argument, by torch.ops; indexing does the same",
    "to_sparse": "its result is not strided",
}

WITHOUT_ROW = FALLBACK | INTERPRETED | REFUSED.keys()

#: entries some of whose samples are refused by name, and why
PARTLY_REFUSED: dict[str, str] = {
    "linalg.lstsq": "gelss and gelsd: the shape of the residuals depends on the rank",
    "linalg.lstsq.grad_oriented": "gelss and gelsd: the shape of the residuals depends on the rank",
    "narrow": "a start in a tensor",
    "resize_": "another shape changes the memory of its argument",
}
