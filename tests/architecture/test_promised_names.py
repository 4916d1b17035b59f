"""The names of the public contract: each resolves, or says which package has to provide it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
import torch

import thunder
import thunder_migration
from thunder.core import prims
from thunder.core.devices import Device
from thunder.core.patterns import Pattern
from thunder.core.symbol import Symbol
from thunder.core.utils import ProxyDict
from thunder.extend import FusionExecutor, OperatorExecutor, StatefulExecutor
from thunder.plugins import get_manager

# module → names
NAMES = {
    "thunder": """
        jit compile trace plan grad compile_data compile_stats last_traces last_backward_traces
        last_prologue_traces last_epilogue_traces cache_option cache_hits cache_misses
        last_recompile_reasons explain list_transforms last_compile_options last_interpreter_log
        last_interpreted_instructions print_last_interpreter_log set_execution_callback_file
        get_executor get_all_executors get_default_executors get_always_executors resolve_executors
        add_executor_lists pytorch_executor pythonex Proxy TensorProxy NumberProxy IntegerProxy
        FloatProxy ComplexProxy StringProxy AnyProxy TupleProxy ListProxy DictProxy TraceCtx
        ThunderModule CompileData CompileStats CacheEntry Transform Executor Recipe Plugin
        LanguageContext DebugOptions CACHE_OPTIONS SHARP_EDGES_OPTIONS bool8 uint8 int8 int16 int32
        int64 bfloat16 float16 float32 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2
        float8_e5m2fnuz complex32 complex64 complex128 core torch prims dtypes devices extend
        executors plugins transforms recipes examine testing dev_utils ThunderError UserError
        InvalidArgument UnknownOption NotCompiled NeverCalled UnknownExecutor ExecutorUnavailable
        RequirementNotMet RegistrationError OutsideTrace SameInputViolation RecompileError
        OperatorError UnsupportedProgram UnsupportedOperator DataDependentControlFlow SharpEdge
        MissingGradient NoExecutor PluginError TraceError InternalError GuardFailed ThunderWarning
        SharpEdgeWarning RecompileWarning
    """,
    "thunder.core.trace": """
        TraceCtx TraceTag TraceProvenance tracectx from_trace get_tracectx set_tracectx
        reset_tracectx is_tracing detached_trace
    """,
    "thunder.core.symbol": """
        Symbol BoundSymbol BoundSymbolTag bsym_header has_tags gather_tags
    """,
    "thunder.core.proxies": """
        Variable variableify unvariableify ProxyTag CONSTRAINT pyval pytype TensorProxy
        FutureTensorProxy CollectionProxy AnyProxy NumberProxy IntegerProxy StringProxy TupleProxy
        ListProxy DictProxy Proxy FloatProxy ComplexProxy
    """,
    "thunder.core.pytree": """
        tree_map tree_flatten tree_unflatten tree_iter tree_flatten_with_dataclass
        register_pytree_node_dataclass
    """,
    "thunder.core.transform_common": """
        Transform dce cse
    """,
    "thunder.core.transforms": """
        get_grad put_grad put_grads grad value_and_grad vjp register_grad add_transform
        bsym_list_to_dag Node toposort_bsym_dag TOPOSORT_ORDER visitor_transform VISIT_TYPE
        insert_inplace replace_inplace eval_trace comment_fusions noop
    """,
    "thunder.core.vjp_utils": """
        get_saved_for_backward_tensors set_saved_for_backward_tensors
    """,
    "thunder.core.module": """
        ThunderModule get_thunder_module
    """,
    "thunder.core.utils": """
        producers consumers producers_and_consumers find_producer_symbols ProxyDict
    """,
    "thunder.core.interpreter": """
        is_jitting make_opaque interpret
    """,
    "thunder.core.devices": """
        Device DeviceType to_device to_torch_device
    """,
    "thunder.core.dtypes": """
        dtype to_dtype to_torch_dtype float32
    """,
    "thunder.core.patterns": """
        Pattern
    """,
    "thunder.core.options": """
        DebugOptions CACHE_OPTIONS SHARP_EDGES_OPTIONS
    """,
    "thunder.core.errors": """
        ThunderError
    """,
    "thunder.executors.passes": """
        del_last_used transform_for_execution
    """,
    "thunder.executors.torchex": """
        no_autocast
    """,
    "thunder.core.rewrite": """
        get_checks add_trace_output trace_with_replaced_proxy_metadata
    """,
    "thunder.core.verify": """
        check_trace
    """,
    "thunder.dev_utils.check_trace": """
        check_trace
    """,
    "thunder.extend": """
        Executor OperatorExecutor FusionExecutor StatefulExecutor TemporaryExecutor ImplInfo Rank
        Refusal single_op_executor register_executor deregister_executor get_all_executors
        get_executor get_default_executors get_always_executors set_default_executors
        add_default_executor remove_default_executor set_always_executors add_always_executor
        remove_always_executor resolve_executors add_executor_lists attach_transform register_option
        register_debug_option device_profile FUEL_LEVEL
    """,
    "thunder.plugins": """
        hookimpl for_executor Unavailable DeviceProfile list_plugins disabled HOOK_API_VERSION
        ExecutorSpec TransformSpec Option
    """,
    "thunder.testing": """
        conformance transform_conformance ConformanceTests TransformConformanceTests
    """,
    "thunder.torch": """
        torchsymbol
    """,
    "thunder.examine": """
        examine get_fusions get_fusion_symbols make_trace_dot memory_calculation
    """,
    "thunder.examine.memory_calculation": """
        get_alloc_memory
    """,
    "thunder.core.prims": """
        PrimIDs OpTags
    """,
}

PRIMITIVES = """
    check_tensor_shape_and_metadata check_tensors check_none check_empty check_len check_keys
    check_set check_type check_instance check_literal_like check_number_type_and_value
    check_string_value check_slice_value check_same_object check_has_attr check_compare
    unpack_trivial unpack_sequence unpack_tuple unpack_list unpack_dict_key unpack_attr
    unpack_getitem unpack_parameter unpack_buffer unpack_submodule unpack_function_obj pack_buffer
    pack_attr pack_setitem pack_list construct_tuple dataclass_new numpy_array_to_torch_tensor
    python_return python_del python_print comment shape sink item get_grad put_grad
    convert_element_type device_put bitcast clone shallow_copy copy_ update_aliases stride_order
    full iota empty tensor_from_sequence uniform uniform_philox randn randint multinomial
    get_and_update_rng_state broadcast_in_dim cat flip pad reshape slice_prim squeeze transpose
    unfold view abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc
    erfcinv erfinv exp exp2 expm1 floor frexp imag isfinite lgamma log log10 log1p log2 ndtri
    neg py_abs real reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc add atan2
    bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div eq fmod ge gt
    le lt maximum minimum mul ne nextafter pow py_floordiv remainder sub zeta lerp where amax
    amin prod sum var var_mean std argmax argmin topk sort gather scatter scatter_add take
    take_along_axis index_add index_copy index_put copy_with_setitem matmul linear convolution
    embedding embedding_backward _grouped_mm
"""
#: primitives whose id is not their name in upper case
SHORT_IDS = {"python_return": "RETURN", "python_del": "DEL", "python_print": "PRINT", "slice_prim": "SLICE"}

#: paths that packages provide
OF_PACKAGES = ("thunder.executors.apexex",)

OP_TAGS = """
    SHAPE_OP REDUCTION_OP RANDOM_OP MATMUL_OP DEVICE_SYNC_OP DONT_DCE IN_PLACE CTX_MANAGER_ENTER_EXIT_OP
    DONT_RECOMPUTE_IN_BACKWARD
"""

#: object → its attributes
MEMBERS = {
    "trace": """
        fn args kwargs bound_symbols output tags names has_name add_name make_name make_object_name
        push_scope pop_scope peek_scope scopes add_bound_symbol get_provenance set_provenance python
        python_ctx python_callable save_trace mark_complete
    """,
    "symbol": """
        name id meta is_prim is_fusion tags executor module python_printer python_impl bind
        normalize
    """,
    "bound symbol": """
        sym args kwargs output subsymbols source_filename source_positions tags header from_bsym
        from_bsym_swap_proxies flat_args flat_outs flat_proxy_args flat_proxy_outs
        flat_variableified_proxy_args flat_variableified_proxy_outs has_input rhs python
    """,
    "tensor proxy": """
        shape ndim device dtype true_dtype requires_grad grad numel stride name tags replace
        replace_name type_string
    """,
    "number proxy": """
        value python_type constraint make_static_constrained make_constrainable
        is_static_constrained is_dynamic known_value
    """,
    "device": """
        type devicetype index device_str
    """,
    "statistics": """
        calls cache_hits cache_misses interpreter_cache last_traces last_prologue_traces
        last_epilogue_traces last_backward_traces last_computation last_prologue
        last_recompile_reasons last_interpreted_instructions last_interpreter_log stage_times
        last_cache_lookup_time last_trace_construction_time last_prologue_transformation_time
        last_prologue_execution_time last_computation_execution_time
    """,
    "settings": """
        fn is_module langctx executors_list cache_option sharp_edges disable_torch_autograd_support
        compile_options debug_options transforms
    """,
    "cache entry": """
        prologue_fn prologue_traces computation_fn computation_traces backward_fn backward_traces
        epilogue_fn epilogue_traces ledger
    """,
    "ledger": """
        to_json rows why_not
    """,
    "row of the ledger": """
        index trace symbol outputs claimed_by via refusals source
    """,
    "compiled module": """
        parameters named_parameters named_buffers get_parameter get_buffer set_buffer get_submodule
        state_dict load_state_dict original_state_dict load_original_state_dict train eval overrides
        override release_original to cuda half requires_grad_ training
    """,
    "executor": """
        name version rank implmap opmap can_execute can_fuse can_execute_or_fuse
        get_execution_transform get_grad_transform register_operator register_implementation
    """,
    "fusion executor": """
        register_supported register_temporary_operation fusion_pass fuse get_fuel set_fuel can_fuse
    """,
    "stateful executor": """
        register_stateful_operator
    """,
    "transform": """
        validate transform_module transform_traces_pre_prologue transform_joint_trace
        transform_trace_pre_execution transform_trace_post_optimization
        transform_state_dict_for_submodule reverse_transform_state_dict_for_submodule
        configure_pipeline cache_state stateless
    """,
    "plan": """
        traces backward_traces prologue_traces explain
    """,
    "dictionary of proxies": """
        get append get_by_name
    """,
    "pattern": """
        match
    """,
    "debug options": """
        register_option list_options check_traces check_guards record_interpreter_history
        show_interpreter_progress
    """,
    "error": """
        where facts hint
    """,
}


@pytest.fixture(autouse=True)
def _names_of_lightning_thunder() -> Iterator[None]:
    """Register the plugin that adds them."""
    with get_manager().temporary(thunder_migration, name="migration-of-promises"):
        yield


@pytest.fixture(scope="module")
def objects():
    compiled = thunder.jit(lambda x, y: x * y)
    compiled(torch.ones(1, requires_grad=True), torch.ones(1))
    trace = thunder.last_traces(compiled)[-1]
    ledger, statistics = thunder.explain(compiled), thunder.compile_stats(compiled)
    with thunder.core.trace.detached_trace():
        number = thunder.IntegerProxy(value=3)
    return {
        "trace": trace,
        "symbol": trace.bound_symbols[0].sym,
        "bound symbol": trace.bound_symbols[0],
        "tensor proxy": trace.args[0],
        "number proxy": number,
        "device": Device("cpu"),
        "statistics": statistics,
        "settings": thunder.compile_data(compiled),
        "cache entry": statistics.interpreter_cache[0],
        "ledger": ledger,
        "row of the ledger": ledger.rows[0],
        "compiled module": thunder.jit(torch.nn.Linear(1, 1)),
        "executor": OperatorExecutor("promised"),
        "fusion executor": FusionExecutor,
        "stateful executor": StatefulExecutor,
        "transform": thunder.Transform,
        "plan": thunder.plan(lambda x: x + 1, torch.ones(1)),
        "dictionary of proxies": ProxyDict,
        "pattern": Pattern,
        "debug options": thunder.DebugOptions(),
        "error": thunder.ThunderError("x"),
    }


@pytest.mark.parametrize("path", NAMES)
def test_a_module_has_the_names_that_are_promised(path):
    module = importlib.import_module(path)
    assert [name for name in NAMES[path].split() if not hasattr(module, name)] == []


@pytest.mark.parametrize("kind", MEMBERS)
def test_an_object_has_the_attributes_that_are_promised(objects, kind):
    assert [name for name in MEMBERS[kind].split() if not hasattr(objects[kind], name)] == []


@pytest.mark.parametrize("name", PRIMITIVES.split())
def test_a_primitive_is_a_symbol_with_its_id(name):
    symbol = getattr(prims, name)
    assert isinstance(symbol, Symbol)
    assert symbol.id == getattr(prims.PrimIDs, SHORT_IDS.get(name, name.upper()))


def test_the_tags_of_operators_are_there():
    assert [name for name in OP_TAGS.split() if not hasattr(prims.OpTags, name)] == []


@pytest.mark.parametrize("path", OF_PACKAGES)
def test_what_a_package_provides_says_so(path):
    with pytest.raises(ModuleNotFoundError, match=f"Install a package that provides {path}: "):
        importlib.import_module(path)


def test_every_operator_of_the_language_is_an_attribute_and_no_module():
    language = importlib.import_module("thunder.torch")
    assert language.SYMBOLS.keys() <= set(dir(language))
    assert [
        name for name in dir(language) if name in language.SYMBOLS and not callable(getattr(language, name))
    ] == []
