"""The signatures of the public contract: each callable takes the parameters that are promised."""

from __future__ import annotations

import importlib
import inspect
from operator import attrgetter

import pytest

from thunder.core.symbol import Symbol

# fmt: off
SIGNATURES = {
    "thunder:jit": """
        fn, /, *, langctx=None, executors=None, sharp_edges=None, cache=None, disable_torch_autograd=False,
        transforms=None, debug_options=None, require=None, **options
    """,
    "thunder:trace": """
        *, inline_trace=True, rename_proxies=True, include_return_statement=True, use_dce=True
    """,
    "thunder:plan": "fn, /, *args, executors=None, transforms=None, **options",
    "thunder:compile": "fn, recipe='auto', plugins=None",
    "thunder:print_last_interpreter_log": """
        fn, /, print_fn=print, use_colors=True, indent=True, max_depth=None, color_internals=False,
        print_source_code=True
    """,
    "thunder:set_execution_callback_file": "path",
    "thunder.extend:Executor": "name, *, version=None, rank=None, aliases=()",
    "thunder.extend:OperatorExecutor.register_operator": """
        self, name, *, meta=None, like=None, fn=None, module=None, tags=None, replaces=None,
        bind_postprocess=None, python_printer=None, replace=False
    """,
    "thunder.extend:OperatorExecutor.register_implementation": """
        self, sym_or_id, op=None, *, checker=None, execution_transform=None, grad_transform=None
    """,
    "thunder.extend:FusionExecutor.register_supported": """
        self, sym_or_id, checker=None, *, execution_transform=None, grad_transform=None
    """,
    "thunder.extend:FusionExecutor.fuse": "self, region, fusion_counter",
    "thunder.extend:FusionExecutor.register_temporary_operation": """
        self, name, fn, *, inputs, outputs, bsyms
    """,
    "thunder.extend:FusionExecutor.get_fuel": "self, amount=1",
    "thunder.extend:StatefulExecutor.register_stateful_operator": "self, name, state_class, *, meta",
    "thunder.extend:single_op_executor": """
        exc_name, op_name, fn, meta, *, version=None, replaces=None, tags=None, checker=None,
        execution_transform=None, grad_transform=None
    """,
    "thunder.extend:Refusal": "code, message, **facts",
    "thunder.extend:register_executor": "ex, *, default=False, replace=False",
    "thunder.extend:attach_transform": "module, transform",
    "thunder.extend:register_option": "name, type, default, doc",
    "thunder.extend:register_debug_option": "name, type, default, doc",
    "thunder.core.options:DebugOptions.register_option": "name, type, default, doc",
    "thunder.plugins:Option": "name, type, default, doc",
    "thunder.plugins:TransformSpec": "name, target",
    "thunder.core.trace:TraceCtx": "fn=None",
    "thunder.core.trace:TraceCtx.make_name": "self, name=None, *, prefix=None",
    "thunder.core.trace:TraceCtx.python": """
        self, print_depth=1, include_decorators=True, include_timing=True
    """,
    "thunder.core.symbol:Symbol.bind": "self, *args, output, subsymbols=(), **kwargs",
    "thunder.core.symbol:BoundSymbol.from_bsym_swap_proxies": """
        self, swap_map, skip_inputs=False, skip_output=False, skip_subsymbols=False
    """,
    "thunder:Proxy": "name=None, *, prefix=None, history=None, tags=()",
    "thunder:TensorProxy": """
        name=None, *, like=None, shape=None, device=None, dtype=None, requires_grad=None, grad=None,
        prefix=None, distparallel_type=None, history=None, tags=None
    """,
    "thunder:Proxy.replace_name": "self, name, *, disambiguate=False",
    "thunder.core.transforms:add_transform": "cfn, *, transform, disable_torch_autograd_support=False",
    "thunder.core.transforms:bsym_list_to_dag": "bsyms, *, producers=None, consumers=None",
    "thunder.core.transforms:visitor_transform": "trace, visit, *, provenance=None",
    "thunder.core.transforms:insert_inplace": "trace, idx, fn",
    "thunder.core.transforms:replace_inplace": "trace, idx, fn",
    "thunder.core.transforms:eval_trace": "trace, *args, **kwargs",
    "thunder.core.utils:find_producer_symbols": "trace, proxies, stop_proxies",
    "thunder.core.patterns:Pattern.match": "self, matcher, *, min_times=1, max_times=1",
    "thunder.core.transform_common:dce": "trace, needed_proxies=None",
    "thunder.core.vjp_utils:set_saved_for_backward_tensors": "trace, tensors",
    "thunder.core.rewrite:add_trace_output": "trace, proxy, subindex=None",
    "thunder.core.interpreter:interpret": "fn, *, lookaside=None, record_history=False",
    "thunder.executors.passes:del_last_used": "trace, *, clear_mutable_collections=False",
    "thunder.examine:examine": "fn, *args, show_call_stack=False, **kwargs",
    "thunder.examine:make_trace_dot": "trace, show_metadata=False",
    "thunder:Recipe": "plugins=None, interpreter=None",
    "thunder:ThunderModule.load_state_dict": "self, state_dict, strict=True, assign=False",
    "thunder:ThunderModule.named_parameters": "self, prefix='', recurse=True, remove_duplicate=True",
    "thunder.core.prims:check_tensor_shape_and_metadata": "t, shape, device, dtype, requires_grad",
    "thunder.core.prims:unpack_function_obj": "x, *, name='fn'",
    "thunder.core.prims:embedding": """
        a, weight, *, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
    """,
    "thunder.core.prims:iota": "length, *, start, step, device, dtype",
    "thunder.core.prims:full": "shape, value, *, device, dtype",
    "thunder.core.prims:uniform_philox": "shape, minval, maxval, *, device, dtype, seed, offset",
    "thunder.core.prims:copy_": "copy_from, copy_to, *, grad_enabled",
    "thunder.core.prims:topk": "a, k, dim, largest, sorted",
    "thunder.core.prims:index_put": "a, indices, values, accumulate",
    "thunder.core.prims:convolution": """
        a, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    """,
}
# fmt: on


def parameters_of(path):
    module, _, attribute = path.partition(":")
    member = attrgetter(attribute)(importlib.import_module(module))
    if isinstance(member, Symbol):
        member = member.meta
    return inspect.signature(member).parameters


@pytest.mark.parametrize("path", SIGNATURES)
def test_a_callable_takes_the_parameters_that_are_promised(path):
    promised = inspect.signature(eval(f"lambda {' '.join(SIGNATURES[path].split())}: None")).parameters
    actual = parameters_of(path)
    differing = {
        name: (str(parameter), str(actual.get(name)))
        for name, parameter in promised.items()
        if name not in actual
        or actual[name].kind != parameter.kind
        or parameter.default not in (parameter.empty, actual[name].default)
    }
    assert differing == {}
    ordered = [n for n, p in promised.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    assert list(actual)[: len(ordered)] == ordered
    required = [n for n, p in actual.items() if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    assert set(required) <= set(promised)
