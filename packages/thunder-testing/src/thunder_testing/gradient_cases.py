"""The check of gradients: an executor's own gradients are torch's, for each argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from thunder.core import prims
from thunder.core.prims import PrimIDs
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_iter
from thunder.core.trace import TraceCtx, from_trace, tracectx
from thunder.core.transforms import NoGradient
from thunder.core.vjp_utils import differentiable_outputs, differentiate, joint_trace
from thunder.extend import get_always_executors
from thunder_testing.conformance_failure import NothingToTest, definition_of, described, error_text
from thunder_testing.sample_call import SampleCall
from thunder_testing.sample_lowering import SEED, lowered, seeded, trace_call
from thunder_testing.samples import Sample, cast
from thunder_testing.subjects import Subject
from thunder_testing.tensor_layouts import scattered
from thunder_testing.tolerances import Judge, Reference, same_bits

__all__ = [
    "GradientCase",
    "check_gradients",
    "compare_gradients",
    "expected_gradients",
    "floating_tensors",
    "is_finite",
]

#: how many calls are differentiated
MAX_CALLS = 5


@dataclass(frozen=True, eq=False)
class GradientCase:
    """A call, the positions of the tensors that require grad, and the layout of the cotangents."""

    call: SampleCall
    requiring_grad: tuple[int, ...]
    layout: str = "usual"

    @property
    def subject(self) -> Subject:
        """The operator."""
        return self.call.subject

    @cached_property
    def without_gradient(self) -> frozenset[int]:
        """The positions, among the tensors of the result, of those that the operator has no gradient of."""
        try:
            traced = trace_call(self.subject.symbol, self.call.sample, requiring_grad=self.requiring_grad)
        except Exception:  # the case about the meta function reports it
            return frozenset()
        proxies = [p for p in tree_iter(traced.trace.output) if isinstance(p, TensorProxy)]
        declared = traced.bsym.sym.declared_gradient
        is_left_out = isinstance(declared, NoGradient) and not self.subject.has_own_gradient
        return frozenset(
            i
            for i, p in enumerate(proxies)
            if not p.requires_grad and (is_left_out or p.declared_without_grad)
        )

    @property
    def judge(self) -> Judge:
        """The bounds of errors: four times those of results, since a gradient is a longer computation."""
        return replace(self.subject.settings.judge, factor=4.0)

    def failure(self, what: str, found: dict[str, object], hint: str) -> Exception:
        """Return the error for a fault in this case."""
        tensors = (
            f"tensors {', '.join(map(str, self.requiring_grad))}, with cotangents in {self.layout} memory"
        )
        return self.subject.failure(
            what,
            self.call,
            found={"gradients of": tensors, **found},
            where=definition_of(self.subject.info.grad_transform) or self.subject.where,
            hint=hint,
        )


def check_gradients(subject: Subject) -> None:
    """Check the gradients of each argument, alone and together, against torch's autograd in float64."""
    checked = 0
    for call in subject.calls:
        floating = floating_tensors(call)
        is_tested = call.is_run and not call.sample.is_large and is_finite(call)
        if is_tested and floating and checked < MAX_CALLS:
            checked += any([_check_case(case) for case in _gradient_cases(call, floating, checked)])
    if not checked:
        raise NothingToTest(
            f"no sample of {subject.id} has a result that depends on a floating-point argument"
        )


def floating_tensors(call: SampleCall) -> tuple[int, ...]:
    """Return the positions of tensors that can require grad."""
    return tuple(i for i, x in enumerate(call.sample.tensors) if x.is_floating_point() or x.is_complex())


def is_finite(call: SampleCall) -> bool:
    """Return whether the floating-point tensors have no NaN and no infinities, at which gradients differ."""
    return all(bool(call.sample.tensors[i].isfinite().all()) for i in floating_tensors(call))


def _gradient_cases(call: SampleCall, floating: tuple[int, ...], number: int) -> Iterator[GradientCase]:
    yield GradientCase(call, floating)
    if number == 0:
        yield GradientCase(call, floating, "expanded")
        yield GradientCase(call, floating, "scattered")
        if len(floating) > 1:
            for i in floating:
                yield GradientCase(call, (i,))


def _check_case(case: GradientCase) -> bool:
    """Check one case; return False if no result depends on the tensors that require grad."""
    try:
        joint, count = _joint(case)
    except Exception as error:
        raise case.failure(
            "its gradient cannot be traced",
            {"raised": "\n".join([error_text(error), *getattr(error, "__notes__", ())])},
            "A rule has the operator's signature, computes and returns its result, gets cotangents with "
            "get_grad(result) and puts gradients with put_grads(arguments, gradients), each with the shape "
            "and dtype of its argument.",
        ) from error
    expected = expected_gradients(case)
    if joint is None:
        _check_declared(case)
        return False
    if expected is None:
        raise _not_differentiable(case)
    if len(expected.cotangents) != count:
        raise case.failure(
            "other results require grad than those of the reference",
            {"reference": len(expected.cotangents), "operator": count},
            "The meta function marks a result without gradient: TensorProxy(…, requires_grad=False).",
        )
    results, gradients = _run(case, joint, expected)
    if case.call.promises_values:
        _compare_results(case, results, expected)
        compare_gradients(case, dict(enumerate(gradients)), expected)
    return True


def _check_declared(case: GradientCase) -> None:
    """Check that an operator with a gradient rule has a result that requires grad."""
    if case.without_gradient and case.subject.info.grad_transform is not None:
        raise case.failure(
            "it has a gradient rule, and all of its results are declared without gradient",
            {},
            "Leave out requires_grad=False in the meta function, or the rule.",
        )


def _run(case: GradientCase, joint: TraceCtx, expected: Expected) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the results and gradients that the joint trace computes."""
    cotangents = [LAYOUTS[case.layout](x.clone()) for x in expected.cotangents]
    inputs = case.call.sample.copy().tensors
    before = [x.clone() for x in (*inputs, *cotangents)]
    try:
        with seeded():
            results, gradients = lowered(joint, case.subject.executor).run(*inputs, *cotangents)
    except Exception as error:
        raise case.failure(
            "its gradient fails when it runs",
            {"raised": error_text(error), "cotangents": described(cotangents)},
            "A cotangent may be expanded, with strides of 0, as that of a sum: call contiguous() on it if a "
            "kernel needs that.",
        ) from error
    if not all(map(same_bits, (*inputs, *cotangents), before)):
        raise case.failure(
            "its gradient changes an argument or a cotangent",
            {"cotangents": described(cotangents)},
            "Write to fresh memory: other gradients read the same cotangent.",
        )
    return results, gradients


def _joint(case: GradientCase) -> tuple[TraceCtx | None, int]:
    """Return the joint trace of the call and how many results it differentiates; None if there are none."""
    subject = case.subject
    traced = trace_call(subject.symbol, case.call.sample, requiring_grad=case.requiring_grad)
    trace = _returning_differentiable(traced.trace)
    results = differentiable_outputs(trace)
    if not results:
        return None, 0
    executors = (subject.executor, *(ex for ex in get_always_executors() if ex != subject.executor))
    return joint_trace(differentiate(trace, executors), results), len(results)


def _returning_differentiable(trace: TraceCtx) -> TraceCtx:
    """Return the program with a flat tuple of the results that require grad as its result."""
    new = from_trace(trace)
    new.bound_symbols = [b for b in trace.bound_symbols if b.sym.id != PrimIDs.RETURN]
    with tracectx(new):
        inputs = {p.name for p in trace.args}
        prims.python_return(
            tuple(
                x
                for x in {id(x): x for x in tree_iter(trace.output)}.values()
                if isinstance(x, TensorProxy) and x.requires_grad and x.name not in inputs
            )
        )
    return new


# -- the reference -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Expected:
    """The reference's results, their cotangents, and its gradients: in float64, and in the call's dtypes."""

    results: Sequence[torch.Tensor]
    cotangents: Sequence[torch.Tensor]
    exact: Sequence[torch.Tensor | None]
    eager: Sequence[torch.Tensor | None]


def expected_gradients(case: GradientCase) -> Expected | None:
    """Return torch's results and gradients of a case, or None if torch does not differentiate it."""
    if case.subject.reference is None:
        raise NothingToTest(
            f"{case.subject.id} has no reference: pass references={{{case.subject.id!r}: a function}}"
        )
    try:
        results, eager, cotangents = _by_torch(case, case.call.sample, None)
    except (RuntimeError, TypeError, ValueError):
        return None
    if eager is None:
        return None
    try:
        _, exact, _ = _by_torch(case, cast(case.call.sample, torch.float64), cotangents)
    except (RuntimeError, TypeError, ValueError):  # the reference refuses float64
        exact = eager
    return Expected(results, cotangents, exact if exact is not None else eager, eager)


def _not_differentiable(case: GradientCase) -> Exception:
    return case.failure(
        "its gradient cannot be checked, since torch cannot differentiate the reference",
        {"reference": case.subject.reference},
        f"Pass references={{{case.subject.id!r}: a function of torch's operators}} that computes the same.",
    )


def _by_torch(
    case: GradientCase, sample: Sample, cotangents: Sequence[torch.Tensor] | None
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor | None] | None, Sequence[torch.Tensor]]:
    """Return the results, torch's gradients, and the cotangents, which are drawn if None."""
    sample = sample.copy()
    inputs = [sample.tensors[i].requires_grad_() for i in case.requiring_grad]
    with seeded(SEED), torch.enable_grad():
        out = case.call.evaluate(sample)
    input_ids = {id(x) for x in inputs}
    tensors = [
        x for x in tree_iter(tuple(out) if isinstance(out, tuple) else out) if isinstance(x, torch.Tensor)
    ]
    left_out = case.without_gradient if case.call.is_single else frozenset()
    results = [
        x
        for x in {id(x): x for i, x in enumerate(tensors) if i not in left_out}.values()
        if x.requires_grad and id(x) not in input_ids
    ]
    if not results:
        return (), None, ()
    generator = torch.Generator().manual_seed(3)
    if cotangents is None:
        cotangents = [_draw(x, case, generator) for x in results]
    grads = torch.autograd.grad(
        results, inputs, [c.to(x.dtype) for c, x in zip(cotangents, results, strict=True)], allow_unused=True
    )
    return [x.detach() for x in results], grads, cotangents


def _draw(x: torch.Tensor, case: GradientCase, generator: torch.Generator) -> torch.Tensor:
    if case.layout == "expanded":
        return torch.full(x.shape, 0.75, dtype=x.dtype, device=x.device)
    return torch.randn(x.shape, dtype=x.dtype, generator=generator).to(x.device)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor of equal elements as one expanded element."""
    return x.flatten()[0].expand(x.shape) if x.numel() else x


#: layouts of cotangents; each occurs in ordinary programs
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "usual": lambda x: x,
    "expanded": _expanded,
    "scattered": scattered,
}


# -- comparison ----------------------------------------------------------------------------------------------


def _compare_results(case: GradientCase, results: Sequence[Any], expected: Expected) -> None:
    for i, (x, y) in enumerate(zip(results, expected.results, strict=True)):
        if not isinstance(x, torch.Tensor):
            fault: str | None = f"{x!r} is not a tensor"
        else:
            fault = case.judge.fault(x, Reference(exact=y, eager=y))
        if fault is not None:
            raise case.failure(
                f"result {i} is wrong when a gradient is needed",
                {"against the reference": fault},
                "The rule also computes and returns the result, the same as without a gradient.",
            )


def compare_gradients(case: GradientCase, gradients: Mapping[int, Any], expected: Expected) -> None:
    """Raise the failure for the first gradient, by position of its tensor, that is not torch's."""
    tensors = case.call.sample.tensors
    for i, exact, eager in zip(case.requiring_grad, expected.exact, expected.eager, strict=True):
        ours, x = gradients[i], tensors[i]
        if ours is None:
            if exact is not None and bool(exact.abs().max() > 0 if exact.numel() else False):
                raise case.failure(
                    f"it puts no gradient for tensor {i} of the call",
                    {"tensor": described(x), "torch's gradient": described(exact)},
                    "Put a gradient for every argument that can require grad.",
                )
            continue
        if not isinstance(ours, torch.Tensor) or _type(ours) != _type(x):
            raise case.failure(
                f"the gradient of tensor {i} of the call has another type than the tensor",
                {"tensor": described(x), "gradient": described(ours)},
                "A gradient has the shape, dtype and device of its argument, and a kernel's result those of "
                "its meta function.",
            )
        exact = torch.zeros_like(x) if exact is None else exact
        eager = torch.zeros_like(x) if eager is None else eager
        fault = case.judge.fault(ours, Reference(exact=exact, eager=eager))
        if fault is not None:
            raise case.failure(
                f"the gradient of tensor {i} of the call is wrong",
                {"tensor": described(x), "against torch's autograd in float64": fault},
                "Check the rule, and which cotangent belongs to which argument.",
            )


def _type(x: torch.Tensor) -> tuple[Any, ...]:
    return x.shape, x.dtype, x.device
