"""Executors, transforms and programs with one mistake each."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import thunder
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grad, put_grads
from thunder.extend import FusionExecutor, OperatorExecutor
from thunder.ir.trace import TraceCtx, from_trace, tracectx


def like(x: Any, *more: Any) -> Any:
    return TensorProxy(like=x)


def executor(name: str = "culprit") -> OperatorExecutor:
    return OperatorExecutor(name)


def running(fn: Any, ex: Any, **options: Any) -> Any:
    """What a function gives that is compiled for an executor and called with a tensor that requires grad."""
    return thunder.jit(fn, executors=[ex], **options)(torch.ones(3, requires_grad=True))


def operator(ex: OperatorExecutor, name: str = "op", **more: Any) -> Any:
    return ex.register_operator(name, **{"meta": like, "fn": lambda x: x * 2, "replace": True} | more)


# -- gradient rules ----------------------------------------------------------------------------------------


def with_rule(rule: Any) -> Any:
    """Runs a program whose only operator has this gradient rule, which gets the operator first."""
    ex = executor()
    op = operator(ex)

    def culprit_rule(x: Any) -> Any:
        return rule(op, x)

    ex.register_implementation(op, op, grad_transform=culprit_rule)
    return running(lambda x: op(x), ex)


def uneven(op: Any, x: Any) -> Any:
    out = op(x)
    put_grads((x,), (get_grad(out), get_grad(out)))
    return out


def wrong_shape(op: Any, x: Any) -> Any:
    out = op(x)
    put_grad(x, thunder.torch.sum(get_grad(out)))
    return out


def without_result(op: Any, x: Any) -> Any:
    put_grad(x, get_grad(op(x)))


def rule_that_raises(op: Any, x: Any) -> Any:
    raise KeyError("kernels")


def for_no_tensor(op: Any, x: Any) -> Any:
    out = op(x)
    put_grads((3,), (get_grad(out),))
    return out


# -- execution transforms and metadata ---------------------------------------------------------------------


def with_transform(transform: Any) -> Any:
    """Runs torch.sin by an execution transform."""
    ex = executor()
    ex.register_implementation("torch.sin", execution_transform=transform)
    return running(lambda x: torch.sin(x), ex)


def other_metadata(a: Any) -> Any:
    return thunder.torch.sum(a)


def other_structure(a: Any) -> Any:
    return a, a


def in_a_tuple(a: Any) -> Any:
    return (thunder.torch.cos(a),)


def untrue_meta() -> Any:
    ex = executor()
    op = operator(ex, "liar", fn=lambda x: x.to(torch.float64)[:2])
    checked = thunder.jit(
        lambda x: op(x), executors=[ex], debug_options=thunder.DebugOptions(check_traces=True)
    )
    return checked(torch.ones(3))


def unfit_meta() -> Any:
    ex = executor()
    return operator(ex, "narrow", meta=lambda x, y: TensorProxy(like=x))


def concrete_meta() -> Any:
    ex = executor()
    op = operator(ex, "concrete", meta=lambda x: torch.ones(3))
    return running(lambda x: op(x), ex)


def checker_that(answer: Any) -> Any:
    ex = executor()
    ex.register_implementation("torch.sin", operator(ex, "sin"), checker=answer)
    return running(lambda x: torch.sin(x), ex)


def raising(a: Any) -> Any:
    raise KeyError("kernels")


# -- transforms --------------------------------------------------------------------------------------------


def with_hook(**hooks: Any) -> Any:
    """Runs a program with a transform that has these hooks."""
    culprit = type("Culprit", (thunder.Transform,), hooks)
    program = thunder.jit(lambda x: (x * 2).sin(), transforms=[culprit()])
    return program(torch.ones(3))


def nothing(self: Any, *traces: Any, **facts: Any) -> None:
    return None


def one_trace(self: Any, prologue_trace: Any, *traces: Any, **facts: Any) -> Any:
    return prologue_trace


def reversed_order(self: Any, trace: TraceCtx, **facts: Any) -> TraceCtx:
    new = from_trace(trace)
    new.bound_symbols = [*trace.bound_symbols[:-1][::-1], trace.bound_symbols[-1]]
    return new


def twice(self: Any, trace: TraceCtx, **facts: Any) -> TraceCtx:
    new = from_trace(trace)
    new.bound_symbols = [trace.bound_symbols[0], *trace.bound_symbols]
    return new


def early_del(self: Any, trace: TraceCtx, **facts: Any) -> TraceCtx:
    new = from_trace(trace)
    first, *rest = trace.bound_symbols
    dels = [b for b in rest if b.sym.name == "python_del"]
    new.bound_symbols = [dels[0], first, *(b for b in rest if b is not dels[0])]
    return new


def misspelt() -> Any:
    return type("Misspelt", (thunder.Transform,), {"transform_trace_pre_prologue": nothing})


# -- traces ------------------------------------------------------------------------------------------------


def taken_name() -> Any:
    with tracectx(TraceCtx()):
        TensorProxy("x", shape=(2,), device="cpu", dtype=torch.float32)
        TensorProxy("x", shape=(2,), device="cpu", dtype=torch.float32)


def bare_proxy(**given: Any) -> Any:
    with tracectx(TraceCtx()):
        return TensorProxy(**given)


def assigned_args() -> Any:
    jf = thunder.jit(torch.sin)
    jf(torch.ones(3))
    thunder.last_traces(jf)[-1].bound_symbols[0].args = ()


# -- fusion ------------------------------------------------------------------------------------------------


class Bare(FusionExecutor):
    """Without a fusion pass."""


class Loses(FusionExecutor):
    """Drops what has an effect."""

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        new = from_trace(trace)
        new.bound_symbols = [
            b for b in trace.bound_symbols if "uniform" not in b.sym.id and "rand" not in b.sym.id
        ]
        return new


class Takes(FusionExecutor):
    """Fuses what belongs to somebody else."""

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        new = from_trace(trace)
        first, *rest = trace.bound_symbols
        fused = self.register_temporary_operation(
            "taken0",
            lambda x: [x],
            inputs=first.flat_proxy_args,
            outputs=first.flat_proxy_outs,
            bsyms=[first],
        )
        new.bound_symbols = [fused, *rest]
        return new


def fused_by(cls: Any) -> Any:
    ex = cls("culprit")
    ex.register_supported("torch.cos")
    other = executor("other")
    other.register_implementation("torch.sin", operator(other, "sin"))
    return thunder.jit(lambda x: torch.cos(torch.sin(x)) + torch.rand(3), executors=[other, ex])(
        torch.ones(3)
    )


class Drops(FusionExecutor):
    """Loses the result of what it claimed."""

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        new = from_trace(trace)
        new.bound_symbols = [b for b in trace.bound_symbols if b.sym.executor is not self]
        return new


class Fails(FusionExecutor):
    """Raises while it fuses."""

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        raise KeyError("kernels")


def without_function() -> Any:
    ex = executor()
    op = operator(ex, "bare", fn=None)
    ex.register_implementation("torch.sin", execution_transform=lambda a: op(a))
    return running(lambda x: torch.sin(x), ex)


def unlike_operator() -> Any:
    ex = executor()
    ex.register_implementation("torch.nn.functional.gelu", operator(ex, "narrow"))
    return running(lambda x: torch.nn.functional.gelu(x, approximate="tanh"), ex)


# -- programs ----------------------------------------------------------------------------------------------


class NotStatic(torch.autograd.Function):
    """As one wrote them before torch 1.3."""

    def forward(self, ctx: Any, x: Any) -> Any:  # type: ignore[override]
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


class Halves(nn.Module):
    """A model."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.fc.weight, self.fc.bias)
