"""The lookasides of the frontend: each module that is imported here has a table of rules."""

# ruff: noqa: F401

from __future__ import annotations

from types import ModuleType

from thunder.frontend.arrays import array_arguments
from thunder.frontend.checkpoints import checkpoint_regions
from thunder.frontend.custom_gradients import (
    autograd_functions,
    leaf_hooks,
    module_backward_hooks,
    node_hooks,
    retained_gradients,
    tensor_hooks,
)
from thunder.frontend.host_draws import draw_calls
from thunder.frontend.inner_gradients import accumulated_gradients, autograd_calls, function_levels
from thunder.frontend.inner_transforms import dual_numbers, forward_derivatives, linear_maps, mapped_calls
from thunder.frontend.lookasides import (
    argument_checks,
    clocks,
    compiler_marks,
    context_values,
    control_flow,
    copying,
    custom_operators,
    environment_queries,
    grad_requests,
    hook_handles,
    imports,
    introspection,
    kernel_calls,
    kernel_flags,
    legacy_constructors,
    library_texts,
    locks,
    made_values,
    mode_regions,
    module_conversions,
    module_tracking,
    number_conversions,
    number_functions,
    optimizer_steps,
    packed_sequences,
    pickles,
    process_groups,
    python_functions,
    ranges,
    rebound_tensors,
    rng_generators,
    saved_tensor_hooks,
    transformer_masks,
    weakrefs,
)
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives import cache_contents
from thunder.frontend.opaque_calls import opaque_iterators
from thunder.frontend.output import logging_calls, printing, progress_bars, warning_calls
from thunder.frontend.torch_functions import mode_stack, tensor_subclasses

_MODULES = [module for module in list(globals().values()) if isinstance(module, ModuleType)]
_TABLE = LookasideTable.merged(module.TABLE for module in _MODULES)


def default_lookasides() -> LookasideTable:
    """Return the table of all lookasides that ship with thunder."""
    return _TABLE
