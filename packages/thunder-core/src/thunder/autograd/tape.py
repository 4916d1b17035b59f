"""The tape of a differentiated program: its forward, and a backward step for each call.

Reverse mode over straight-line code: each call leaves a :class:`BackwardStep`, which computes gradients of
its arguments from gradients of its results; the steps run in reverse order (Griewank and Walther, Evaluating
Derivatives, 2nd ed., 3.2). A step is recorded with ``get_grad`` and ``put_grad``, so that the same steps
serve every choice of results that have a cotangent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from thunder.autograd.step_copies import StepCopy
from thunder.base.langctx import TORCH, using_language
from thunder.executor_base.refusal import Refusal
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag
from thunder.ir.trace import TraceCtx
from thunder.ir.trace_context import get_tracectx, reset_tracectx, set_tracectx
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops import prims
from thunder.ops.prims.gradient import get_grad_or_none
from thunder.ops.rule_parts import GETTERS, PUT_GRAD
from thunder.torch.namespace import ltorch

__all__ = ["GET_GRAD", "BackwardStep", "PackageRule", "Tape", "recording"]

GET_GRAD = prims.get_grad.id


@contextmanager
def recording(
    trace: TraceCtx, call: BoundSymbol | None = None, mark: str = ""
) -> Iterator[list[BoundSymbol]]:
    """Yield the list into which symbols record, with names of ``trace`` and with gradients on.

    The names of new values are derived from that of the result of ``call``, if one is passed, and a mark.
    """
    scope: list[BoundSymbol] = []
    token, was_enabled = set_tracectx(trace), torch.is_grad_enabled()
    torch._C._set_grad_enabled(True)
    trace.push_scope(scope)
    try:
        values = call.flat_proxy_outs if call is not None else ()
        with using_language(TORCH), trace.naming_after(values, mark):
            yield scope
    finally:
        trace.pop_scope()
        torch._C._set_grad_enabled(was_enabled)
        reset_tracectx(token)


@dataclass(frozen=True)
class PackageRule:
    """A gradient rule of a package, the call to which it was applied, and the forward that it recorded."""

    fn: Callable[..., object]
    call: BoundSymbol
    forward: Sequence[BoundSymbol]


@dataclass(frozen=True)
class BackwardStep:
    """The part of the backward for one call.

    ``bsyms`` read gradients of the call's results with ``get_grad``, and add to those of its arguments with
    ``put_grad``. ``without_cotangent`` are the names of results on which the program's results do not depend,
    so that ``bsyms`` do not read their gradients. In a second derivative they may have one, if they were
    saved; then ``record_all`` returns the step that reads those too, and that may add to the gradients of all
    ``arguments``. ``package_rule`` is the rule that recorded the step, if a package has defined it.
    """

    bsyms: Sequence[BoundSymbol]
    without_cotangent: frozenset[str] = frozenset()
    record_all: Callable[[], Sequence[BoundSymbol]] | None = None
    arguments: tuple[TensorProxy, ...] = ()
    package_rule: PackageRule | None = None

    @property
    def reads(self) -> Iterator[str]:
        """The names of the values whose gradients the step reads."""
        if isinstance(self.bsyms, StepCopy):
            return self.bsyms.reads
        return (b.args[0].name for b in self.bsyms if b.sym.id in GETTERS)

    @property
    def adds_to(self) -> Iterator[TensorProxy]:
        """The values to whose gradients the step adds."""
        if isinstance(self.bsyms, StepCopy):
            yield from self.bsyms.adds_to
        else:
            yield from (b.args[0] for b in self.bsyms if b.sym.id == PUT_GRAD)
        yield from self.arguments


@dataclass(frozen=True)
class Tape:
    """A differentiated program: its forward, and its backward steps in the forward's order.

    ``differentiable`` are the names of the values into which gradients flow back: the program's values, and
    not those that gradient rules computed for themselves. ``unclaimed`` are calls that are not in the
    forward, since gradient rules compute them with others: each with the names of the executors of packages
    that have code for it, and the reasons why they do not run it.
    """

    trace: TraceCtx
    forward: Sequence[BoundSymbol]
    steps: Sequence[BackwardStep]
    differentiable: frozenset[str]
    unclaimed: Sequence[tuple[BoundSymbol, tuple[tuple[str, Refusal], ...]]] = ()

    def backward(
        self,
        trace: TraceCtx,
        cotangents: Mapping[str, TensorProxy],
        inputs: Iterable[object],
        steps: Sequence[BackwardStep] | None = None,
    ) -> tuple[list[BoundSymbol], tuple[TensorProxy | None, ...]]:
        """Return the calls that compute the gradients of ``inputs``, and these gradients.

        ``cotangents`` are those of values, by name; ``steps`` are all, unless some are chosen. New values get
        names of ``trace``. An input on which none of the values depends has the gradient None.
        """
        runner = _StepRunner(cotangents)
        with recording(trace) as bsyms:
            for step in reversed(self.steps if steps is None else steps):
                runner.run(step)
        return bsyms, tuple(runner.grads.get(i.name) if requires_grad(i) else None for i in inputs)


class _StepRunner:
    """Records steps: ``get_grad`` becomes the sum so far, ``put_grad`` an addition."""

    def __init__(self, cotangents: Mapping[str, TensorProxy]) -> None:
        self.grads: dict[str, TensorProxy] = dict(cotangents)
        #: results of ``get_grad`` in steps, by name → gradients
        self.read: dict[str, TensorProxy | None] = {}

    def run(self, step: BackwardStep) -> None:
        """Record the calls of one step, unless no gradient reaches it."""
        bsyms = step.bsyms
        if step.record_all is not None and not self.grads.keys().isdisjoint(step.without_cotangent):
            bsyms = step.record_all()
        elif not any(name in self.grads for name in step.reads):
            return
        if isinstance(bsyms, StepCopy):
            self._run_copy(bsyms)
            return
        trace = _trace()
        for bsym in bsyms:
            bsym = substitute_operands(bsym, self.read)
            if bsym.sym.id == GET_GRAD:
                self.read[bsym.output.name] = self._gradient(bsym.args[0])
            elif bsym.sym.id == get_grad_or_none.id:
                self.read[bsym.output.name] = self.grads.get(bsym.args[0].name)
            elif bsym.sym.id == PUT_GRAD:
                self._put(*bsym.args)
            else:
                trace.record(bsym)

    def _run_copy(self, step: StepCopy) -> None:
        trace, values = _trace(), step.values()
        for bsym in step.template.statements:
            operator = bsym.sym.id
            if operator == PUT_GRAD:
                value, grad = bsym.args
                self._put(values[id(value)], values.get(id(grad), grad))
            elif operator == GET_GRAD:
                values[id(bsym.output)] = self._gradient(values[id(bsym.args[0])])
            elif operator == get_grad_or_none.id:
                values[id(bsym.output)] = self.grads.get(values[id(bsym.args[0])].name)
            else:
                trace.record(step.copy_of(bsym, values))

    def _gradient(self, value: TensorProxy) -> TensorProxy:
        gradient = self.grads.get(value.name)
        if gradient is not None:
            return gradient
        # full depends on the shape alone, so that no tensor is saved for it, as zeros_like would
        with _trace().naming_after((value,), "g"):
            return prims.full(value.shape, 0.0, device=value.device, dtype=value.dtype)  # type: ignore[no-any-return]

    def _put(self, value: TensorProxy, grad: TensorProxy | None) -> None:
        if grad is None:
            return
        total = self.grads.get(value.name)
        if total is None:
            self.grads[value.name] = grad
            return
        with _trace().naming_after((value,), "g"):
            is_unmodelled = isinstance(value, UnmodelledProxy)
            self.grads[value.name] = (prims.add_unmodelled if is_unmodelled else _sum)(total, grad)


def _sum(total: TensorProxy, gradient: TensorProxy) -> TensorProxy:
    """Record the sum of two gradients, with a tag.

    It is a part of the backward even where neither depends on a cotangent (zeros without elements): each
    backward that is recorded has its own sums, so that none can be saved for another one.
    """
    result: TensorProxy = ltorch.add(total, gradient)
    calls = _trace().peek_scope()
    calls[-1] = calls[-1].from_bsym(tags=calls[-1].own_tags | {BoundSymbolTag.SUM_OF_GRADIENTS})
    return result


def _trace() -> TraceCtx:
    trace = get_tracectx()
    assert trace is not None, "steps run under recording(trace)"
    return trace
