"""Small programs of which fusion executors make regions: calls of an operator, and what is around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from thunder.core import prims
from thunder.core.langctxs import TORCH, using_language
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.pytree import tree_iter, tree_map
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.trace import TraceCtx, tracectx
from thunder.extend import OperatorExecutor, Refusal
from thunder_testing.conformance_failure import described
from thunder_testing.reproduction import call_text, function_of, operator_lines
from thunder_testing.sample_call import SampleCall
from thunder_testing.sample_lowering import TracedCall, plain, proxy_of
from thunder_testing.samples import Sample

if TYPE_CHECKING:
    from thunder_testing.subjects import Subject

__all__ = ["OPAQUE", "PROGRAMS", "RegionCall", "region_calls"]


def half(x: torch.Tensor) -> torch.Tensor:
    """Return half of a tensor, each row in the reverse order, so that comparisons differ."""
    return (x * 0.5).flip(-1) if x.ndim else x * 0.5


#: an operator that no fusion executor supports, to separate operators that it supports
OPAQUE = OperatorExecutor("conformance").register_operator(
    "opaque", meta=lambda x: TensorProxy(like=x), fn=half, replace=True, autocast=None
)


def _called_with(symbol: Symbol, sample: Sample, tensors: Sequence[TensorProxy]) -> Any:
    """Make the call of a sample on other tensors; return its result."""
    args, kwargs = sample.with_tensors(dict(zip(map(id, sample.tensors), tensors, strict=True)))
    return symbol(*args, **kwargs)


class CallTemplate:
    """A call of a fusible operator, of which programs are composed; `f` makes it on other tensors."""

    def __init__(self, symbol: Symbol, sample: Sample, proxies: Sequence[TensorProxy]) -> None:
        self.symbol, self.sample, self.x = symbol, sample, list(proxies)

    def f(self, *tensors: TensorProxy) -> Any:
        """Make the call with these tensors in place of its first ones; return its result."""
        return _called_with(self.symbol, self.sample, (*tensors, *self.x[len(tensors) :]))

    def first(self, *tensors: TensorProxy) -> TensorProxy:
        """Make the call; return the first tensor of its result."""
        return next(x for x in tree_iter(self.f(*tensors)) if isinstance(x, TensorProxy))

    def fits(self, y: TensorProxy) -> bool:
        """Return whether `y` can be the first tensor of the call."""
        return (tuple(y.shape), y.dtype) == (tuple(self.x[0].shape), self.x[0].dtype)

    def again(self, y: TensorProxy) -> TensorProxy:
        """Make the call with `y` as its first tensor."""
        if not self.fits(y):
            raise DoesNotFitError
        return self.first(y)


class DoesNotFitError(Exception):
    """A program cannot be composed of this operator, whose results differ in type from its arguments."""


def _opaque_of(x: TensorProxy) -> TensorProxy:
    if not x.dtype.is_floating_point:
        raise DoesNotFitError
    return OPAQUE(x)  # type: ignore[no-any-return]


#: how many calls the longest program has, and of how many variants there is one
LONG, MAX_LONG = 20, 40


def _chain(b: CallTemplate) -> Any:
    return b.again(b.again(b.first()))


def _intermediate_too(b: CallTemplate) -> Any:
    y = b.first()
    return y, b.again(y)


def _unused(b: CallTemplate) -> Any:
    b.f()
    return b.first(_opaque_of(b.x[0]))


def _same_input(b: CallTemplate) -> Any:
    alike = [b.x[0] if b.fits(x) else x for x in b.x]
    return b.f(*alike), b.f(*alike)


def _other_order(b: CallTemplate) -> Any:
    y, z = b.first(), b.first(_opaque_of(b.x[0]))
    return z, y, b.x[0]


def _returned_twice(b: CallTemplate) -> Any:
    y = b.first()
    return y, y


def _interrupted(b: CallTemplate) -> Any:
    y = b.first()
    k = _opaque_of(y)
    z = b.again(k)
    return z, b.again(y)


def _diamond(b: CallTemplate) -> Any:
    y = b.first()
    left, right = _opaque_of(b.again(y)), b.again(y)
    return b.again(left), b.again(right)


def _long_chain(b: CallTemplate) -> Any:
    values = [b.first()]
    for _ in range(LONG - 1):
        values.append(b.again(values[-1]))
    return values[-1], values[3]


def _written(b: CallTemplate) -> Any:
    later = _opaque_of(b.x[0])
    y = b.first()
    if not b.fits(y):
        raise DoesNotFitError
    prims.copy_(later, b.x[0], grad_enabled=False)
    return b.first(y)


def _written_later(b: CallTemplate) -> Any:
    later = [_opaque_of(x) for x in b.x if x.dtype.is_floating_point]
    if not later:
        raise DoesNotFitError
    result = b.f()
    targets = (x for x in b.x if x.dtype.is_floating_point)
    for value, target in zip(later, targets, strict=True):
        prims.copy_(value, target, grad_enabled=False)
    return result, [_opaque_of(y) for y in tree_iter(result) if _is_floating(y)]


def _view_written_later(b: CallTemplate) -> Any:
    if not _is_floating(b.x[-1]):
        raise DoesNotFitError
    later = _opaque_of(b.x[-1])
    view = prims.broadcast_in_dim(b.x[-1], (1, *b.x[-1].shape), tuple(range(1, b.x[-1].ndim + 1)))
    value = prims.broadcast_in_dim(later, (1, *later.shape), tuple(range(1, later.ndim + 1)))
    result = b.f()
    prims.copy_(value, view, grad_enabled=False)
    return result, [_opaque_of(y) for y in tree_iter(result) if _is_floating(y)]


def _is_floating(x: Any) -> bool:
    return isinstance(x, TensorProxy) and bool(x.dtype.is_floating_point)


def _written_and_read(b: CallTemplate) -> Any:
    y = b.first()
    if not b.fits(y):
        raise DoesNotFitError
    prims.copy_(y, b.x[0], grad_enabled=False)
    return b.first(), y


#: what a fusion may get wrong → a program with it
PROGRAMS: dict[str, Callable[[CallTemplate], Any]] = {
    "one call": lambda b: b.f(),
    "a chain of calls": _chain,
    "a result that is also an argument": _intermediate_too,
    "a result that is not read": _unused,
    "the same tensor for several arguments": _same_input,
    "results in another order than the calls": _other_order,
    "a result that is returned twice": _returned_twice,
    "a call of another executor between two calls": _interrupted,
    "two ways to a result, one by another executor": _diamond,
    "a long chain of calls": _long_chain,
    "a write to an argument between two calls": _written,
    "a write to an argument that is read again": _written_and_read,
    "writes to the arguments after the call": _written_later,
    "a write to a view of an argument after the call": _view_written_later,
}

#: the programs of variants of a sample: the layout or type of one argument shows in these
OF_VARIANTS = ("a result that is also an argument", "one call")

#: the programs of a sample in another dtype, or with special values: a long region may compute in another way
OF_FIRST_VARIANTS = (*OF_VARIANTS, "a long chain of calls")


def _followed_by(other: Symbol, sample: Sample) -> Callable[[CallTemplate], Any]:
    """Return the program in which another operator takes the result and the argument of a call."""

    def program(b: CallTemplate) -> Any:
        y = b.first()
        z = of(b.x[0], y)
        before = [b.f(z)] if isinstance(z, TensorProxy) and b.fits(z) else []
        return of(y, b.x[0]), z, y, before

    def of(first: TensorProxy, rest: TensorProxy) -> Any:
        values = [first, *([rest] * len(sample.tensors))][: len(sample.tensors)]
        return _called_with(other, sample, values)

    return program


class RegionCall(SampleCall):
    """A program of a sample call that a fusion executor may make regions of.

    `other` is the second operator of the program, if it has one.
    """

    def __init__(
        self,
        subject: Subject,
        sample: Sample,
        name: str,
        program: Callable[[CallTemplate], Any],
        other: Subject | None = None,
    ) -> None:
        super().__init__(subject, sample)
        self.program_text, self.compose = f"a program with {name}", program
        self.name, self.other = name, other

    def like(self, sample: Sample) -> RegionCall:
        """Return the same program of another sample."""
        return RegionCall(self.subject, sample, self.name, self.compose, self.other)

    @cached_property
    def traced(self) -> TracedCall:
        """The program on proxies; `bsym` is its return statement."""
        trace, tensors = TraceCtx(), self.sample.tensors
        with tracectx(trace), using_language(TORCH), torch.no_grad():
            trace.args = [proxy_of(x) for x in tensors]
            result = self.compose(CallTemplate(self.subject.symbol, self.sample, trace.args))
            prims.python_return(plain(result))
        return TracedCall(trace, trace.bound_symbols[-1], tensors)

    @property
    def is_other_operator(self) -> bool:
        """Whether the program lacks the operator, because a call of it returned an argument."""
        return all(b.sym.id != self.subject.id for b in self.traced.trace.bound_symbols)

    @property
    def is_composed(self) -> bool:
        """Whether the program can be made of the operator, which may refuse its own result."""
        return self.tracing_error is None and not self.is_other_operator

    @cached_property
    def answer(self) -> bool | Refusal:
        """True: a program is made of calls that the executor claims."""
        return True

    def compile_again(self) -> Any:
        """Trace and lower the program once more."""
        return self.like(self.sample).program

    @property
    def is_fused(self) -> bool:
        """Whether the executor made a region of calls of the operator."""
        return self.has_fused(self.subject.id)

    def has_fused(self, operator_id: str) -> bool:
        """Return whether the executor made a region with a call of an operator."""
        return any(_has_operator(b, operator_id) or not b.subsymbols for b in self.fusions())

    def fusions(self) -> list[BoundSymbol]:
        """Return the calls of regions that the executor made."""
        calls = self.program.trace.bound_symbols
        return [b for b in calls if b.sym.is_fusion and b.sym.executor == self.subject.executor]

    def may_alias(self, ours: set[str], theirs: set[str]) -> bool:
        """Return whether results may share this memory: each result of a fusion has its own."""
        return ours <= theirs

    def evaluate(self, sample: Sample) -> Any:
        """Return the result of the program in eager torch, on a sample's own tensors."""
        namespace = {"OPAQUE": half, "op": self.subject.reference}
        if self.other is not None:
            namespace["other_op"] = self.other.reference
        return function_of(self, namespace, has_setup=False)(*sample.tensors)

    def body(self, names: dict[int, str]) -> tuple[list[str], list[str]]:
        """Return the statements of the program, and lines that define its operators."""
        texts = {
            p.name: names[id(x)] for p, x in zip(self.traced.trace.args, self.sample.tensors, strict=True)
        }
        setup: list[str] = []
        lines: list[str] = []
        for bsym in self.traced.trace.bound_symbols:
            lines.append(self._statement(bsym, texts, setup))
        return list(dict.fromkeys(setup)), lines

    def _statement(self, bsym: BoundSymbol, texts: dict[str, str], setup: list[str]) -> str:
        named, kwargs = tree_map(
            lambda x: _Name(texts.get(x.name, x.name)) if is_proxy(x) else x, (bsym.args, bsym.kwargs)
        )
        if bsym.sym is prims.python_return:
            return "return " + ", ".join(map(repr, named))
        if bsym.sym is prims.copy_:
            return f"{named[1]!r}.copy_({named[0]!r})"
        if bsym.sym is OPAQUE:
            setup.append(
                "from thunder_testing.region_programs import OPAQUE  # (x * 0.5).flip(-1), not fused"
            )
            callee = "OPAQUE"
        else:
            more, callee = operator_lines(bsym.sym.id, self.subject.executor)
            if callee == "op" and self.other is not None and bsym.sym.id == self.other.id:
                more, callee = [line.replace("op = ", "other_op = ", 1) for line in more], "other_op"
            setup += more
        targets = tree_map(lambda p: _Name(p.name), bsym.output) if bsym.output is not None else None
        return f"{targets!r} = {call_text(callee, tuple(named), kwargs, {})}"

    def __str__(self) -> str:
        names = {id(x): f"x{i}" for i, x in enumerate(self.sample.tensors)}
        arguments = ", ".join(described(x) for x in self.sample.tensors)
        body = "".join(f"\n    {line}" for line in self.body(names)[1])
        return f"f({arguments}) with\ndef f({', '.join(names.values())}):{body}"


def _has_operator(bsym: BoundSymbol, operator_id: str) -> bool:
    return any(b.sym.id == operator_id or _has_operator(b, operator_id) for b in bsym.subsymbols)


class _Name:
    """A name in generated text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def region_calls(subject: Subject, others: Sequence[Subject]) -> Iterator[RegionCall]:
    """Yield the programs of an operator: of its first samples, of variants, and with other operators."""
    calls = [c for c in subject.calls if c.is_claimed and c.sample.tensors]
    plain_calls = [c for c in calls if not c.sample.variant]
    small = [call for call in plain_calls if not call.sample.is_large]
    largest = max(small, key=lambda call: sum(x.numel() for x in call.sample.tensors), default=None)
    for call in dict.fromkeys((*plain_calls[:3], *((largest,) if largest is not None else ()))):
        yield from _composed(subject, call.sample, PROGRAMS)
    for call in plain_calls[:1]:
        for other in others:
            theirs = next((c.sample for c in other.calls if c.is_claimed and c.sample.tensors), None)
            if theirs is not None and other.id != subject.id:
                name = f"a call of {other.id} on the result"
                program = _followed_by(other.symbol, theirs)
                yield from _composed(subject, call.sample, {name: program}, other)
    variants = [call for call in calls if call.sample.variant]
    for number, call in enumerate(variants):
        names = OF_FIRST_VARIANTS if number < MAX_LONG and not call.sample.is_large else OF_VARIANTS
        yield from _composed(subject, call.sample, {name: PROGRAMS[name] for name in names})


def _composed(
    subject: Subject,
    sample: Sample,
    programs: dict[str, Callable[[CallTemplate], Any]],
    other: Subject | None = None,
) -> Iterator[RegionCall]:
    for name, program in programs.items():
        call = RegionCall(subject, sample, name, program, other)
        if call.is_composed and call.reference_error is None:
            yield call
