"""Tables of what torch's autocast does with each operator, one for each kind of device.

The keys are ids of rows. A rule is an :data:`Action`, or a function of the row's arguments that
returns one or None:

    lower         casts to the dtype of autocast
    fp32          casts to float32
    promote       casts to the widest dtype among the arguments and that of autocast
    dtype         passes dtype=torch.float32, unless the call has a dtype
    banned        raises
    within        casts between the steps of the function, so torch runs it under autocast
    inside        like within, but tensors without data do not show it; the first tensor decides, and the
                  result has the dtype of autocast
    interpreted   like within, for a function that torch wrote in Python: its code is traced, not the row

An operator that is not in a table is computed as without autocast. Torch's lists are in
``aten/src/ATen/autocast_mode.h``. Functions that ATen composes of others are not in them: autocast acts on
their steps, which the last three actions describe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from thunder.ir.proxies import TensorProxy

#: what autocast does with a call
Action = Literal["lower", "fp32", "promote", "dtype", "banned", "within", "inside", "interpreted"]
#: an action, or a function from the row's arguments to one
AutocastRule = Action | Callable[..., Action | None]

_F: Final = "torch.nn.functional."


def _named(prefix: str, names: str) -> list[str]:
    return [f"{prefix}{name}" for name in names.split()]


def _all(rule: AutocastRule, *ids: str) -> dict[str, AutocastRule]:
    return dict.fromkeys(ids, rule)


# -- rules that depend on arguments ----------------------------------------------------------------


def _padded(
    input: TensorProxy, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Action | None:
    """Each mode has one kernel, and ``reflect`` has one for each rank."""
    return "fp32" if mode == "replicate" or (mode == "reflect" and len(pad) <= 4) else None


def _without_indices(
    input: TensorProxy,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Action | None:
    """``max_pool3d`` with indices is another kernel."""
    return None if return_indices else "fp32"


def _of_one_dtype(tensors: Sequence[TensorProxy]) -> Action | None:
    """``multi_dot`` checks the dtypes before autocast acts on its products."""
    return "lower" if len({t.dtype for t in tensors}) == 1 else None


def _of_several(*tensors: TensorProxy) -> Action | None:
    """``cartesian_prod`` of one tensor is that tensor; torch refuses several dtypes."""
    return "promote" if len(tensors) > 1 and len({t.dtype for t in tensors}) == 1 else None


def _with_classes(input: TensorProxy, target: TensorProxy, *how: Any, **named: Any) -> Action:
    """A loss of class indices casts its input first; one of probabilities smooths them first."""
    return "within" if target.dtype.is_floating_point else "fp32"


def _of_matrices(rule: Action) -> Callable[..., Action | None]:
    """``inner`` with a tensor of rank 0 is an elementwise product."""

    def inner(input: TensorProxy, other: TensorProxy) -> Action | None:
        return rule if input.shape and other.shape else None

    return inner


def _resampled(
    input: TensorProxy, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *how: Any
) -> Action | None:
    return None if mode == "area" else "fp32"  # which is average pooling


def _smaller(input: TensorProxy, size: Sequence[int]) -> Action | None:
    """``sum_to_size`` of a tensor with that size returns it, unless its rank is 0."""
    return None if tuple(input.shape) == tuple(size) != () else "within"


# -- the tables ------------------------------------------------------------------------------------

_EVERYWHERE: Final[dict[str, AutocastRule]] = {
    **_all("lower", *_named("torch.", "addmm addbmm baddbmm bmm mm matmul prelu")),
    **_all("lower", *_named("torch.", "rnn_tanh_cell rnn_relu_cell _native_multi_head_attention")),
    "torch.linalg.vecdot": "lower",
    **_all("lower", *_named(_F, "linear scaled_dot_product_attention conv1d conv2d conv3d")),
    **_all("lower", *_named(_F, "conv_transpose1d conv_transpose2d conv_transpose3d")),
    **_all("fp32", "torch.cdist", *_named(_F, "l1_loss mse_loss smooth_l1_loss huber_loss kl_div nll_loss")),
    **_all("fp32", *_named(_F, "binary_cross_entropy_with_logits poisson_nll_loss soft_margin_loss")),
    **_all("fp32", *_named(_F, "margin_ranking_loss multi_margin_loss multilabel_margin_loss")),
    **_all("fp32", *_named(_F, "triplet_margin_loss cosine_embedding_loss hinge_embedding_loss")),
    "torch.linalg.matrix_power": "within",
    f"{_F}affine_grid": "inside",
    "torch.linalg.pinv": "inside",
    **_all("within", *_named("torch.", "cov corrcoef lstm gru rnn_tanh rnn_relu")),
    **_all("interpreted", f"{_F}multi_head_attention_forward"),
}

_CPU: Final[dict[str, AutocastRule]] = {
    **_EVERYWHERE,
    **_all("fp32", *_named("torch.", "prod trace quantile nanquantile polar view_as_complex geqrf")),
    **_all("fp32", *_named("torch.", "cholesky_inverse cholesky_solve pinverse")),
    **_all("fp32", *_named("torch.linalg.", "cholesky cholesky_ex eigh eigvalsh inv")),
    **_all("fp32", *_named("torch.linalg.", "lstsq qr solve svd svdvals")),
    **_all("fp32", *_named("torch.fft.", "fft fft2 fftn ifft ifft2 ifftn hfft ihfft")),
    **_all("fp32", *_named("torch.fft.", "rfft rfft2 rfftn irfft irfft2 irfftn")),
    **_all("fp32", *_named(_F, "cross_entropy binary_cross_entropy ctc_loss grid_sample")),
    **_all("fp32", *_named(_F, "avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d")),
    **_all("fp32", f"{_F}adaptive_max_pool3d_with_indices"),
    **_all("fp32", *_named(_F, "max_unpool1d max_unpool2d max_unpool3d")),
    **_all("promote", *_named("torch.", "cat stack hstack vstack dstack column_stack index_copy")),
    **_all("promote", "torch.combinations", "torch.matrix_exp", *_named("torch.fft.", "fftshift ifftshift")),
    "torch.roll": lambda a, *how: "promote" if a.numel else None,
    **_all("within", *_named("torch.", "einsum tensordot lstm_cell gru_cell isin")),
    **_all("interpreted", *_named(_F, "lp_pool3d fractional_max_pool2d fractional_max_pool3d")),
    **_all(
        "interpreted", *_named(_F, "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices")
    ),
    f"{_F}bilinear": "within",
    f"{_F}max_pool3d": _without_indices,
    f"{_F}pad": _padded,
    "torch.linalg.multi_dot": _of_one_dtype,
    "torch.cartesian_prod": _of_several,
    "torch.inner": _of_matrices("within"),
}

_CUDA: Final[dict[str, AutocastRule]] = {
    **_EVERYWHERE,
    "torch.linalg.multi_dot": "lower",
    **_all("lower", *_named("torch.", "addmv addr mv einsum lstm_cell gru_cell")),
    **_all("fp32", *_named("torch.", "acos asin cosh erfinv exp expm1 log log10 log1p log2 logsumexp pow")),
    **_all("fp32", *_named("torch.", "reciprocal rsqrt sinh square tan dist renorm rms_norm")),
    **_all("fp32", *_named(_F, "softplus layer_norm group_norm rms_norm cosine_similarity")),
    **_all("fp32", *_named(_F, "upsample upsample_nearest upsample_bilinear")),
    **_all("fp32", "ltorch.native_layer_norm"),
    **_all("dtype", *_named("torch.", "sum prod cumsum cumprod softmax log_softmax norm")),
    **_all("dtype", *_named("torch.linalg.", "vector_norm matrix_norm")),
    **_all("dtype", *_named(_F, "softmax log_softmax softmin")),
    **_all("promote", *_named("torch.", "addcdiv addcmul atan2 cross dot vdot tensordot")),
    **_all("promote", *_named("torch.", "index_put scatter_add")),
    **_all("promote", *_named(_F, "bilinear grid_sample")),
    **_all("banned", f"{_F}binary_cross_entropy"),
    **_all("within", *_named("torch.", "trapezoid cumulative_trapezoid vander linalg.vander pinverse")),
    **_all("within", f"{_F}pairwise_distance"),
    **_all("interpreted", *_named(_F, "normalize local_response_norm multilabel_soft_margin_loss")),
    **_all("interpreted", *_named(_F, "lp_pool1d lp_pool2d lp_pool3d gumbel_softmax")),
    f"{_F}interpolate": _resampled,
    f"{_F}cross_entropy": _with_classes,
    "torch.inner": _of_matrices("promote"),
    "torch.Tensor.sum_to_size": _smaller,
}

#: actions on functions within which torch casts
STEPS: Final[frozenset[Action]] = frozenset({"within", "inside", "interpreted"})

#: kind of device → id of a row → rule
RULES: Final[Mapping[str, Mapping[str, AutocastRule]]] = {"cuda": _CUDA, "cpu": _CPU}


def action_of(operator_id: str, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Action | None:
    """Return what autocast on a kind of device does with a call of an operator, or None."""
    rule = RULES[kind].get(operator_id)
    return rule(*args, **kwargs) if callable(rule) else rule
