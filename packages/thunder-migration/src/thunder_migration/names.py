"""The table of the names that users of lightning-thunder write: what each is here, or what replaces it.

`NAMES` is module → name → `Alias` or `Replaced`; a module that has no file in thunder exists through the
table. `ABSENT_MODULES` are modules without a counterpart. Names that both projects have are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from thunder.plugins import Alias, Replaced

__all__ = ["ABSENT_MODULES", "NAMES"]

Row = Mapping[str, Alias | Replaced]


def _aliases(module: str, names: str) -> dict[str, Alias | Replaced]:
    return {name: Alias(f"{module}:{name}") for name in names.split()}


def _replaced(advice: str, names: str) -> dict[str, Alias | Replaced]:
    return {name: Replaced(advice) for name in names.split()}


_CHECKS = _aliases(
    "thunder_migration.checks",
    "check check_type check_types check_valid_length check_valid_shape check_valid_permutation "
    "check_no_duplicates check_same_shape check_same_device check_same_dtype same_shape canonicalize_dim "
    "canonicalize_dims",
)
_DTYPE_PREDICATES = _aliases(
    "thunder_migration.dtype_groups",
    "is_boolean_dtype is_unsigned_dtype is_signedinteger_dtype is_integer_dtype is_nonboolean_integer_dtype "
    "is_exact_dtype is_low_precision_dtype is_float_dtype is_complex_dtype is_inexact_dtype is_numbertype "
    "is_dtype is_weak_dtype dtype_to_numbertype are_same_dtypes corresponding_real_dtype "
    "corresponding_complex_dtype",
)
_DTYPE_GROUPS = _aliases(
    "thunder_migration.dtype_groups",
    "boolean_dtypes integer_dtypes exact_dtypes float_dtypes float_8bit_dtypes float_math_dtypes "
    "complex_dtypes inexact_dtypes low_precision_dtypes all_numbertypes all_dtypes_and_numbertypes "
    "resolve_dtypes to_strong_dtype numbertype_to_dtype",
) | {
    "floating": Alias("thunder_migration.dtype_groups:float_dtypes"),
    "complexfloating": Alias("thunder_migration.dtype_groups:complex_dtypes"),
    "inexact": Alias("thunder_migration.dtype_groups:inexact_dtypes"),
    "exact": Alias("thunder_migration.dtype_groups:exact_dtypes"),
    "signedinteger": Alias("thunder_migration.dtype_groups:signed_integer_dtypes"),
    "unsignedinteger": Alias("thunder_migration.dtype_groups:unsigned_integer_dtypes"),
    "bool_": Alias("thunder_migration.dtype_groups:boolean_dtypes"),
    "inexactdtype": Alias("thunder_migration.dtype_groups:inexact_dtypes"),
    "exactdtype": Alias("thunder_migration.dtype_groups:exact_dtypes"),
}
_WEAK = _replaced(
    "dtypes are never weak here; numbers in a program promote as in torch. Use the dtype without the last _",
    "bool8_ uint8_ int8_ int16_ int32_ int64_ bfloat16_ float16_ float32_ float64_ complex32_ complex64_ "
    "complex128_ weak_dtypes strong_dtypes",
)
_AUTOCAST = "thunder.transforms.autocast.autocast(f, dtype), or torch.autocast in the program"
_COMPILE_DATA = (
    _aliases("thunder_migration.current_compile", "get_compile_data get_compile_option using_symbolic_values")
    | _replaced(
        "thunder.compile_data(f) and thunder.compile_stats(f) have both; no code of a package sets them",
        "compile_data_and_stats set_compile_data_and_stats reset_compile_data_and_stats",
    )
    | _replaced("get_compile_data().cache_option is the mode", "get_cache_option using_static_caching")
)
_CONVERSIONS = _replaced(
    "write Python: a comprehension, zip(..., strict=True), functools.partial or tree_flatten",
    "safe_map safe_map_flat safe_zip unzip2 unzip3 sequencify flatten_func partial_map dict_join list_join",
)
_PROMOTION = _replaced(
    "call the operator of thunder.torch, which promotes as torch does; torch.promote_types has the rule",
    "elementwise_type_promotion ELEMENTWISE_TYPE_PROMOTION_KIND get_computation_dtype higher_dtype "
    "can_safe_cast_to can_safe_cast_number_to const_as",
)
_PRINTING = _replaced(
    "the text of a trace is trace.python(), of one statement bsym.python(indent=0)",
    "prettyprint to_printable is_printable module_shortname Printable Positions",
) | _replaced(
    "inspect.signature(f) has the parameters of a function, trace.args the arguments of a trace",
    "SigInfo get_siginfo",
)
_INLINE = _replaced(
    "thunder.vjp(f) and thunder.grad(f) return functions to call; no transform has to be inlined", "inline"
)
_DIFFERENTIATION = (
    _aliases(
        "thunder_migration.gradient_registration", "register_augmented_forward register_backward VJPDual"
    )
    | _aliases("thunder_migration.reduced_dimensions", "mean_backward sum_backward restore_reduced_dims")
    | _aliases("thunder.core.transform", "Transform")
    | _replaced(
        "the checker of register_implementation(op, ..., checker=, grad_transform=) decides where a rule "
        "applies",
        "register_augmented_forward_with_checker is_constant_for_vjp",
    )
    | _replaced(
        "thunder.core.vjp_utils.set_saved_for_backward_tensors(trace, tensors) changes what is saved",
        "_update_forward_with_new_saved_for_backward _update_backward_with_new_saved_for_backward "
        "recompute_saved_for_backward",
    )
    | _INLINE
    | _replaced("thunder.vmap and thunder.jvp", "jvp vmap")
    | _replaced("toposort_bsym_dag(roots, order) returns the calls in order", "dag_to_bsym_list")
    | _replaced(
        "thunder.Transform is the one class: its hooks take the place of the others",
        "AdditionalTransform PostOptimizationTransform EarlyTransform",
    )
    | _replaced("bsym.subsymbols are the calls of a decomposition", "unwrap_one_level_of_subsymbols")
    | _replaced(
        "a gradient rule is registered by register_grad, or by register_augmented_forward and "
        "register_backward; a rule that does not apply is left to the checker of an executor",
        "NoPullback augmented_forward_impls backward_impls nondifferentiable_vjp_symbols",
    )
    | _replaced(
        "the stages autograd and partition make forward and backward; a transform changes them by "
        "transform_joint_trace and transform_trace_pre_execution",
        "forward_and_backward_from_trace split_forward_backward augmented_forward_pass backward_pass "
        "ForwardBackwardTraces unpack_inputs",
    )
)
_RETURNS = _replaced(
    "trace.output is what a trace returns, and its arguments are trace.args",
    "wrap_return_value_together_with_arguments unwrap_return_value",
)
_REDUNDANCY = _replaced(
    "thunder.core.transform_common.cse and dce are the clean-up passes",
    "replace_redundant_inputs remove_duplicate_number_proxies cse_single_bsym order_proxies "
    "NON_FUNCTIONAL_OPS",
)
_EXECUTOR_GETTERS = _replaced(
    "thunder.get_executor(name) returns an executor, or raises with the reason why it cannot be used",
    "get_torch_executor get_nvfuser_executor get_torchcompile_executor nvfuser_available "
    "triton_available get_always_executors",
)
_ONE_TRACE = Replaced("thunder.executors.passes.transform_for_execution(trace, executors) returns one trace")
_THUNDER_CALLS: Row = {
    "CompileData": Alias("thunder:CompileData"),
    "CompileStats": Alias("thunder:CompileStats"),
    "trace": Alias("thunder:trace"),
    "transform_for_execution": _ONE_TRACE,
}

NAMES: Final[dict[str, Row]] = {
    "thunder": _replaced(
        "thunder.last_interpreter_log(f) has the log, with "
        "debug_options=DebugOptions(record_interpreter_history=True)",
        "last_interpreted_history",
    )
    | _replaced("the ledger has them: thunder.explain(f)", "get_auto_registered_torch_op_names")
    | _replaced("thunder.cache_option(f) returns the mode", "cache_mode")
    | _replaced(_AUTOCAST, "autocast")
    | _aliases(
        "thunder.extend",
        "add_default_executor remove_default_executor set_default_executors add_always_executor "
        "remove_always_executor set_always_executors",
    )
    | _replaced(
        "thunder.UnsupportedProgram is raised for what cannot be guarded or replayed; "
        "sharp_edges='allow' accepts it and 'warn' warns",
        "ThunderSharpEdgeError ThunderSharpEdgeWarning",
    )
    | _replaced("thunder.get_all_executors() returns them", "list_executors"),
    "thunder.functional": {"jit": Alias("thunder:jit")},
    "thunder.common": _THUNDER_CALLS,
    "thunder.core.baseutils": _CHECKS
    | _CONVERSIONS
    | _replaced("fields after the third are keyword-only: dataclass(frozen=True)", "default_dataclass_params")
    | _replaced(
        "test isinstance(x, Proxy | TensorProxy), isinstance(x, NumberProxy), isinstance(x, BoundSymbol)",
        "ProxyInterface TensorProxyInterface NumberProxyInterface BoundSymbolInterface",
    )
    | _replaced("fn.__qualname__", "extract_callable_name")
    | _replaced("test isinstance(x, list | tuple | dict | set)", "is_collection")
    | _replaced("use functools.cache", "run_once")
    | _replaced("print with a library for terminals, such as rich", "init_colors init_windows_terminal"),
    "thunder.core.utils": _CHECKS
    | _DTYPE_PREDICATES
    | _CONVERSIONS
    | _PROMOTION
    | _aliases("thunder_migration.regions", "OrderedSet")
    | _aliases("thunder.core.dtypes", "to_dtype")
    | {
        "get_numberlike_type": Alias("thunder.core.proxies:pytype"),
        "get_numberlike_value": Alias("thunder.core.proxies:pyval"),
        "langctx": Alias("thunder_migration.languages:langctx"),
    }
    | _replaced("use types.MappingProxyType", "FrozenDict")
    | _aliases("thunder.core.pytree", "tree_flatten tree_unflatten tree_map")
    | _replaced(
        "DebugOptions(check_traces=True) turns checks on", "enable_debug_asserts debug_asserts_enabled"
    ),
    "thunder.core.langctxs": _aliases(
        "thunder_migration.languages", "Languages langctx get_langctx get_default_langctx"
    )
    | _replaced("write `with langctx(language):`", "set_langctx reset_langctx")
    | _replaced(
        "a LanguageContext is passed as langctx= of thunder.jit; its table `functions` has what torch's "
        "functions and methods become",
        "register_langctx resolve_method",
    ),
    "thunder.core.compile_data": _COMPILE_DATA,
    "thunder.core.options": _replaced(
        "thunder.jit interprets every program; thunder.trace()(f, *args) calls it with proxies",
        "INTERPRETATION_OPTIONS resolve_interpretation_option",
    ),
    "thunder.core.dtypes": _DTYPE_PREDICATES | _DTYPE_GROUPS | _WEAK,
    "thunder.core.devices": {
        "cpu": Alias("thunder_migration.device_names:cpu"),
        "all_devicetypes": Alias("thunder_migration.device_names:all_devicetypes"),
        "devicetype_string": Alias("thunder_migration.device_names:devicetype_string"),
        "device_from_string": Alias("thunder.core.devices:to_device"),
    }
    | _replaced(
        "torch.cuda.device_count() counts the devices of this machine; thunder.plan needs none",
        "available_devices",
    ),
    "thunder.core.interpreter": _aliases("thunder_migration.interpreter_logs", "last_interpreter_log")
    | {
        "last_interpreted_instructions": Alias(
            "thunder_migration.interpreter_logs:last_interpreted_instructions",
            "it returns their number, not a list",
        ),
        "print_last_interpreter_log": Alias("thunder:print_last_interpreter_log"),
    }
    | _replaced("is_jitting() returns whether the caller is interpreted", "is_jitting_with_raise")
    | _replaced(
        "an entry of the log is a tuple (depth, 'file:line', operation, argument)",
        "InterpreterLogItem print_interpreter_log print_to_log",
    )
    | _replaced(
        "lookasides= of thunder.jit, or the hook thunder_lookasides, replaces a function by code that is "
        "traced in its place; replaces= of register_operator by an operator",
        "register_interpreter_hook interpreter_needs_wrap default_lookaside",
    ),
    "thunder.core.jit_ext": _replaced(
        "thunder.jit compiles functions and modules",
        "thunder_general_jit minimal_thunder_jit thunder_functional_jit",
    )
    | _replaced(
        "lookasides= of thunder.jit, or the hook thunder_lookasides, replaces a function by code that is "
        "traced in its place; replaces= of register_operator by an operator",
        "register_general_jit_lookaside get_general_jit_lookaside",
    ),
    "thunder.core.proxies": _replaced(
        "the constructors of the classes: TensorProxy(name, like=tensor), NumberProxy(name, value)",
        "tensorproxy numberproxy proxy futuretensorproxy",
    )
    | _replaced("a package that provides thunder.distributed has the enum", "DistParallelType")
    | _replaced(
        "trace.make_name() takes a fresh name, trace.is_free(name) says whether it is free",
        "make_proxy_name is_proxy_name_available",
    )
    | _replaced("thunder.trace makes a proxy of each tensor", "is_proxyable")
    | _replaced("a tensor of another class is traced as a plain TensorProxy", "SubclassTensorProxy"),
    "thunder.core.vjp_utils": _replaced(
        "thunder.vjp(f) differentiates; a rule is registered by thunder.core.transforms.register_grad",
        "make_aug_forward_and_backward",
    ),
    "thunder.core.symbol": _replaced(
        "leave python_printer= out: it is the way in which a call is printed",
        "default_python_printer default_python_impl",
    )
    | _replaced("bsym.rhs is hashable, for common subexpressions", "BoundSymbolRHS")
    | _replaced("test isinstance(x, Symbol)", "is_traceable"),
    "thunder.core.prims": _replaced(
        "OperatorExecutor.register_operator(name, meta=..., fn=...) defines a primitive of a package",
        "make_prim register_method",
    )
    | _replaced(
        "unpack_function_obj unpacks the compiled module, and unpack_parameter and unpack_buffer its tensors "
        "and those that override them",
        "unpack_thunder_module",
    )
    | _replaced(
        "a prologue always checks the ambient state of torch; check_state(read, value) checks another state",
        "unpack_cache_info",
    )
    | _replaced("check_tensor_shape_and_metadata", "assert_tensor_metadata")
    | _replaced("check_compare(a, op, b)", "assert_compare")
    | _replaced("check_literal_like(x, value)", "check_bool_conversion")
    | _replaced(
        "unpack_getitem, unpack_dict_key, unpack_global and the like each fetch one value",
        "python_vars unpack_empty_dict unpack_iter unpack_next unpack_key",
    )
    | _replaced("thunder.core.rewrite.add_input adds an input to a computation", "exogenous_like")
    | {"Ops": Alias("thunder.core.prims:PrimIDs")},
    "thunder.core.trace": {
        "_set_execution_file": Alias("thunder:set_execution_callback_file"),
    }
    | _replaced(
        "thunder.last_prologue_traces, last_traces and last_epilogue_traces have the three programs",
        "TraceResults",
    )
    | _replaced("thunder.core.proxies.Variable", "VariableInterface"),
    "thunder.core.transforms": _DIFFERENTIATION | _replaced(_AUTOCAST, "autocast"),
    "thunder.core.transform_common": _RETURNS | _REDUNDANCY,
    "thunder.core.pytree": _replaced(
        "register_pytree_node_dataclass registers a class of yours", "OPTREE_NAMESPACE"
    ),
    "thunder.core.codeutils": _PRINTING,
    "thunder.core.patterns": _aliases("thunder_migration.bound_names", "bind_names")
    | _replaced(
        "thunder.core.utils.find_producer_symbols returns what a value is computed from", "numbered_ancestors"
    ),
    "thunder.core.recipe": _aliases("thunder.recipes", "Recipe Plugin")
    | _aliases("thunder.plugins", "Lookaside"),
    "thunder.executors": _EXECUTOR_GETTERS | {"transform_for_execution": _ONE_TRACE},
    "thunder.executors.utils": _aliases("thunder_migration.regions", "Region")
    | _replaced("wrap an autograd.Function as two operators: docs/executors.md", "Context set_saved_tensors"),
    "thunder.executors.sdpaex": _aliases("thunder_migration.attention_executor", "sdpa_ex")
    | _replaced(
        "sdpa_ex is the executor; its operators are sdpa_ex.opmap",
        "sdpea_gradfwd sdpea_bwd sdpfa_gradfwd sdpfa_bwd sdpaex_checker",
    ),
    "thunder.executors.data_dependent_partition": _aliases("thunder_migration.regions", "fuse_bound_symbols")
    | {"Node": Alias("thunder_migration.regions:Group")}
    | _replaced("thunder.core.transforms.bsym_list_to_dag returns the graph", "Graph"),
    "thunder.executors.passes": _replaced(
        "the stages of a compile claim and fuse: thunder.executors.passes.transform_for_execution does both",
        "transform_for_operator_executor_execution fuse_fusions update_fusion_call_ctx",
    ),
    "thunder.extend": _replaced(
        "pass a list of executors; an executor for one compile is TemporaryExecutor()", "AdHocExecutor"
    ),
    "thunder.torch": _aliases(
        "thunder_migration.torch_language", "TensorLike NumberLike DeviceLike dtypeLike register_function"
    )
    | _aliases("thunder.core.dtypes", "to_torch_dtype to_dtype")
    | _aliases("thunder.core.devices", "to_torch_device to_device")
    | {
        "to_thunder_dtype": Alias("thunder.core.dtypes:to_dtype"),
        **{
            name: Alias(f"torch:{name}") for name in ("is_complex", "is_floating_point", "is_tensor", "numel")
        },
    }
    | _aliases("thunder_migration.torch_language", "checkpoint dim is_cpu is_cuda size stride")
    | _replaced("write a[key]", "getitem")
    | _replaced("write a.device, which is a torch.device in a program", "device")
    | _replaced("write a.ndim", "ndim")
    | _replaced("write torch.rand, or thunder.core.prims.uniform in a meta function", "uniform uniform_like")
    | _replaced("write torch.conv1d, conv2d or conv3d, or thunder.core.prims.convolution", "convolution")
    | _replaced("write torch.floor_divide, or torch.div(a, b, rounding_mode='trunc')", "trunc_divide")
    | _replaced("write torch.autocast in the program", "autocast_enter autocast_exit")
    | _replaced(
        "write torch.nn.functional.scaled_dot_product_attention, or ltorch.scaled_dot_product_attention",
        "sdpa grad_forward_scaled_dot_product_efficient_attention "
        "scaled_dot_product_efficient_attention_backward",
    )
    | _replaced("write the torch function; its gradient is that of the row", "log_softmax_backward")
    | _replaced("write `with thunder.core.langctxs.langctx('torch'):`", "torchctx TorchCtx")
    | _replaced(
        "thunder.core.langctxs.resolve_language('torch').functions", "_torch_to_thunder_function_map"
    ),
    "thunder.extend:Executor": _replaced(
        "register_operator(name, meta=..., fn=...) defines an operator and returns its symbol",
        "register_symbol",
    )
    | _replaced("the functions that operators replace are executor.replacements", "_lookasides")
    | _replaced("the operator that a package registers is executor.opmap[name]", "_opmap"),
    "thunder.torch.langctx": _replaced(
        "torchsymbol(..., methods=(name,)) adds a method of tensors", "register_method TorchCtx"
    ),
    "thunder.core.module:ThunderModule": {
        "_overrides_parameters": Alias("thunder_migration.overridden_parameters:overrides_parameters"),
        "_overrides_buffers": Alias("thunder_migration.overridden_parameters:overrides_buffers"),
        "no_sync": Replaced("a package that provides thunder.distributed has data parallelism"),
        "_get_shared_names": Replaced("named_parameters(remove_duplicate=False) has every name of a tensor"),
        "_additional_param_names": Replaced("the overriding tensors are module.overrides"),
        "_lc_cd": Replaced("thunder.compile_data(module)"),
        "_lc_cs": Replaced("thunder.compile_stats(module)"),
        "_lc_transforms": Replaced("thunder.list_transforms(module)"),
    },
    "thunder.dev_utils": _replaced(
        "thunder.transforms.DebugTransform, NvtxProfileTransform, ProfileTransform and NonFiniteDetector",
        "NvtxProfileTransform debug_transform DebugTransform utils benchmark export_stateful_ex_transform",
    ),
    "thunder.dev_utils.nvtx_profile_transform": _aliases("thunder.transforms", "NvtxProfileTransform"),
    "thunder.transforms.cpu_offloading": _aliases("thunder.transforms", "CPUOffloading"),
    "thunder.transforms.qlora": _aliases("thunder.transforms", "LORATransform"),
    "thunder.recipes": _replaced("Recipe is the class to subclass, or to fill in", "BaseRecipe")
    | _replaced("thunder.compile(model) finds the recipe of the model's class", "HFTransformers"),
    "thunder.plugins": _replaced(
        "thunder.compile(model, plugins=...) takes plugins of recipes by name: 'ddp', 'fsdp', 'fp8', "
        "'quantize-int4', 'reduce-overhead', where a package provides it",
        "DDP FSDP FP8 QuantizeInt4 ReduceOverhead register_plugin get_plugin get_plugin_names",
    ),
    "thunder.examine": _replaced("get_fusions(trace) returns the fusions, for a look at each", "warn_fusions")
    | _replaced(
        "fusions of nvFuser are the values of thunder.examine.get_fusions(trace)",
        "get_nvfuser_fusion_definition get_nvfuser_repro",
    ),
    "thunder.dev_utils.check_trace": {"check_trace": Alias("thunder.core.verify:check_trace")},
}

_LANGUAGE = "write torch, thunder.torch (`import thunder.torch as ltorch`) or thunder.core.prims"

ABSENT_MODULES: Final = {
    "thunder.clang": Replaced(f"there is no core language; {_LANGUAGE}"),
    "thunder.numpy": Replaced(f"there is no language of NumPy; {_LANGUAGE}"),
    "thunder.core.rematerialization": Replaced(
        "the option rematerialization= of thunder.jit says what a backward computes again"
    ),
    "thunder.core.functionalization": Replaced(
        "every compile functionalises; there is no pass to call or to turn off"
    ),
    "thunder.core.update_aliases": Replaced("every compile functionalises; no aliases have to be updated"),
    "thunder.core.trace_interpreter": Replaced("thunder.core.transforms.eval_trace records a trace again"),
    "thunder.core.vjp": Replaced("thunder.vjp(f)"),
    "thunder.core.script": Replaced("thunder.jit interprets the byte code of programs"),
    "thunder.core.profile": Replaced(
        "thunder.compile_stats(f).stage_times has the times of a compile; torch.profiler measures a call"
    ),
    "thunder.executors.torch_autograd": Replaced(
        "each compile connects forward and backward to torch's autograd; a result's grad_fn is the node"
    ),
    "thunder.executors.triton_utils": Replaced(
        "ExecutorSpec(..., requires=('triton',)) declares what an executor needs"
    ),
    "thunder.langctxs": Replaced("thunder.core.langctxs"),
    "thunder.tests.framework": Replaced("pytest.mark.parametrize over the executors of thunder.get_executor"),
    "thunder.tests.make_tensor": Replaced("torch.testing.make_tensor"),
    "thunder.tests.opinfos": Replaced("thunder.testing.conformance has samples of operators for executors"),
    "thunder.tests.llama2_model": Replaced("thunder.tests.litgpt_model.GPT.from_name('llama2-like')"),
    "thunder.dynamo.utils": Replaced("thunder.dynamo has SplitReason, SplitReasonType and SubgraphInfo"),
    "thunder.dynamo.compiler": Replaced("thunder.dynamo has ThunderCompiler and thunderfx"),
    "thunder.dynamo.splitter": Replaced("subgraph_infos of thunderfx's result has the parts of each graph"),
    "thunder.dynamo.report": Replaced("thunderfx(f).explain() has the parts, their cuts and their ledgers"),
    "thunder.dynamo.benchmark_utils": Replaced("torch.utils.benchmark measures the result of thunderfx"),
    "thunder.distributed.transforms": Replaced(
        "thunder.distributed has ddp, fsdp, DDPTransform and FSDPTransform"
    ),
    "thunder.distributed.tensor_parallel": Replaced("thunder.distributed has column_parallel, row_parallel"),
    "thunder.distributed.utils": Replaced("fsdp(model, ...) chooses when collectives start and are awaited"),
    "thunder.recipes.base": Replaced("thunder.recipes.Recipe"),
    "thunder.recipes.hf_transformers": Replaced(
        "thunder.compile(model) finds the recipe of the model's class"
    ),
    "thunder.transforms.utils": Replaced("thunder.core.rewrite has what transforms of traces need"),
    "thunder.transforms.autocast.AutocastTransform": Replaced("autocast(f, dtype) of this module"),
    "thunder.benchmarks.utils": Replaced("thunder.benchmarks.targets has backward_only"),
    "thunder.benchmarks.benchmark_litgpt": Replaced("python -m thunder_benchmarks prints tables of models"),
    "thunder.benchmarks.run_benchmark": Replaced("torch.utils.benchmark, or python -m thunder_benchmarks"),
}
