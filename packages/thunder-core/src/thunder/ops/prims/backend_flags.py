"""The primitive that sets a flag of torch's kernels, such as which of attention's kernels are enabled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.ops.prims.declaration import primitive

__all__ = ["set_backend_flag"]

_SDP = ("flash", "mem_efficient", "math", "cudnn", "overrideable")
#: functions of ``torch._C``: what sets a flag → what reads it; a version of torch may lack some
_PAIRS = {
    **{f"_set_sdp_use_{name}": f"_get_{name}_sdp_enabled" for name in _SDP},
    "_set_sdp_priority_order": "_get_sdp_priority_order",
    "_set_math_sdp_allow_fp16_bf16_reduction": "_get_math_sdp_allow_fp16_bf16_reduction",
    **{
        f"_set_{name}": f"_get_{name}"
        for name in (
            "cudnn_enabled",
            "cudnn_benchmark",
            "cudnn_deterministic",
            "cudnn_allow_tf32",
            "cudnn_depthwise_kernel",
            "mkldnn_enabled",
            "mkldnn_deterministic",
            "onednn_allow_tf32",
            "nnpack_enabled",
            "cublas_allow_tf32",
            "cublas_allow_fp16_accumulation",
            "float32_matmul_precision",
            "deterministic_fill_uninitialized_memory",
        )
    },
    "_cuda_set_cudnn_benchmark_limit": "_cuda_get_cudnn_benchmark_limit",
    "set_num_threads": "get_num_threads",
}
#: the setters and getters of flags that this torch has, by the setter's name
FLAGS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    setter: (getattr(torch._C, setter), getattr(torch._C, getter))
    for setter, getter in _PAIRS.items()
    if hasattr(torch._C, setter) and hasattr(torch._C, getter)
}


def flag_values(names: Iterable[str]) -> dict[str, Any]:
    """Return the current values of flags, by the names of their setters."""
    return {name: FLAGS[name][1]() for name in names}


def restore_flags(values: dict[str, Any]) -> None:
    """Set flags to values, by the names of their setters."""
    for name, value in values.items():
        setter, getter = FLAGS[name]
        if getter() != value:
            setter(value)


def _set(name: str, value: Any) -> None:
    FLAGS[name][0](value)


def _meta(name: str, value: Any) -> None:
    """The meta function of a statement without result."""


#: sets a flag by the name of its function in ``torch._C`` for the rest of the program
set_backend_flag = primitive(
    "set_backend_flag",
    _meta,
    python_impl=_set,
    tags=(OpTags.DONT_DCE, OpTags.CTX_MANAGER_ENTER_EXIT_OP, OpTags.SETS_MODE),
)
