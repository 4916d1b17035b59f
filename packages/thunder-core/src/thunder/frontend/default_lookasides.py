"""The lookasides of the frontend: the list of the modules whose rules make the table."""

from __future__ import annotations

from typing import Any, Final

from thunder.frontend import places
from thunder.frontend.arrays import array_arguments
from thunder.frontend.checkpoints import checkpoint_regions
from thunder.frontend.custom_gradients import (
    autograd_functions,
    leaf_hooks,
    module_backward_hooks,
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

#: the modules of rules, by what the calls of the functions do; the rules of some say more
_MODULES: Final[dict[places.Effect, tuple[Any, ...]]] = {
    places.COMPUTES: (
        argument_checks,
        autograd_functions,
        checkpoint_regions,
        compiler_marks,
        control_flow,
        copying,
        custom_operators,
        forward_derivatives,
        function_levels,
        imports,
        introspection,
        kernel_calls,
        legacy_constructors,
        library_texts,
        linear_maps,
        mapped_calls,
        mode_regions,
        mode_stack,
        module_conversions,
        module_tracking,
        number_conversions,
        number_functions,
        optimizer_steps,
        packed_sequences,
        pickles,
        python_functions,
        ranges,
        saved_tensor_hooks,
        tensor_subclasses,
        transformer_masks,
    ),
    places.READS: (cache_contents, opaque_iterators, weakrefs),
    places.READS_SURROUNDINGS: (context_values, environment_queries, kernel_flags, process_groups),
    places.WRITES: (grad_requests, locks),
    places.OUTPUT: (logging_calls, printing, progress_bars, warning_calls),
    places.DRAWS: (rng_generators,),
    places.DRAWS_ON_HOST: (draw_calls,),
    places.READS_CLOCK: (clocks, made_values),
    places.MAKES_ARRAY: (array_arguments,),
    places.REBINDS: (rebound_tensors,),
    places.HOOKS_LEAF: (leaf_hooks,),
    places.HOOKS_TENSOR: (module_backward_hooks, retained_gradients, tensor_hooks),
    places.COMPUTES_GRADIENTS: (accumulated_gradients, autograd_calls),
    places.OPENS_DUAL_LEVEL: (dual_numbers,),
}
_TABLE = LookasideTable.merged((effect, m.TABLE) for effect, modules in _MODULES.items() for m in modules)


def default_lookasides() -> LookasideTable:
    """Return the table of all lookasides that ship with thunder."""
    return _TABLE
