"""The interface for authors of executors: classes to subclass, functions to register and find executors."""

from __future__ import annotations

from functools import partial

from thunder.base.artefact_cache import ArtefactCache
from thunder.base.current_options import changed_options, noted_reads
from thunder.base.public_names import missing_name
from thunder.base.text_tables import byte_text
from thunder.executor_base.choice import answer_as_executor
from thunder.executor_base.executor import Executor, ImplInfo, Rank
from thunder.executor_base.functional_forms import FUNCTIONAL, on_copies
from thunder.executor_base.fusion_executor import FUEL_LEVEL, FusionExecutor
from thunder.executor_base.operator_executor import OperatorExecutor, StatefulExecutor, TemporaryExecutor
from thunder.executor_base.operator_ids import operator_id
from thunder.executor_base.preferences import Preference, Preferences, RegionPreference
from thunder.executor_base.preferred_regions import cut_positions, parts_of_region
from thunder.executor_base.refusal import Refusal
from thunder.executor_base.region_compilation import compile_together, compile_workers
from thunder.executor_base.region_refusals import refuse_draws, refuse_package
from thunder.executor_base.unfused import no_reason
from thunder.extend.device_profiles import assuming_device, device_profile, known_profiles, profile_named
from thunder.extend.inline_extensions import (
    attach_transform,
    attached_transforms,
    register_debug_option,
    register_option,
    single_op_executor,
)
from thunder.extend.ledger_facts import register_ledger_facts
from thunder.extend.option_reading import compile_option
from thunder.extend.registry import ExecutorRegistry, add_executor_lists, get_registry
from thunder.ir.aliasing import consists_of_views
from thunder.ir.fusion_regions import Bounds, Region, partition, replace_regions
from thunder.ir.region_cuts import Cuts
from thunder.ir.region_graph import RegionGraph
from thunder.ir.region_keys import structural_key
from thunder.ir.region_sizes import (
    SymbolicInt,
    numbers_of,
    sizes_in,
    sizes_of,
    strides_as_products,
    with_sizes,
    without_sizes,
)
from thunder.ir.region_writes import (
    WrittenInput,
    why_not_written_by_region,
    writes_to_shared_inputs,
    written_inputs,
)
from thunder.ir.requires_grad import any_requires_grad
from thunder.ops.kernel_operators import run_kernel
from thunder.ops.layout_rules import CONTIGUOUS, LIKE, Layout
from thunder.ops.operator import Operator, row_of, symbol_of
from thunder.ops.region_evaluation import evaluate_calls, evaluate_region
from thunder.ops.region_strides import EagerStrides, ExpectedStrides
from thunder.ops.stand_ins import stand_in_tensor
from thunder.ops.view_rules import ViewRule
from thunder.ops.writing_regions import reusing_function, unwritten, writing_function

__all__ = [
    "CONTIGUOUS",
    "FUEL_LEVEL",
    "FUNCTIONAL",
    "LIKE",
    "ArtefactCache",
    "Bounds",
    "Cuts",
    "EagerStrides",
    "Executor",
    "ExecutorRegistry",
    "ExpectedStrides",
    "FusionExecutor",
    "ImplInfo",
    "Layout",
    "Operator",
    "OperatorExecutor",
    "Preference",
    "Preferences",
    "Rank",
    "Refusal",
    "Region",
    "RegionGraph",
    "RegionPreference",
    "StatefulExecutor",
    "SymbolicInt",
    "TemporaryExecutor",
    "ViewRule",
    "WrittenInput",
    "add_always_executor",
    "add_default_executor",
    "add_executor_lists",
    "answer_as_executor",
    "any_requires_grad",
    "assuming_device",
    "attach_transform",
    "attached_transforms",
    "byte_text",
    "changed_options",
    "compile_option",
    "compile_together",
    "compile_workers",
    "consists_of_views",
    "cut_positions",
    "deregister_executor",
    "device_profile",
    "evaluate_calls",
    "evaluate_region",
    "get_all_executors",
    "get_always_executors",
    "get_default_executors",
    "get_executor",
    "get_registry",
    "known_profiles",
    "no_reason",
    "noted_reads",
    "numbers_of",
    "on_copies",
    "operator_id",
    "partition",
    "parts_of_region",
    "profile_named",
    "refuse_draws",
    "refuse_package",
    "register_debug_option",
    "register_executor",
    "register_ledger_facts",
    "register_option",
    "remove_always_executor",
    "remove_default_executor",
    "replace_regions",
    "resolve_executors",
    "reusing_function",
    "row_of",
    "run_kernel",
    "set_always_executors",
    "set_default_executors",
    "single_op_executor",
    "sizes_in",
    "sizes_of",
    "stand_in_tensor",
    "strides_as_products",
    "structural_key",
    "symbol_of",
    "unwritten",
    "why_not_written_by_region",
    "with_sizes",
    "without_sizes",
    "writes_to_shared_inputs",
    "writing_function",
    "written_inputs",
]

# The functions of the one registry of the process.
register_executor = get_registry().register_executor
deregister_executor = get_registry().deregister_executor
get_executor = get_registry().get_executor
get_all_executors = get_registry().get_all_executors
resolve_executors = get_registry().resolve_executors
get_default_executors = get_registry().get_default_executors
set_default_executors = get_registry().set_default_executors
add_default_executor = get_registry().add_default_executor
remove_default_executor = get_registry().remove_default_executor
get_always_executors = get_registry().get_always_executors
set_always_executors = get_registry().set_always_executors
add_always_executor = get_registry().add_always_executor
remove_always_executor = get_registry().remove_always_executor

__getattr__ = partial(missing_name, __name__)
