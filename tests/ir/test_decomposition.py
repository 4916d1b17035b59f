"""A call that a transform constructs from another has the decomposition of its own operator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder
import thunder.torch as ltorch
from thunder.core.proxies import TensorProxy, variableify
from thunder.core.trace import from_trace, tracectx
from thunder.extend import OperatorExecutor


class Changes(thunder.Transform):
    """A transform that replaces calls of one symbol by what a function returns for them."""

    def __init__(self, symbol, change):
        self.symbol, self.change = symbol, change

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        new = from_trace(computation_trace)
        new.bound_symbols = [
            self.change(b) if b.sym == self.symbol else b for b in computation_trace.bound_symbols
        ]
        return prologue_trace, new, epilogue_trace


def operator(**definition):
    return OperatorExecutor("twice").register_operator("twice_silu", fn=lambda a: F.silu(a) * 2, **definition)


def gradient(fn, x):
    return torch.autograd.grad(fn(x), x)[0]


@pytest.mark.parametrize("fields", [{}, {"subsymbols": []}])
def test_the_gradient_of_a_call_of_another_operator_is_that_of_the_operator(fields):
    op = operator(like=lambda a: ltorch.silu(a) * 2)
    change = Changes(ltorch.silu, lambda b: b.from_bsym(sym=op, args=(b.args[0],), **fields))
    compiled, x = thunder.jit(lambda x: F.silu(x).sum(), transforms=[change]), torch.randn(3).requires_grad_()
    torch.testing.assert_close(gradient(compiled, x), gradient(lambda x: F.silu(x).sum() * 2, x))


def test_a_primitive_without_a_rule_does_not_have_the_gradient_of_the_call_that_it_replaces():
    op = operator(meta=lambda a: TensorProxy(like=a))
    change = Changes(ltorch.silu, lambda b: b.from_bsym(sym=op, args=(b.args[0],)))
    compiled = thunder.jit(lambda x: F.silu(x).sum(), transforms=[change])
    with pytest.raises(thunder.MissingGradient, match="twice_silu has no gradient rule"):
        compiled(torch.randn(3).requires_grad_())


def test_other_arguments_have_another_decomposition():
    op = OperatorExecutor("scales").register_operator(
        "scaled", like=lambda a, by: ltorch.sin(a) * by, fn=lambda a, by: a.sin() * by
    )
    change = Changes(op, lambda b: b.from_bsym(args=(b.args[0], 3.0)))
    compiled = thunder.jit(lambda x: op(x, 2.0).sum(), transforms=[change])
    x = torch.randn(3).requires_grad_()
    torch.testing.assert_close(gradient(compiled, x), x.detach().cos() * 3)


def test_other_outputs_have_another_decomposition():
    class Renames(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            new, renamed = from_trace(computation_trace), {}
            for b in computation_trace.bound_symbols:
                b = b.from_bsym_swap_proxies(renamed)
                if b.sym == ltorch.cross_entropy:
                    with tracectx(new):
                        renamed[variableify(b.output)] = TensorProxy(like=b.output, requires_grad=True)
                    b = b.from_bsym(output=renamed[variableify(b.output)])
                new.bound_symbols.append(b)
            return prologue_trace, new, epilogue_trace

    def loss(x):
        return F.cross_entropy(x[None], torch.zeros(1, dtype=torch.int64)) * 2

    compiled, x = thunder.jit(loss, transforms=[Renames()]), torch.randn(3).requires_grad_()
    torch.testing.assert_close(gradient(compiled, x), gradient(loss, x))


def test_the_same_arguments_keep_the_decomposition():
    call = thunder.trace()(lambda x: ltorch.silu(x) + 1, torch.ones(2)).bound_symbols[0]
    assert call.from_bsym(args=tuple(call.args)).subsymbols == call.subsymbols != ()
    assert call.from_bsym(sym=ltorch.relu, args=call.args[:1]).subsymbols == ()
    assert call.from_bsym(args=(call.output,), subsymbols=call.subsymbols).subsymbols == call.subsymbols


def test_outputs_of_another_form_than_the_operators_are_an_error():
    op = operator(like=lambda a: (ltorch.silu(a) * 2).sum())
    change = Changes(ltorch.silu, lambda b: b.from_bsym(sym=op, args=(b.args[0],)))
    compiled = thunder.jit(lambda x: F.silu(x).sum(), transforms=[change])
    with pytest.raises(thunder.TraceError, match="other outputs than the operator returns"):
        compiled(torch.randn(3).requires_grad_())
