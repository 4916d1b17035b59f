"""The names that nvfuser_direct 0.2.36 takes as options, and the checks of those that a user gives.

The tables are those that the library prints for an unknown name in NVFUSER_ENABLE, NVFUSER_DISABLE or
NVFUSER_DUMP. An unknown name there ends the process, or a run with an error that names no option of thunder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final

from thunder.core.errors import InvalidArgument

from .data_types import names

__all__ = ["DISABLE", "DUMP", "ENABLE", "checked_names", "request_dumps"]

ENABLE: Final = frozenset(
    names(
        "cutlass_scheduler fast_math fuse_matmul fuse_multiple_matmuls host_ir_jit host_ir_lowering "
        "id_model_extra_validation insert_resharding_after io_to_lower_precision kernel_db kernel_debug "
        "kernel_lineinfo kernel_profile memory_promotion multicast_protocol p2p_protocol parallel_serde "
        "reuse_zeroed_memory static_fusion_count tma_inner_persistent tma_pointwise tma_reduction "
        "wait_debugger warn_register_spill ws_normalization"
    )
)
DISABLE: Final = frozenset(
    names(
        "compile_to_sass contig_indexing expr_simplify fallback fma greedy_scheduler "
        "grouped_grid_welford_outer_opt index_hoist infer_contiguity kernel_reuse magic_zero "
        "matmul_expr_eval multidevice nvrtc_caching nvtx parallel_compile predicate_elimination "
        "python_inline_definitions resize_scheduler reuse_mismatched_type_registers var_name_remapping "
        "welford_vectorization"
    )
)
DUMP: Final = frozenset(
    names(
        "bank_conflict buffer_reuse_verbose ca_map communication compile_params cubin cuda_full cuda_kernel "
        "cuda_to_file cutlass_compile draw_segmented_fusion dynamic_shared_memory expr_simplify expr_sort "
        "expr_sort_verbose ftrace fusion_args fusion_ir fusion_ir_concretized fusion_ir_graph fusion_ir_math "
        "fusion_ir_original fusion_ir_presched fusion_ir_preseg global_zeroed_memory host_ir host_ir_jit "
        "host_ir_lowering index_type indexing_verbose inlining kernel_args kernel_ir launch_param "
        "lower_verbose occupancy parallel_dimensions perf_debug_verbose pre_segmenter_logging "
        "predicate_elimination ptx ptxas_verbose python_definition sass sass_to_file scheduler_params "
        "scheduler_verbose segmented_fusion segmenter_logging sync_map transform_propagator"
    )
)
_VARIABLE: Final = "NVFUSER_DUMP"


def checked_names(option: str, text: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return the names in a text, separated by commas; raise InvalidArgument for one that is not known."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in found if name not in known]
    if unknown:
        raise InvalidArgument(
            f"{option} received {', '.join(unknown)}, which nvFuser does not have",
            found={"names": ", ".join(sorted(known))},
        )
    return found


def request_dumps(dumps: Iterable[str], *, is_used: bool) -> None:
    """Add names to NVFUSER_DUMP, which nvFuser reads at its first use in a process.

    Raises InvalidArgument for a name that is not there if the library was used already (`is_used`).
    """
    present = [name for name in os.environ.get(_VARIABLE, "").split(",") if name]
    missing = [name for name in dict.fromkeys(dumps) if name not in present]
    if missing and is_used:
        raise InvalidArgument(
            f"nvfuser_dump={','.join(missing)!r} comes after the first region that nvFuser compiled in this "
            f"process, when it read {_VARIABLE}",
            hint=f"Give the option from the first compile on, or run {_VARIABLE}={','.join(missing)} "
            f"{os.path.basename(sys.executable)} ….",
        )
    if missing:
        os.environ[_VARIABLE] = ",".join([*present, *missing])
