"""The case about gradients: those that an executor brings are torch's, for each argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.autograd.joint_trace import differentiable_outputs, differentiate, joint_trace
from thunder.base.pytree import tree_iter
from thunder.base.structural_ids import RETURN
from thunder.extend import get_always_executors
from thunder.ir.requires_grad import requires_grad
from thunder.ir.trace import TraceCtx, from_trace, tracectx
from thunder.ops import prims
from thunder.testing.conformance_failure import NothingToJudge, definition_of, described
from thunder.testing.sample_call import SEED, Call, lowered, record, seeded
from thunder.testing.samples import Sample, cast, scattered
from thunder.testing.subjects import Subject
from thunder.testing.tolerances import difference, same_bits

__all__ = ["gradients_are_right"]

#: how many calls are differentiated
MOST = 5


@dataclass(frozen=True, eq=False)
class Question:
    """Which gradients of a call are asked for: of which of its tensors, by cotangents in which memory."""

    call: Call
    wanted: tuple[int, ...]
    layout: str = "usual"

    @property
    def subject(self) -> Subject:
        """The operator."""
        return self.call.subject

    def failure(self, what: str, found: dict[str, object], hint: str) -> Exception:
        """The error that says what is wrong, and what was asked."""
        asked = f"tensors {', '.join(map(str, self.wanted))}, by cotangents in {self.layout} memory"
        return self.subject.failure(
            what,
            self.call,
            found={"gradients asked for": asked, **found},
            where=definition_of(self.subject.info.grad_transform) or self.subject.where,
            hint=hint,
        )


def gradients_are_right(subject: Subject) -> None:
    """The gradient of each argument, asked for alone and together, is the one that torch's autograd gives
    for the reference in float64.
    """
    judged = 0
    for call in subject.calls:
        floating = tuple(
            i for i, x in enumerate(call.sample.tensors) if x.is_floating_point() or x.is_complex()
        )
        if call.is_run and floating and judged < MOST:
            answers = [_judge(question) for question in _questions(call, floating, judged)]
            judged += any(answers)
    if not judged:
        raise NothingToJudge(
            f"no sample of {subject.id} has a result that depends on a floating-point argument"
        )


def _questions(call: Call, floating: tuple[int, ...], number: int) -> Iterator[Question]:
    yield Question(call, floating)
    if number == 0:
        yield Question(call, floating, "expanded")
        yield Question(call, floating, "scattered")
        if len(floating) > 1:
            for i in floating:
                yield Question(call, (i,))


def _judge(question: Question) -> bool:
    """Judges one question about a call; False where nothing of it depends on what is asked about."""
    try:
        joint, count = _joint(question)
    except Exception as error:
        raise question.failure(
            "its gradient cannot be written",
            {"raised": "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])},
            "A rule has the operator's signature, computes and returns its result, takes gradients with "
            "get_grad(result) and gives them with put_grads(arguments, gradients), each of its argument's "
            "shape and dtype.",
        ) from error
    if joint is None:
        return False
    expected = _expected(question)
    if len(expected.cotangents) != count:
        raise question.failure(
            "other results require grad than those of the reference",
            {"reference": len(expected.cotangents), "operator": count},
            "A result that carries no gradient says so in the meta function: TensorProxy(…, "
            "requires_grad=False).",
        )
    results, gradients = _run(question, joint, expected)
    if question.call.promises_values:
        _compare_results(question, results, expected)
        _compare(question, gradients, expected)
    return True


def _run(question: Question, joint: TraceCtx, expected: Expected) -> tuple[Sequence[Any], Sequence[Any]]:
    """The results and gradients that the joint program gives."""
    given = [LAYOUTS[question.layout](x.clone()) for x in expected.cotangents]
    inputs = question.call.sample.copy().tensors
    before = [x.clone() for x in (*inputs, *given)]
    try:
        with seeded():
            results, gradients = lowered(joint, question.subject.executor).run(*inputs, *given)
    except Exception as error:
        raise question.failure(
            "its gradient fails when it runs",
            {"raised": f"{type(error).__name__}: {error}", "cotangents": described(given)},
            "A cotangent may be expanded memory with strides of 0, as that of a sum is: call contiguous() "
            "on it where a kernel needs that.",
        ) from error
    if not all(map(same_bits, (*inputs, *given), before)):
        raise question.failure(
            "its gradient changes an argument or a cotangent",
            {"cotangents": described(given)},
            "Write to fresh memory: others read the same cotangent.",
        )
    return results, gradients


def _joint(question: Question) -> tuple[TraceCtx | None, int]:
    """The program of the call with its gradient, and how many results it differentiates; None for none."""
    subject = question.subject
    recording = record(subject.symbol, question.call.sample, requiring_grad=question.wanted)
    trace = _returning_differentiable(recording.trace)
    results = differentiable_outputs(trace)
    if not results:
        return None, 0
    executors = (subject.executor, *(ex for ex in get_always_executors() if ex != subject.executor))
    return joint_trace(differentiate(trace, executors), results), len(results)


def _returning_differentiable(trace: TraceCtx) -> TraceCtx:
    """The program, which returns a flat tuple of its results that require grad."""
    new = from_trace(trace)
    new.bound_symbols = [b for b in trace.bound_symbols if b.sym.id != RETURN]
    with tracectx(new):
        inputs = {p.name for p in trace.args}
        prims.python_return(
            tuple(
                x
                for x in {id(x): x for x in tree_iter(trace.output)}.values()
                if requires_grad(x) and x.name not in inputs
            )
        )
    return new


# -- what is right -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Expected:
    """The reference's results, cotangents for them, and its gradients: exact, and in the call's dtypes."""

    results: Sequence[torch.Tensor]
    cotangents: Sequence[torch.Tensor]
    exact: Sequence[torch.Tensor | None]
    eager: Sequence[torch.Tensor | None]


def _expected(question: Question) -> Expected:
    subject, sample = question.subject, question.call.sample
    reference = subject.reference
    if reference is None:
        raise NothingToJudge(
            f"{subject.id} has no reference; pass references={{{subject.id!r}: a function of torch}}"
        )
    results, eager, drawn = _by_torch(reference, sample, question, None)
    if eager is None:
        raise question.failure(
            "its gradient cannot be judged, for torch cannot differentiate the reference",
            {"reference": reference},
            f"Pass references={{{subject.id!r}: a function of torch's own operators}} that computes the "
            "same.",
        )
    try:
        _, exact, _ = _by_torch(reference, cast(sample, torch.float64), question, drawn)
    except (RuntimeError, TypeError, ValueError):  # a reference that does not take float64 is its own judge
        exact = eager
    return Expected(results, drawn, exact if exact is not None else eager, eager)


def _by_torch(
    reference: Callable[..., Any],
    sample: Sample,
    question: Question,
    cotangents: Sequence[torch.Tensor] | None,
) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor | None] | None, Sequence[torch.Tensor]]:
    """The results, torch's gradients of the wanted tensors, and the cotangents, drawn if not given."""
    sample = sample.copy()
    inputs = [sample.tensors[i].requires_grad_() for i in question.wanted]
    with seeded(SEED), torch.enable_grad():
        out = reference(*sample.args, **sample.kwargs)
    given = {id(x) for x in inputs}
    results = [
        x
        for x in {id(x): x for x in tree_iter(tuple(out) if isinstance(out, tuple) else out)}.values()
        if isinstance(x, torch.Tensor) and x.requires_grad and id(x) not in given
    ]
    if not results:
        return (), None, ()
    generator = torch.Generator().manual_seed(3)
    if cotangents is None:
        cotangents = [_draw(x, question, generator) for x in results]
    grads = torch.autograd.grad(
        results, inputs, [c.to(x.dtype) for c, x in zip(cotangents, results, strict=True)], allow_unused=True
    )
    return [x.detach() for x in results], grads, cotangents


def _draw(x: torch.Tensor, question: Question, generator: torch.Generator) -> torch.Tensor:
    if question.layout == "expanded":
        return torch.full(x.shape, 0.75, dtype=x.dtype, device=x.device)
    return torch.randn(x.shape, dtype=x.dtype, generator=generator).to(x.device)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    """The tensor, all of whose elements are equal, as one element that is repeated."""
    return x.flatten()[0].expand(x.shape) if x.numel() else x


#: how cotangents lie in memory: each of these reaches a backward in ordinary programs
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "usual": lambda x: x,
    "expanded": _expanded,
    "scattered": scattered,
}


# -- the verdict ---------------------------------------------------------------------------------------------


def _compare_results(question: Question, results: Sequence[Any], expected: Expected) -> None:
    for i, (x, y) in enumerate(zip(results, expected.results, strict=True)):
        if not isinstance(x, torch.Tensor):
            fault: str | None = f"{x!r} is no tensor"
        else:
            fault = difference(x, y, y, *(4 * t for t in question.subject.settings.tolerance(y.dtype)))
        if fault is not None:
            raise question.failure(
                f"result {i} is wrong where a gradient is needed",
                {"against the reference": fault},
                "The rule computes the result too, and returns it: the same as without a gradient.",
            )


def _compare(question: Question, gradients: Sequence[Any], expected: Expected) -> None:
    tensors = question.call.sample.tensors
    for i, exact, eager in zip(question.wanted, expected.exact, expected.eager, strict=True):
        ours, x = gradients[i], tensors[i]
        if ours is None:
            if exact is not None and bool(exact.abs().max() > 0 if exact.numel() else False):
                raise question.failure(
                    f"it gives no gradient for tensor {i} of the call",
                    {"tensor": described(x), "torch's gradient": described(exact)},
                    "put_grads takes every argument that can require grad.",
                )
            continue
        if not isinstance(ours, torch.Tensor) or _type(ours) != _type(x):
            raise question.failure(
                f"the gradient of tensor {i} of the call has another type than the tensor",
                {"tensor": described(x), "gradient": described(ours)},
                "A gradient has the shape, dtype and device of its argument, and a kernel what its meta "
                "function says.",
            )
        exact = torch.zeros_like(x) if exact is None else exact
        eager = torch.zeros_like(x) if eager is None else eager
        rtol, atol = question.subject.settings.tolerance(x.dtype)
        fault = difference(ours, eager, exact, 4 * rtol, 4 * atol)
        if fault is not None:
            raise question.failure(
                f"the gradient of tensor {i} of the call is wrong",
                {"tensor": described(x), "against torch's autograd in float64": fault},
                "Check the rule, and which cotangent belongs to which argument.",
            )


def _type(x: torch.Tensor) -> tuple[Any, ...]:
    return x.shape, x.dtype, x.device
