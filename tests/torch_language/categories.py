"""The subjects of operators, for the table that users read: patterns over names of torch's database, the
first that fits wins.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

CATEGORIES: dict[str, str] = {
    "Convolution, pooling, resampling": (
        "nn.functional.conv* nn.functional.*_pool* nn.functional.max_unpool* nn.functional.interpolate.* "
        "nn.functional.upsample_* nn.functional.grid_sample nn.functional.unfold nn.functional.pixel_* "
        "nn.functional.channel_shuffle grid_sampler_* _upsample_* max_pool2d_with_*"
    ),
    "Losses": ("nn.functional.*loss nn.functional.kl_div nn.functional.*cross_entropy* nn.functional.*_loss"),
    "Normalisation, dropout, embedding, attention": (
        "nn.functional.*_norm nn.functional.*_norm.* nn.functional.normalize nn.functional.*dropout* "
        "nn.functional.embedding* nn.functional.one_hot nn.functional.linear nn.functional.bilinear "
        "nn.functional.*attention* nn.functional.pdist nn.functional.cosine_similarity "
        "nn.functional.pairwise_distance nn.functional.pad.* *batch_norm* native_*_norm native_dropout* "
        "torch.ops.aten.*attention* constant_pad_nd renorm"
    ),
    "Activations": (
        "nn.functional.* softmax* log_softmax* sigmoid tanh _softmax* torch.ops.aten._safe_softmax*"
    ),
    "Fourier transforms": "fft.* stft istft",
    "Linear algebra": (
        "linalg.* addbmm addmm* addmv addr baddbmm bmm* mm mv dot vdot inner outer matmul __rmatmul__ "
        "cross cdist dist einsum tensordot kron trace cholesky* lu lu_* qr svd* ormqr geqrf pca_* "
        "pinverse triangular_solve logdet matrix_exp norm norm.* block_diag cov corrcoef sparse.* "
        "torch._scaled_mm*"
    ),
    "Special functions": (
        "special.* digamma lgamma mvlgamma* polygamma* erf* i0 igamma* logit sinc gcd lcm frexp ldexp "
        "nextafter heaviside polar xlogy"
    ),
    "Random numbers": (
        "bernoulli cauchy exponential geometric log_normal multinomial normal normal.* rand* uniform"
    ),
    "Creation": (
        "arange empty* eye full* linspace* logspace* ones* zeros* new_* scalar_tensor tril_indices "
        "triu_indices meshgrid* complex fill zero_ cartesian_prod combinations"
    ),
    "Conversion": (
        "bfloat16 bool byte cdouble cfloat chalf char double float half int long short to to_sparse "
        "clone contiguous item nan_to_num"
    ),
    "Indexing": (
        "__getitem__ argwhere gather index_* masked_* nonzero* put scatter* select* slice* take* where "
        "tril triu _unsafe_masked* as_strided* diagonal_scatter bucketize searchsorted isin "
        "unravel_index"
    ),
    "Reductions, scans, sorting": (
        "all any amax amin aminmax arg* bincount count_nonzero cum* diff histc histogram* hash_tensor "
        "kthvalue logcumsumexp logsumexp max max.red* mean median min min.red* mode msort nanmean "
        "nanmedian nanquantile nansum prod quantile sort std* sum var* topk trap* unique* gradient "
        "_segment_reduce*"
    ),
    "Shapes and views": (
        "H T mH mT alias_copy atleast_* broadcast_* cat chunk _chunk_cat column_stack conj* diag* "
        "*split* dstack expand* flatten flip* hstack movedim narrow* permute* ravel real imag repeat* "
        "reshape* resize_* resolve_* roll rot90 squeeze* stack swap* t t_copy tile transpose* unbind* "
        "unflatten unfold* unsafe_chunk unsqueeze* view* vstack sum_to_size"
    ),
    "Elementwise": "*",
}


def category(name: str) -> str:
    """The subject of an entry."""
    for title, patterns in CATEGORIES.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return title
    raise AssertionError(f"the last pattern fits everything, {name!r} too")
