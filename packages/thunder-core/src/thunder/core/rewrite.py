"""Tools to edit traces, and to change the parameters and buffers that a computation takes."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.ir.evaluation import eval_trace, record_parts, recorded_by
from thunder.ir.module_inputs import (
    add_input,
    cast_inputs,
    get_checks,
    module_tensors,
    replace_input,
    replace_inputs,
)
from thunder.ir.rewrite import (
    VISIT_TYPE,
    add_trace_output,
    insert_inplace,
    replace_inplace,
    trace_with_replaced_proxy_metadata,
    visitor_transform,
)
from thunder.ir.substitution import in_place_of, rename_results, substitute, substitute_operands, with_leaves
from thunder.ir.traced_sizes import call_with_traced_sizes
from thunder.passes.attribute_checks import check_module_attribute
from thunder.passes.call_replacement import replace_calls

__all__ = [
    "VISIT_TYPE",
    "add_input",
    "add_trace_output",
    "call_with_traced_sizes",
    "cast_inputs",
    "check_module_attribute",
    "eval_trace",
    "get_checks",
    "in_place_of",
    "insert_inplace",
    "module_tensors",
    "record_parts",
    "recorded_by",
    "rename_results",
    "replace_calls",
    "replace_inplace",
    "replace_input",
    "replace_inputs",
    "substitute",
    "substitute_operands",
    "trace_with_replaced_proxy_metadata",
    "visitor_transform",
    "with_leaves",
]

__getattr__ = partial(missing_name, __name__)
