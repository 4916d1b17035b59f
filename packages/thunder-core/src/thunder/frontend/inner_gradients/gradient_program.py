"""Gradients of values by values of the same program, as statements of that program.

Note [Gradients inside a program]
A program that calls ``torch.autograd.grad`` reads gradients as values. The statements between the inputs and
the outputs are differentiated when they have been recorded, by the rules with which the whole program is
differentiated later, and the backward is recorded at the place of the call:

    y = x.sin()                                            y = torch.sin(x)
    (g,) = torch.autograd.grad(y.sum(), x,          →      t0 = torch.sum(y)
                               create_graph=True)          t1 = expand(ones, …); t2 = torch.cos(x)
    return (g * g).sum()                                   g = torch.mul(t1, t2); …

So a second derivative, a decision on a gradient and the backward of the whole program need no rule of their
own. What the backward reads of the forward are its values. A call whose rule reads others, such as the
statistics of a norm, has been replaced by those by which the rule computes it (``opened_calls``). What the
program still lacks (an overwritten tensor, a part of a call that has run for a decision) is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.autograd.joint_trace import differentiate
from thunder.autograd.rematerialiser import live_calls
from thunder.autograd.tape import recording
from thunder.frontend.custom_gradients.eager_backward import run_backward
from thunder.frontend.epilogue.subtrace import uses_and_definitions
from thunder.frontend.inner_gradients.functional_program import FunctionalProgram
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims
from thunder.torch.namespace import ltorch

__all__ = ["GradientProgram", "gradient_program", "statements_between"]


@dataclass(frozen=True)
class GradientProgram:
    """The backward of a part of a program, as a trace that returns ``gradients`` without None.

    ``arguments`` are the names of its arguments: values of the program, then cotangents. ``again`` are the
    statements of the forward that it computes again, before the others.
    """

    trace: TraceCtx
    gradients: tuple[TensorProxy | None, ...]
    again: Sequence[BoundSymbol]

    @property
    def statements(self) -> Sequence[BoundSymbol]:
        """The statements without the return."""
        return self.trace.bound_symbols[:-1]


def statements_between(
    body: Iterable[BoundSymbol], inputs: Iterable[TensorProxy], outputs: Iterable[TensorProxy]
) -> list[BoundSymbol]:
    """Return the statements through which gradients flow from ``outputs`` to ``inputs``."""
    reached = {p.name for p in inputs if requires_grad(p)}
    dependent = []
    for bsym in body:
        results = [p.name for p in bsym.flat_proxy_outs if requires_grad(p)]
        if results and any(p.name in reached for p in bsym.flat_proxy_args if requires_grad(p)):
            dependent.append(bsym)
            reached.update(results)
    needed = {p.name for p in outputs}
    between = []
    for bsym in reversed(dependent):
        if any(p.name in needed for p in bsym.flat_proxy_outs):
            between.append(bsym)
            needed.update(p.name for p in bsym.flat_proxy_args if p.name in reached)
    return between[::-1]


def gradient_program(
    program: FunctionalProgram,
    outputs: Sequence[TensorProxy],
    inputs: Sequence[TensorProxy],
    between: Sequence[BoundSymbol],
) -> GradientProgram:
    """Return the backward of the statements ``between``: cotangents of ``outputs`` → gradients of ``inputs``.

    An input on which no output depends has the gradient None. Raises MissingGradient for a statement without
    a gradient.
    """
    computed = {p.name for b in between for p in b.flat_proxy_outs} | {p.name for p in inputs}
    part = from_trace(program.trace)
    part.args = list(uses_and_definitions(between, outputs)[0].values())
    part.bound_symbols = [_with_constants(b, computed) for b in between]
    with tracectx(part):
        prims.python_return(tuple(outputs))
    tape = differentiate(part)
    trace = from_trace(tape.trace)
    with tracectx(trace):
        cotangents = [TensorProxy(like=o, requires_grad=True) for o in outputs]
    sums: dict[str, TensorProxy] = {}
    with recording(trace) as additions:
        for output, cotangent in zip(outputs, cotangents, strict=True):
            total = sums.get(output.name)
            sums[output.name] = cotangent if total is None else ltorch.add(total, cotangent)
    backward, gradients = tape.backward(trace, sums, inputs)
    results = [g for g in gradients if g is not None]
    backward = [_without_call(b) for b in live_calls([*additions, *backward], results)]
    read = uses_and_definitions(backward, tuple(results))[0]
    producers = {p.name: b for b in (*program.body, *tape.forward) for p in b.flat_proxy_outs}
    again = _computed_again(read, producers, program.holders)
    trace.bound_symbols = [*again, *backward]
    with tracectx(trace):
        prims.python_return(tuple(results))
    used = uses_and_definitions([*again, *backward], tuple(results))[0]
    own = {c.name for c in cotangents}
    trace.args = [*(p for name, p in used.items() if name not in own), *cotangents]
    return GradientProgram(trace, gradients, again)


def _without_call(bsym: BoundSymbol) -> BoundSymbol:
    """Return a statement that runs a backward without the forward's state, so that this runs once."""
    return bsym.from_bsym(args=(None, *bsym.args[1:])) if bsym.sym is run_backward else bsym


def _with_constants(bsym: BoundSymbol, computed: set[str]) -> BoundSymbol:
    """Return a statement in which operands that do not depend on the inputs require no grad."""
    constants = {
        p.name: p.replace(requires_grad=False)
        for p in bsym.flat_proxy_args
        if requires_grad(p) and p.name not in computed
    }
    with tracectx(None):
        return substitute_operands(bsym, constants) if constants else bsym


def _computed_again(
    names: Iterable[str], producers: Mapping[str, BoundSymbol], holders: Mapping[str, Any]
) -> list[BoundSymbol]:
    """Return the statements that compute values from those that the program still holds, in order."""
    order: list[BoundSymbol] = []
    seen = set[int]()
    stack = [(producers[name], False) for name in names if name in producers and name not in holders]
    while stack:
        bsym, is_complete = stack.pop()
        if is_complete:
            order.append(bsym)
        elif id(bsym) not in seen:
            seen.add(id(bsym))
            stack.append((bsym, True))
            operands = [p.name for p in bsym.flat_proxy_args]
            stack += [(producers[n], False) for n in operands if n in producers and n not in holders]
    return order
