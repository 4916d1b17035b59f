"""How authors write packages for lightning-thunder: the same works here."""

from __future__ import annotations

import pytest
import torch

import thunder
import thunder.torch as ltorch
import thunder_migration
from thunder.core.patterns import Pattern
from thunder.core.proxies import TensorProxy, unvariableify
from thunder.core.trace import TraceProvenance, from_trace
from thunder.core.transforms import eval_trace, get_grad, grad, put_grads, value_and_grad, vjp
from thunder.extend import FusionExecutor, OperatorExecutor, TemporaryExecutor
from thunder.plugins import get_manager

with get_manager().temporary(thunder_migration, name="migration-of-imports"):
    from thunder.core.patterns import bind_names


def rotated(x, cos):
    return x * cos


@pytest.fixture
def rotations():
    """An executor with an operator for one call of `rotated`, and one for two calls with its gradient."""
    ex = OperatorExecutor("rotations")
    forward = ex.register_operator(
        "forward",
        meta=lambda q, k, cos: (TensorProxy(like=q), TensorProxy(like=k), 256, "fast"),
        fn=lambda q, k, cos: (q * cos, k * cos, 256, "fast"),
    )
    backward = ex.register_operator(
        "backward",
        meta=lambda dq, dk, cos, block, mode: (TensorProxy(like=dq), TensorProxy(like=dk)),
        fn=lambda dq, dk, cos, block, mode: (dq * cos, dk * cos) if (block, mode) == (256, "fast") else None,
    )

    def both(q, k, cos):
        first, second, _, _ = forward(q, k, cos)
        return first, second

    def both_with_gradient(q, k, cos):
        first, second, block, mode = forward(q, k, cos)
        put_grads((q, k), backward(get_grad(first), get_grad(second), cos, block=block, mode=mode))
        return first, second

    pair = ex.register_operator("pair", like=both, fn=both)
    ex.register_implementation(pair, execution_transform=both, grad_transform=both_with_gradient)
    single = ex.register_operator(
        "single", meta=lambda x, cos: TensorProxy(like=x), fn=rotated, replaces=rotated
    )

    class Merges(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            new = from_trace(computation_trace)
            first, second = (b for b in computation_trace.bound_symbols if b.sym == single)
            for b in computation_trace.bound_symbols:
                if b is second:
                    args, output = (first.args[0], *second.args), (first.output, second.output)
                    new.bound_symbols.append(b.from_bsym(sym=pair, args=args, output=output, subsymbols=[]))
                elif b is not first:
                    new.bound_symbols.append(b.from_bsym())
            new.set_provenance(TraceProvenance(type(self)))
            return prologue_trace, new, epilogue_trace

    return ex, Merges()


def test_two_calls_merged_by_hand_have_the_gradient_of_the_operator_for_both(rotations):
    ex, merges = rotations

    def attention(q, k, cos):
        return rotated(q, cos) @ rotated(k, cos).mT

    compiled = thunder.jit(attention, executors=[ex], transforms=[merges])
    q, k, cos = (torch.randn(3, 3, requires_grad=i < 2) for i in range(3))
    result, expected = compiled(q, k, cos), attention(q, k, cos)
    g = torch.randn(3, 3)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(
        torch.autograd.grad(result, (q, k), g), torch.autograd.grad(expected, (q, k), g)
    )
    names = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    assert names.count("backward") == 1
    assert "Merges" in str(thunder.last_traces(compiled)[1])


def test_like_a_torch_operator_with_a_function_of_fewer_arguments():
    ex = TemporaryExecutor()
    add = ex.register_operator("temp_add", like=ltorch.add, fn=lambda a, b: a + b)
    compiled = thunder.jit(lambda a, b: add(a, b), executors=[ex])
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    result = compiled(a, b)
    assert torch.equal(result, a + b)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), (a, b)), (torch.ones(3), torch.ones(3)))
    with pytest.raises(thunder.PluginError, match="does not take the arguments"):
        ex.register_operator("other", like=ltorch.add, fn=lambda: None)


@pytest.mark.parametrize("function", [grad, value_and_grad, lambda f: grad(grad(f))])
def test_the_traces_of_a_gradient_are_those_of_what_it_differentiates(function):
    gradient = function(lambda x: torch.sin(x).sum())
    with pytest.raises(thunder.NeverCalled, match="have been called yet"):
        thunder.last_traces(gradient)
    gradient(torch.ones(2))
    assert "sin" in str(thunder.last_traces(gradient)[-1])
    assert "cos" in str(thunder.last_backward_traces(gradient)[-1])
    assert thunder.compile_stats(gradient).calls == 1
    assert thunder.compile_data(gradient) is not None


@pytest.mark.parametrize("call", [lambda f, x: grad(f)(x), lambda f, x: vjp(f)((x,), x)])
def test_a_gradient_within_a_compiled_program_is_that_outside(call):
    x = torch.arange(2.0)
    torch.testing.assert_close(thunder.jit(lambda x: call(torch.sin, x))(x), call(torch.sin, x))


def test_matchers_with_keywords_receive_the_calls_and_the_facts():
    def is_add(bsym, *, previously_matched, match_ctx):
        return bsym.sym.name == "add", {"first": bind_names(bsym).input} if bsym.sym.name == "add" else None

    def is_sub_of_the_same(bsym, *, previously_matched, match_ctx):
        if bsym.sym.name != "sub":
            return False, None
        assert [b.sym.name for b in previously_matched] == ["add"]
        return bind_names(bsym).input is match_ctx["first"], {}

    trace = thunder.trace()(lambda a, b: (a + b, a + 2, a - b), torch.ones(2), torch.ones(2))
    (match,) = Pattern().match(is_add).match(is_sub_of_the_same)(trace)
    assert [index for index, _ in match] == [0, 2]
    (match,) = Pattern().match(is_add, min_times=1, max_times=-1)(trace)
    assert [index for index, _ in match] == [0, 1]


def test_a_mapper_of_eval_trace_replaces_calls():
    trace = thunder.trace()(lambda x: ltorch.sin(x) + 1, torch.ones(2))
    mapped = {"torch.sin": ltorch.cos}
    program = thunder.trace()(
        lambda x: eval_trace(trace, x, symbol_mapper=lambda bsym: mapped.get(bsym.sym.id, bsym.sym)),
        torch.ones(2),
    )
    assert [b.sym.name for b in program.bound_symbols] == ["cos", "add", "python_return"]


def test_fuse_reads_the_calls_of_its_region_by_either_name():
    class Sines(FusionExecutor):
        def fuse(self, region, fusion_counter):
            assert region.bound_symbols == region.bsyms

            def run(x):
                for _ in region.bound_symbols:
                    x = x.sin()
                return [x]

            inputs, outputs = ([unvariableify(p) for p in ps] for ps in (region.inputs, region.outputs))
            return self.register_temporary_operation(
                f"sines{fusion_counter}", run, inputs=inputs, outputs=outputs, bsyms=region.bound_symbols
            )

    ex = Sines("sines")
    ex.register_supported("torch.sin")
    compiled, x = thunder.jit(lambda x: torch.sin(torch.sin(x)).cos(), executors=[ex]), torch.ones(2)
    torch.testing.assert_close(compiled(x), x.sin().sin().cos())
    assert thunder.last_traces(compiled)[-1].bound_symbols[0].sym.name == "sines0"


def test_a_language_that_is_not_here_says_what_to_write():
    from thunder.core.langctxs import Languages

    with pytest.raises(AttributeError, match="there is no language 'CLANG' here: write torch"):
        Languages.CLANG  # noqa: B018
