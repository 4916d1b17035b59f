"""Samples of core's operators for which torch has none: of other operators' programs, or written here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch

from thunder.core.prims import CHECKS, packing, prologues
from thunder.extend import Operator, row_of
from thunder_testing.call_harvest import Call, harvested
from thunder_testing.torch_samples import database_samples
from thunder_testing.written_samples import written_samples

__all__ = ["NOT_OPERATORS", "UNCHECKED_SHAPES", "row_samples"]

#: ids of rows whose kernel in torch does not check that the shapes of its arguments fit: a call in which one
#: of them has another size reads memory that is not the tensor's
UNCHECKED_SHAPES = frozenset(
    {
        *(f"ltorch._adaptive_avg_pool{n}d_backward" for n in (2, 3)),
        "ltorch.flash_attention_for_cpu",
        "ltorch.flash_attention_for_cpu_backward",
        "ltorch.layer_norm_backward",
        "ltorch.nll_loss_backward",
        *(f"torch.{name}_packed" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
    }
)

#: how many samples of another operator are run
MAX_PROGRAMS = 6

#: dtypes of the other operator's samples, of which the first that has some is used
DTYPES = (torch.float32, torch.int64, torch.bool)

STATEMENT = "it is a statement of programs, which has no result"
FRONTEND = "it is a statement that the frontend writes, and runs Python objects"
PROLOGUE = "it is a statement of prologues or epilogues, on any Python objects"
GENERATOR = "it changes or reads the state of a generator, and computes no tensor"
GRADIENT = "it is written in gradient rules, and is in no program that runs"
MODE = "it changes a mode of torch, and computes no tensor"
LAYOUT = "it computes with the layout of a tensor without data, and is in gradients of views alone"
NUMBER = "it computes numbers of Python's, and no tensor"
SIZED = "its statement has the metadata of its results, which depend on data, as an argument"

#: id of a row → why it has no samples
NOT_OPERATORS: Mapping[str, str] = {
    "conformance.opaque": "it is part of the tests of fusion executors",
    **dict.fromkeys(("prims.get_grad", "prims.get_grad_or_none", "prims.put_grad"), GRADIENT),
    **dict.fromkeys(
        (
            "prims.python_return",
            "prims.python_del",
            "prims.python_print",
            "prims.python_call",
            "prims.comment",
            "prims.sink",
            "prims.check_values",
            "prims.clear_mutable_collection",
            "prims.unpack_trivial",
            "prims.unpack_sequence",
            "prims.copy_",
        ),
        STATEMENT,
    ),
    **dict.fromkeys(
        (f"prims.{name}" for name in prologues.__all__ if name not in ("Constant", "UNPACKINGS")), PROLOGUE
    ),
    **dict.fromkeys((*CHECKS, "prims.check_tensor_shape_and_metadata", "prims.check_tensors"), PROLOGUE),
    **dict.fromkeys((f"prims.{name}" for name in packing.__all__ if name != "Expression"), PROLOGUE),
    **dict.fromkeys(
        (
            "prims.set_grad_enabled",
            "prims.enter_inference_mode",
            "prims.leave_inference_mode",
            "prims.set_default_dtype",
            "prims.set_print_options",
        ),
        MODE,
    ),
    **dict.fromkeys(
        (
            "prims.make_generator",
            "prims.seed_generator",
            "prims.seed_generator_from_entropy",
            "prims.get_generator_state",
            "prims.set_generator_state",
            "prims.copy_generator",
            "prims.manual_seed",
            "prims.seed_from_entropy",
            "prims.seed_cuda",
            "prims.seed_cuda_all",
            "prims.get_and_update_rng_state",
            "prims.get_cuda_rng_state",
            "prims.set_cuda_rng_state",
        ),
        GENERATOR,
    ),
    **dict.fromkeys(
        (
            "prims.python_lines",
            "prims.read_clock",
            "prims.make_value",
            "prims.derive_value",
            "prims.begin_region",
            "prims.run_region_again",
            "prims.record_opaque",
            "prims.run_opaque",
            "prims.raise_error",
            "prims.begin_backward",
            "prims.begin_objects",
            "prims.record_backward",
            "prims.differentiate_backward",
            "prims.record_derivative",
            "prims.run_backward",
            "prims.draw_array",
            "prims.draw_number",
        ),
        FRONTEND,
    ),
    **dict.fromkeys(
        (f"ltorch.{name}" for name in ("layout_of", "as_strided_like", "as_strided_backward")), LAYOUT
    ),
    **dict.fromkeys(
        (
            f"{name}{end}"
            for name in (
                "ltorch.repeated_positions",
                "torch.bincount",
                "torch.nonzero",
                "torch.unique",
                "torch.unique_consecutive",
            )
            for end in ("", "_with_size")
        ),
        SIZED,
    ),
    **dict.fromkeys(("prims.as_sizes", "prims.compute_number"), NUMBER),
}

#: operator → operator in whose decomposition it occurs
IN_PROGRAMS: Mapping[str, str] = {
    "prims.full": "torch.full",
    "prims.empty": "torch.empty",
    "prims.iota": "torch.arange",
    "prims.linspace": "torch.linspace",
    "prims.tensor_from_sequence": "torch.Tensor.__getitem__",
    "prims.frexp": "torch.frexp",
    "prims.add": "torch.add",
    "prims.atan2": "torch.atan2",
    "prims.bitwise_and": "torch.bitwise_and",
    "prims.bitwise_left_shift": "torch.bitwise_left_shift",
    "prims.bitwise_or": "torch.bitwise_or",
    "prims.bitwise_right_shift": "torch.bitwise_right_shift",
    "prims.bitwise_xor": "torch.bitwise_xor",
    "prims.copysign": "torch.copysign",
    "prims.div": "torch.div",
    "prims.eq": "torch.eq",
    "prims.fmod": "torch.fmod",
    "prims.ge": "torch.ge",
    "prims.gt": "torch.gt",
    "prims.hypot": "torch.hypot",
    "prims.le": "torch.le",
    "prims.lt": "torch.lt",
    "prims.maximum": "torch.maximum",
    "prims.minimum": "torch.minimum",
    "prims.mul": "torch.mul",
    "prims.ne": "torch.ne",
    "prims.nextafter": "torch.nextafter",
    "prims.pow": "torch.pow",
    "prims.py_floordiv": "torch.floor_divide",
    "prims.remainder": "torch.remainder",
    "prims.sub": "torch.sub",
    "prims.zeta": "torch.special.zeta",
    "prims.convert_element_type": "torch.float_power",
    "prims.shallow_copy": "torch.tile",
    "prims.detach": "torch.nn.functional.grid_sample",
    "prims.stride_order": "torch.ravel",
    "prims.gather": "torch.gather",
    "prims.take": "torch.take",
    "prims.scatter": "torch.scatter",
    "prims.scatter_add": "torch.scatter_add",
    "prims.index_add": "torch.index_add",
    "prims.index_copy": "torch.index_copy",
    "prims.index_put": "torch.index_put",
    "prims.index": "torch.Tensor.__getitem__",
    "prims.convolution": "torch.nn.functional.conv1d",
    "prims.embedding_renorm": "torch.nn.functional.embedding",
    "prims.instance_norm_update": "torch.nn.functional.instance_norm",
    "prims.batch_norm_update": "torch.nn.functional.batch_norm",
    "prims.randn": "torch.randn",
    "prims.randint": "torch.randint",
    "prims.uniform": "torch.nn.functional.scaled_dot_product_attention",
    "prims.normal": "torch.normal",
    "prims.amax": "torch.amax",
    "prims.amin": "torch.amin",
    "prims.prod": "torch.prod",
    "prims.sum": "torch.sum",
    "prims.any": "torch.any",
    "prims.all": "torch.all",
    "prims.var": "torch.var",
    "prims.std": "torch.std",
    "prims.var_mean": "torch.var_mean",
    "prims.cumsum": "torch.cumsum",
    "prims.cumprod": "torch.cumprod",
    "prims.cummax": "torch.cummax",
    "prims.cummin": "torch.cummin",
    "prims.topk": "torch.topk",
    "prims.sort": "torch.sort",
    "prims.broadcast_in_dim": "torch.Tensor.expand",
    "prims.pad": "torch.nn.functional.pad",
    "prims.slice_prim": "torch.split",
    "prims.argmax": "torch.argmax",
    "prims.argmin": "torch.argmin",
    "torch.detach": "torch.nn.functional.grid_sample",
    "ltorch.native_group_norm": "torch.nn.functional.group_norm",
    "ltorch.norm_by_statistics": "torch.nn.functional.batch_norm",
}

#: operator → operator in whose gradient it occurs
IN_GRADIENTS: Mapping[str, str] = {
    "torch.nn.functional.max_pool1d_with_indices": "torch.nn.functional.max_pool1d",
    "torch.nn.functional.max_pool2d_with_indices": "torch.nn.functional.max_pool2d",
    "torch.nn.functional.max_pool3d_with_indices": "torch.nn.functional.max_pool3d",
    "torch.nn.functional.adaptive_max_pool1d_with_indices": "torch.nn.functional.adaptive_max_pool1d",
    "torch.nn.functional.adaptive_max_pool2d_with_indices": "torch.nn.functional.adaptive_max_pool2d",
    "torch.nn.functional.adaptive_max_pool3d_with_indices": "torch.nn.functional.adaptive_max_pool3d",
    "torch.nn.functional.fractional_max_pool2d_with_indices": "torch.nn.functional.fractional_max_pool2d",
    "torch.nn.functional.fractional_max_pool3d_with_indices": "torch.nn.functional.fractional_max_pool3d",
    "torch.nn.functional.fold": "torch.nn.functional.unfold",
    "ltorch.index_backward": "torch.Tensor.__getitem__",
    "ltorch.gather_backward": "torch.nn.functional.multi_margin_loss",
    "ltorch.index_select_backward": "torch.index_select",
    "ltorch.masked_scatter_backward": "torch.masked_scatter",
    "ltorch._cdist_backward": "torch.cdist",
    "ltorch.unchecked_inverse": "torch.linalg.det",
    "ltorch.det_backward": "torch.linalg.det",
    "ltorch.log_det_backward": "torch.linalg.slogdet",
    "ltorch.sigmoid_backward": "torch.sigmoid",
    "ltorch.tanh_backward": "torch.tanh",
    "ltorch.logit_backward": "torch.logit",
    "ltorch.threshold_backward": "torch.nn.functional.threshold",
    "ltorch.leaky_relu_backward": "torch.nn.functional.leaky_relu",
    "ltorch._prelu_kernel_backward": "torch.prelu",
    "ltorch.hardtanh_backward": "torch.nn.functional.hardtanh",
    "ltorch.hardsigmoid_backward": "torch.nn.functional.hardsigmoid",
    "ltorch.hardswish_backward": "torch.nn.functional.hardswish",
    "ltorch.softshrink_backward": "torch.nn.functional.softshrink",
    "ltorch.hardshrink_backward": "torch.nn.functional.hardshrink",
    "ltorch.elu_backward": "torch.nn.functional.elu",
    "ltorch.silu_backward": "torch.nn.functional.silu",
    "ltorch.gelu_backward": "torch.nn.functional.gelu",
    "ltorch.mish_backward": "torch.nn.functional.mish",
    "ltorch.softplus_backward": "torch.nn.functional.softplus",
    "ltorch.glu_backward": "torch.nn.functional.glu",
    "ltorch.convolution_backward": "torch.nn.functional.conv1d",
    "ltorch.embedding_dense_backward": "torch.nn.functional.embedding",
    "ltorch.embedding_bag_backward": "torch.nn.functional.embedding_bag",
    "ltorch.nll_loss_backward": "torch.nn.functional.nll_loss",
    "ltorch.layer_norm_backward": "torch.nn.functional.layer_norm",
    "ltorch.rms_norm_backward": "torch.nn.functional.rms_norm",
    "ltorch.group_norm_backward": "torch.nn.functional.group_norm",
    "ltorch.batch_norm_backward": "torch.nn.functional.batch_norm",
    "ltorch.avg_pool2d_backward": "torch.nn.functional.avg_pool2d",
    "ltorch.avg_pool3d_backward": "torch.nn.functional.avg_pool3d",
    "ltorch._adaptive_avg_pool2d_backward": "torch.nn.functional.adaptive_avg_pool2d",
    "ltorch._adaptive_avg_pool3d_backward": "torch.nn.functional.adaptive_avg_pool3d",
    "ltorch.max_pool_backward": "torch.nn.functional.max_pool1d",
    "ltorch.interpolate_backward": "torch.nn.functional.interpolate",
    "ltorch.grid_sample_backward": "torch.nn.functional.grid_sample",
    "ltorch._softmax_backward_data": "torch.nn.functional.scaled_dot_product_attention",
    "ltorch._log_softmax_backward_data": "torch.nn.functional.cross_entropy",
    "ltorch.cumprod_backward": "torch.cumprod",
    "ltorch.exp_scan": "torch.logcumsumexp",
    "ltorch.value_selecting_reduction_backward": "torch.sort",
    "ltorch.diagonal_backward": "torch.diagonal",
    "ltorch.unfold_backward": "torch.Tensor.unfold",
    "ltorch.as_strided_backward": "torch.as_strided",
}


def row_samples(row: Operator, device: torch.device) -> Iterator[Call]:
    """Yield the arguments of sample calls of an operator that torch's database lacks."""
    yield from written_samples(row.id, device)
    for table, gradient in ((IN_PROGRAMS, False), (IN_GRADIENTS, True)):
        source = row_of(table.get(row.id, ""))
        if source is None:
            continue
        for dtype in DTYPES:
            calls = database_samples(source, device, dtype, MAX_PROGRAMS)
            samples = list(itertools.islice(harvested(row.id, source, calls, gradient), MAX_PROGRAMS))
            if samples:
                yield from samples
                break
