"""The names of lightning-thunder mean here what they mean there."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch

import thunder
import thunder.torch as ltorch
import thunder_migration
from thunder.core import devices, dtypes, prims, utils
from thunder.core.interpreter import interpret
from thunder.core.proxies import TensorProxy
from thunder.executors.passes import del_last_used
from thunder.extend import OperatorExecutor, Refusal, register_option
from thunder.plugins import get_manager

with get_manager().temporary(thunder_migration, name="migration-of-imports"):
    from thunder.executors.data_dependent_partition import fuse_bound_symbols
    from thunder.executors.sdpaex import sdpa_ex
    from thunder.executors.utils import Region

    from thunder.core.compile_data import get_compile_data, get_compile_option, using_symbolic_values
    from thunder.core.interpreter import last_interpreted_instructions, last_interpreter_log
    from thunder.core.langctxs import Languages, get_langctx, langctx, resolve_language
    from thunder.core.patterns import bind_names
    from thunder.core.transforms import (
        VJPDual,
        mean_backward,
        register_augmented_forward,
        register_backward,
        sum_backward,
    )


def proxy(*shape, dtype=torch.float32, device="cpu"):
    with thunder.core.trace.detached_trace():
        return TensorProxy(shape=shape, dtype=dtype, device=device)


# -- checks and dtypes ---------------------------------------------------------------------------------------


def test_check_raises_what_its_arguments_say():
    utils.check(True, lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="three"):
        utils.check(False, lambda: "three")
    with pytest.raises(KeyError, match="three"):
        utils.check(False, lambda: "three", KeyError)


def test_checks_of_tensors_raise_where_they_differ():
    utils.check_same_shape(proxy(2, 3), proxy(2, 3), 1.0)
    utils.check_same_device(proxy(2), proxy(3), 2)
    assert utils.check_same_dtype(proxy(2), 1.0, proxy(3)) == (float, dtypes.float32)
    with pytest.raises(RuntimeError, match="the shapes differ"):
        utils.check_same_shape(proxy(2), proxy(3))
    with pytest.raises(RuntimeError, match="the devices differ: cpu, meta"):
        utils.check_same_device(proxy(2), proxy(2, device="meta"))
    with pytest.raises(RuntimeError, match="is a type of float, not of <class 'int'>"):
        utils.check_same_dtype(proxy(2), 1)


def test_dimensions_are_counted_from_the_front():
    assert utils.canonicalize_dim(3, -1) == 2
    assert utils.canonicalize_dims(3, (-1, 0)) == (2, 0)
    assert utils.canonicalize_dim(0, -1) == 0
    with pytest.raises(IndexError, match="dimension 3 is out of range for rank 3"):
        utils.canonicalize_dim(3, 3)
    utils.check_valid_permutation(3, (2, 0, 1))
    with pytest.raises(ValueError, match="is not a permutation"):
        utils.check_valid_permutation(3, (0, 0, 1))
    with pytest.raises(RuntimeError, match="a dimension occurs twice"):
        utils.check_no_duplicates((0, 0))


@pytest.mark.parametrize("d", dtypes.all_dtypes, ids=repr)
def test_groups_and_predicates_of_dtypes_agree_with_torch(d):
    t = dtypes.to_torch_dtype(d)
    assert (d in dtypes.float_dtypes) == dtypes.is_float_dtype(d) == t.is_floating_point
    assert (d in dtypes.complex_dtypes) == dtypes.is_complex_dtype(t) == t.is_complex
    assert dtypes.is_inexact_dtype(d) == (t.is_floating_point or t.is_complex)
    assert dtypes.is_exact_dtype(d) != dtypes.is_inexact_dtype(d)
    assert dtypes.is_signedinteger_dtype(d) == (t.is_signed and d in dtypes.exact_dtypes)
    assert dtypes.dtype_to_numbertype(d) in (bool, int, float, complex)


def test_types_of_numbers_are_dtypes_too():
    assert dtypes.is_float_dtype(float)
    assert dtypes.is_exact_dtype(bool)
    assert dtypes.is_boolean_dtype(bool)
    assert dtypes.is_integer_dtype(int)
    assert not dtypes.is_nonboolean_integer_dtype(bool)
    assert dtypes.are_same_dtypes(torch.float32, dtypes.float32)
    assert not dtypes.are_same_dtypes(float, dtypes.float32)
    assert dtypes.corresponding_real_dtype(torch.complex64) is dtypes.float32


def test_groups_resolve_to_dtypes():
    assert dtypes.resolve_dtypes((dtypes.floating, dtypes.bool8)) == dtypes.float_dtypes | {dtypes.bool8}
    assert dtypes.resolve_dtypes((dtypes.dtype,)) == set(dtypes.all_dtypes)


def test_groups_are_classes_of_dtypes_and_sets():
    for d in dtypes.all_dtypes:
        t = dtypes.to_torch_dtype(d)
        assert isinstance(d, dtypes.inexactdtype) == (t.is_floating_point or t.is_complex)
        is_exact = isinstance(d, (dtypes.signedinteger, dtypes.unsignedinteger, dtypes.bool_))
        assert is_exact == (d in dtypes.exact)
        assert is_exact != isinstance(d, dtypes.floating | dtypes.complexfloating)
        assert isinstance(d, dtypes.bool_) == (t is torch.bool)
    assert not isinstance(torch.float32, dtypes.floating)
    assert not isinstance([], dtypes.floating)
    assert dtypes.float_dtypes >= dtypes.float_math_dtypes
    assert dtypes.inexact == set(dtypes.floating) | set(dtypes.complexfloating)
    assert len({dtypes.inexact, dtypes.inexactdtype}) == 1


@pytest.mark.parametrize("x", [torch.ones(2), torch.ones(2, dtype=torch.int64)], ids=["float", "int"])
def test_a_program_asks_for_the_group_of_a_dtype(x):
    def program(x):
        d = dtypes.to_dtype(x.dtype)
        return x + (1 if isinstance(d, dtypes.floating) else 2) + (10 if d in dtypes.exact_dtypes else 20)

    assert torch.equal(thunder.jit(program)(x), program(x))


def test_no_dtype_stays_none():
    assert dtypes.to_torch_dtype(None) is None
    assert ltorch.to_torch_dtype(None) is None


def test_metadata_of_tensors_are_those_of_torch_in_programs_and_in_meta_functions():
    def program(a):
        known = (ltorch.is_complex(a), ltorch.is_floating_point(a), ltorch.is_cpu(a), ltorch.is_cuda(a))
        known += (*ltorch.size(a), ltorch.size(a, -1), ltorch.numel(a), ltorch.dim(a), *ltorch.stride(a))
        return a * sum(i * int(n) for i, n in enumerate(known, 1))

    for a in (torch.ones(2, 3), torch.ones(3, 2, dtype=torch.complex64).T, torch.ones(4, dtype=torch.int64)):
        assert torch.equal(thunder.jit(program)(a), program(a))
    trace = thunder.trace()(program, torch.ones(2, 3))
    factor = program(torch.ones(2, 3))[0, 0].item()
    assert [(b.sym.name, b.args[1]) for b in trace.bound_symbols[:1]] == [("mul", factor)]


def test_reductions_of_one_argument_are_torchs():
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    for name in ("max", "min", "amax", "amin", "all", "any"):
        result = thunder.jit(lambda a, name=name: getattr(ltorch, name)(a))(a)
        assert torch.equal(result, getattr(torch, name)(a))
    for name in ("max", "min"):
        with pytest.raises(thunder.ThunderError, match=rf"{name}\(\) of two tensors is {name}imum\(\)"):
            thunder.jit(lambda a, b, name=name: getattr(ltorch, name)(a, b))(a, b)


def test_a_checkpoint_recomputes_in_the_backward():
    def part(x, scale):
        return (x.sin() * scale).exp().cos()

    x = torch.randn(3, requires_grad=True)
    compiled = thunder.jit(lambda x: ltorch.checkpoint(part, x, scale=2.0).sum())
    result = compiled(x)
    torch.testing.assert_close(
        torch.autograd.grad(result, x), torch.autograd.grad(part(x, scale=2.0).sum(), x)
    )
    names = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    assert "exp" in names


def test_default_executors_are_changed_at_top_level():
    before = thunder.get_default_executors()
    ex = OperatorExecutor("top_level_ex")
    op = ex.register_operator("sin", meta=lambda input: TensorProxy(like=input), fn=torch.sin)
    ex.register_implementation("torch.sin", op)
    thunder.add_default_executor(ex)
    try:
        compiled = thunder.jit(torch.sin)
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin())
        assert [row.claimed_by for row in thunder.explain(compiled).rows] == ["top_level_ex"]
        thunder.remove_default_executor(ex)
        assert thunder.get_default_executors() == before
    finally:
        thunder.set_default_executors(None)


def test_the_executor_of_attention_runs_torchs_kernels_forward_and_backward():
    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) * 2

    compiled = thunder.jit(attention, executors=[sdpa_ex])
    inputs = [torch.randn(2, 3, 4, 8) for _ in range(3)]
    assert torch.equal(compiled(*inputs), attention(*inputs))
    assert [r.claimed_by for r in thunder.explain(compiled).rows] == ["sdpa", "torch"]
    inputs = [x.requires_grad_() for x in inputs]
    result, expected = compiled(*inputs), attention(*inputs)
    grads = [torch.autograd.grad(r.sum(), inputs) for r in (result, expected)]
    torch.testing.assert_close(*grads)
    rows = thunder.explain(compiled).rows
    assert {r.trace for r in rows if r.claimed_by == "sdpa"} == {"forward", "backward"}


def test_names_of_devices():
    assert devices.cpu is devices.Device("cpu")
    assert devices.devicetype_string(devices.DeviceType.CUDA) == "cuda"
    assert ltorch.to_torch_dtype(dtypes.float32) is torch.float32
    assert isinstance(proxy(2), ltorch.TensorLike)


# -- languages and the running compile -----------------------------------------------------------------------


def test_langctx_is_a_decorator_and_a_context_manager():
    @langctx(Languages.TORCH)
    def current():
        return get_langctx()

    assert current() is resolve_language("torch")
    with langctx("torch") as language:
        assert language.name == "torch"
    with pytest.raises(thunder.InvalidArgument, match="there is no language 'clang'"):
        langctx("clang").__enter__()


@pytest.fixture
def option():
    register_option("migration_flag", bool, False, "An option of a test.")
    return "migration_flag"


def test_a_checker_reads_the_options_of_the_compile(option):
    read = []

    def checker(input):
        read.append((get_compile_option(option, "a flag", default=None), get_compile_option("nothing", "")))
        return get_compile_option(option, "a flag") or Refusal("flag", "the flag is off")

    ex = OperatorExecutor("flagged")
    op = ex.register_operator("sin", meta=lambda input: TensorProxy(like=input), fn=torch.sin)
    ex.register_implementation("torch.sin", op, checker=checker)
    for flag, executor in ((True, "flagged"), (False, "torch")):
        compiled = thunder.jit(torch.sin, executors=[ex], migration_flag=flag)
        compiled(torch.ones(2))
        assert [row.claimed_by for row in thunder.explain(compiled).rows] == [executor]
    assert read == [(True, None), (False, None)]


def test_a_compile_has_its_settings_and_nothing_else_has():
    settings = []

    class Reads(thunder.Transform):
        def transform_trace_pre_execution(self, trace, **kwargs):
            settings.append((get_compile_data(), using_symbolic_values()))
            return trace

    compiled = thunder.jit(torch.sin, transforms=[Reads()])
    compiled(torch.ones(2))
    assert settings == [(thunder.compile_data(compiled), False)]
    assert get_compile_data() is None
    with pytest.raises(thunder.OutsideTrace, match="was called where no compile runs"):
        get_compile_option("cse", "")


def test_the_interpreters_log_is_that_of_a_compile_or_of_interpret():
    options = thunder.DebugOptions(record_interpreter_history=True)
    compiled = thunder.jit(lambda x: x + 1, debug_options=options)
    compiled(torch.ones(2))
    assert last_interpreter_log(compiled) == thunder.last_interpreter_log(compiled) != []
    run = interpret(lambda x: x + 1, record_history=True)
    assert run(1) == 2
    assert "BINARY_OP" in [operation for _, _, operation, _ in last_interpreter_log(run)]
    assert last_interpreted_instructions(run) > 0


# -- gradients in two halves ---------------------------------------------------------------------------------


@pytest.fixture
def two_halves():
    ex = OperatorExecutor("halves_ex")
    op = ex.register_operator(
        "scaled_sine", meta=lambda a, scale=1.0: TensorProxy(like=a), fn=lambda a, scale=1.0: a.sin() * scale
    )

    @register_augmented_forward("halves_ex.scaled_sine")
    def forward(a, scale=1.0):
        return VJPDual(op(a, scale), (a, scale))

    return ex, op


@pytest.mark.parametrize("form", ["one", "tuple", "mapping"])
def test_an_augmented_forward_and_a_backward_are_a_gradient_rule(two_halves, form):
    ex, op = two_halves

    @register_backward("halves_ex.scaled_sine")
    def backward(a, scale, g):
        gradient = g * ltorch.cos(a) * scale
        return {"one": gradient, "tuple": (gradient, None), "mapping": {"a": gradient}}[form]

    compiled = thunder.jit(lambda a: op(a, 3.0).sum(), executors=[ex])
    a = torch.randn(4, requires_grad=True)
    compiled(a).backward()
    torch.testing.assert_close(a.grad, a.detach().cos() * 3)


@pytest.mark.parametrize(
    ("returned", "text"),
    [((1, 2, 3), "3 gradients for 2 positional"), ({"b": 1}, "a gradient for 'b', which is not an argument")],
)
def test_a_backward_that_returns_something_else_is_a_fault_of_the_package(two_halves, returned, text):
    ex, op = two_halves
    register_backward("halves_ex.scaled_sine")(lambda a, scale, g: returned)
    compiled = thunder.jit(lambda a: op(a, 3.0).sum(), executors=[ex])
    with pytest.raises(thunder.PluginError, match=text):
        compiled(torch.randn(4, requires_grad=True))


# -- regions -------------------------------------------------------------------------------------------------


def traced(fn, *args):
    return thunder.trace()(fn, *args)


def names(bsyms):
    return [bsym.sym.name for bsym in bsyms]


def test_a_region_has_its_inputs_and_outputs_in_order():
    trace = traced(lambda a, b: (ltorch.sin(b) + a, ltorch.cos(a)), torch.ones(2), torch.ones(2))
    producers, consumers = utils.producers_and_consumers(trace)
    region = Region(producers, consumers, trace.bound_symbols[:2])
    assert [v.name for v in region.inputs] == ["b", "a"]
    assert [v.name for v in region.outputs] == [trace.bound_symbols[1].output.name]


def merges(*wanted):
    def merge(group, single):
        return {b.sym.name for b in (*group.group_bsyms, *single.group_bsyms)} <= set(wanted)

    return merge


def test_calls_are_grouped_across_others_that_do_not_depend_on_them():
    def program(a, b):
        x = ltorch.sin(a)
        y = ltorch.exp(b)
        return ltorch.cos(x), y

    groups = fuse_bound_symbols(traced(program, torch.ones(2), torch.ones(2)), merges("sin", "cos"))
    assert [names(group) for group in groups] == [["sin", "cos"], ["exp"], ["python_return"]]


def test_no_group_is_made_that_a_third_call_has_to_run_between():
    def program(a):
        return ltorch.cos(ltorch.exp(ltorch.sin(a)))

    groups = fuse_bound_symbols(traced(program, torch.ones(2)), merges("sin", "cos"))
    assert [names(group) for group in groups] == [["sin"], ["exp"], ["cos"], ["python_return"]]


def test_a_view_is_read_on_its_side_of_a_write():
    def program(a):
        view = ltorch.reshape(a, (4,))
        before = ltorch.sin(view)
        prims.copy_(ltorch.exp(a), a, grad_enabled=False)
        return ltorch.cos(before), ltorch.sin(view)

    groups = fuse_bound_symbols(traced(program, torch.ones(2, 2)), merges("sin", "cos"))
    written = next(i for i, group in enumerate(groups) if names(group) == ["copy_"])
    assert [names(group) for group in groups[written + 1 :]] == [["cos", "sin"], ["python_return"]]


def test_a_value_is_deleted_after_the_last_group_that_reads_it():
    def program(x):
        a = ltorch.exp(x)
        t = ltorch.sin(x)
        return ltorch.tan(ltorch.cos(ltorch.exp(a))), t  # sin runs with cos, after the second exp

    trace = del_last_used(traced(program, torch.ones(2)))
    assert "del x" in str(trace)
    groups = fuse_bound_symbols(trace, merges("sin", "cos"))
    deleted = set()
    for call in itertools.chain.from_iterable(groups):
        if call.sym is prims.python_del:
            deleted.update(p.name for p in call.args)
        else:
            assert deleted.isdisjoint(p.name for p in call.flat_proxy_args), call
    assert ["sin", "cos"] in map(names, groups)


def test_the_arguments_of_a_call_have_the_names_of_the_parameters():
    (call, _) = traced(lambda a, b: a + b, torch.ones(2), torch.ones(2)).bound_symbols
    named = bind_names(call)
    assert (named.input.name, named.other.name, named.alpha) == ("a", "b", 1)


# -- modules and traces --------------------------------------------------------------------------------------


def test_overridden_parameters_are_mappings_that_can_be_written():
    class Doubles(thunder.Transform):
        def transform_module(self, model):
            model._overrides_parameters["weight"] = torch.nn.Parameter(model.get_parameter("weight") * 2)

    linear = torch.nn.Linear(2, 2, bias=False)
    compiled = thunder.jit(linear, transforms=[Doubles()])
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), 2 * linear(x))
    assert list(compiled._overrides_parameters) == ["weight"]
    assert compiled._overrides_parameters["weight"] is compiled.get_parameter("weight")
    assert dict(compiled._overrides_buffers) == {}


def test_parameters_and_buffers_are_read_before_an_override():
    model = torch.nn.BatchNorm1d(2)
    compiled = thunder.jit(model)
    assert compiled._overrides_parameters["weight"] is model.weight
    assert list(compiled._overrides_buffers) == [name for name, _ in model.named_buffers()]
    compiled._overrides_buffers["running_mean"] = torch.ones(2)
    assert torch.equal(compiled._overrides_buffers["running_mean"], torch.ones(2))
    assert torch.equal(model.running_mean, torch.zeros(2))
    assert "running_mean" not in compiled._overrides_parameters


def test_attributes_of_the_module_come_before_names_of_the_table():
    module = torch.nn.Module()
    module.no_sync = torch.nn.Linear(1, 1)
    assert thunder.jit(module).no_sync is module.no_sync
    assert not hasattr(thunder.jit(torch.nn.Linear(1, 1)), "no_sync")
    with pytest.raises(thunder.InvalidArgument, match="a package that provides thunder"):
        thunder.jit(torch.nn.Linear(1, 1)).no_sync()
    with pytest.raises(AttributeError, match=r"thunder.compile_data\(module\)"):
        thunder.jit(torch.nn.Linear(1, 1))._lc_cd  # noqa: B018


def test_an_executor_says_what_replaces_a_method():
    with pytest.raises(AttributeError, match="has no attribute 'register_symbol': register_operator"):
        OperatorExecutor("asked_ex").register_symbol  # noqa: B018
    assert not hasattr(OperatorExecutor("asked_ex"), "nothing")


def test_a_trace_is_not_pickled():
    compiled = thunder.jit(torch.sin)
    compiled(torch.ones(2))
    with pytest.raises(TypeError, match="a trace cannot be pickled"):
        pickle.dumps(thunder.last_traces(compiled)[-1])


@pytest.mark.parametrize("dims", [(0,), (1, -1), (0, 1, 2)])
def test_gradients_of_sums_and_means_are_torchs(dims):
    x = torch.randn(2, 3, 4, requires_grad=True)
    for reduce, backward in (
        (torch.sum, lambda g: sum_backward(x.shape, dims, g)),
        (torch.mean, lambda g: mean_backward(x.ndim, x.shape, dims, g)),
    ):
        result = reduce(x, dims)
        g = torch.randn_like(result)
        (expected,) = torch.autograd.grad(result, x, g)
        torch.testing.assert_close(thunder.jit(lambda g, backward=backward: backward(g))(g), expected)
