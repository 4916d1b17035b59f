"""A sample call and the steps of its compilation: traced, offered to the executor, lowered, run.

Each step is taken when its result is first needed. One case reports the exceptions of one step
(`tracing_error`, `checker_error`, `lowering_error`, `running_error`); the others leave such calls out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.langctx import TORCH, using_language
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.executor_base.executor import Executor, Refusal
from thunder.extend import get_always_executors
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ir.verify import check_trace
from thunder.ops import prims
from thunder.passes.claim import claim
from thunder.passes.fallback_claim import claim_rest
from thunder.passes.fuse import fuse
from thunder.passes.placement import Placement
from thunder.testing.conformance_failure import described_call
from thunder.testing.samples import Sample, cast

if TYPE_CHECKING:
    from thunder.testing.subjects import Subject

__all__ = [
    "LoweredProgram",
    "Outcome",
    "SampleCall",
    "TracedCall",
    "lowered",
    "plain",
    "proxy_of",
    "seeded",
    "trace_call",
]

SEED = 42

#: operators whose results are uninitialised memory
UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided")


@dataclass(frozen=True, eq=False)
class TracedCall:
    """A program of one call: its trace, the call, and the tensors of its arguments.

    A call that returned an argument recorded nothing, and `bsym` is the return statement.
    """

    trace: TraceCtx
    bsym: BoundSymbol
    tensors: list[torch.Tensor]


@dataclass(frozen=True, eq=False)
class LoweredProgram:
    """A lowered program: its final trace, the executor of each call, and two functions of the tensors.

    `run` is the function of a compile; `bare` lacks its decorators, which hide changes of torch's modes.
    """

    trace: TraceCtx
    placements: Sequence[Placement]
    run: Callable[..., Any]
    bare: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run: its arguments, copies of them from before the run, and its result."""

    given: list[torch.Tensor]
    before: list[torch.Tensor]
    result: Any


def proxy_of(x: torch.Tensor, *, device: Any = None, requires_grad: bool = False) -> TensorProxy:
    """Return the proxy of a tensor."""
    return TensorProxy(like=x, device=device, requires_grad=requires_grad, strides=x.stride())


def trace_call(
    symbol: Symbol, sample: Sample, *, device: Any = None, requiring_grad: Iterable[int] = ()
) -> TracedCall:
    """Trace the program that makes the call and returns its result.

    `requiring_grad` are positions among the sample's tensors; `device` is the device of the proxies.
    """
    trace, positions = TraceCtx(), set(requiring_grad)
    with tracectx(trace), using_language(TORCH), torch.set_grad_enabled(bool(positions)):
        proxies = {
            id(x): proxy_of(x, device=device, requires_grad=i in positions)
            for i, x in enumerate(sample.tensors)
        }
        trace.args = list(proxies.values())
        args, kwargs = tree_map(lambda x: proxies.get(id(x), x), (tuple(sample.args), dict(sample.kwargs)))
        out = symbol(*args, **kwargs)
        prims.python_return(plain(out))
    return TracedCall(trace, trace.bound_symbols[0], sample.tensors)


def plain(tree: Any) -> Any:
    """Return a result with plain tuples in place of torch's named tuples, as programs return them."""
    if isinstance(tree, tuple):
        return tuple(plain(x) for x in tree)
    return [plain(x) for x in tree] if isinstance(tree, list) else tree


def lowered(trace: TraceCtx, executor: Executor) -> LoweredProgram:
    """Lower a program as a compile with this executor and the fallback executors would."""
    last = get_always_executors()
    executors = (executor, *(ex for ex in last if ex != executor))
    claimed, placements = claim(trace, executors)
    final, placements = claim_rest(fuse(claimed, executors), last, placements)
    check_trace(final)
    return LoweredProgram(final, placements, final.python_callable(), final.python_callable(decorated=False))


@contextmanager
def seeded(seed: int = SEED) -> Iterator[None]:
    """Seed torch's CPU generator within a context; its state is restored afterwards."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        yield


class SampleCall:
    """One sample call of a subject."""

    def __init__(self, subject: Subject, sample: Sample) -> None:
        self.subject, self.sample = subject, sample

    def __str__(self) -> str:
        return described_call(self.subject.symbol.name, self.sample.args, self.sample.kwargs)

    # -- steps

    @cached_property
    def traced(self) -> TracedCall:
        """The call, traced on proxies."""
        return trace_call(self.subject.symbol, self.sample)

    @cached_property
    def tracing_error(self) -> Exception | None:
        """The exception of the meta function or of the operator's decomposition."""
        return _raised(lambda: self.traced)

    @property
    def is_other_operator(self) -> bool:
        """Whether the call recorded nothing, or another operator."""
        return self.tracing_error is None and self.traced.bsym.sym.id != self.subject.id

    @cached_property
    def answer(self) -> bool | Refusal:
        """The executor's answer for the call."""
        return self.subject.executor.can_execute_or_fuse(self.traced.bsym)

    @cached_property
    def checker_error(self) -> Exception | None:
        """The exception of the checker."""
        return None if self.tracing_error else _raised(lambda: self.answer)

    @cached_property
    def is_claimed(self) -> bool:
        """Whether the executor claims the call."""
        return self.tracing_error is None and self.checker_error is None and self.answer is True

    @cached_property
    def program(self) -> LoweredProgram:
        """The lowered program, in which the executor runs the call."""
        return lowered(self.traced.trace, self.subject.executor)

    @cached_property
    def lowering_error(self) -> Exception | None:
        """The exception of an execution transform, a fusion pass or the checks of their traces."""
        return _raised(lambda: self.program) if self.is_claimed else None

    @cached_property
    def outcome(self) -> Outcome:
        """The first run."""
        return self.run()

    @cached_property
    def running_error(self) -> Exception | None:
        """The exception of the first run."""
        return _raised(lambda: self.outcome) if self.is_claimed and self.lowering_error is None else None

    @property
    def is_run(self) -> bool:
        """Whether the executor claimed the call and it ran."""
        return self.is_claimed and self.lowering_error is None and self.running_error is None

    def run(self, fn: Callable[..., Any] | None = None, seed: int = SEED) -> Outcome:
        """Run the program on copies of the sample's tensors."""
        given = self.sample.copy().tensors
        before = [_copy(x) for x in given]
        with seeded(seed):
            result = (fn or self.program.run)(*given)
        return Outcome(given, before, result)

    # -- the reference

    @cached_property
    def is_random(self) -> bool:
        """Whether the operator is tagged as one that draws random numbers."""
        return self.tracing_error is None and has_tags(self.traced.bsym, (OpTags.RANDOM_OP,))

    @property
    def promises_values(self) -> bool:
        """Whether results are the same whenever the arguments are."""
        return not self.is_random and self.subject.symbol.name not in UNINITIALISED

    @cached_property
    def eager(self) -> Outcome | None:
        """The run of the reference, or None without one."""
        return self._reference_on(self.sample)

    @cached_property
    def reference_error(self) -> Exception | None:
        """The exception of the reference."""
        return _raised(lambda: self.eager)

    @cached_property
    def exact(self) -> Outcome | None:
        """The run of the reference in float64, or None if it refuses float64."""
        wide = cast(self.sample, torch.float64)
        return None if _raised(lambda: self._reference_on(wide)) else self._reference_on(wide)

    def _reference_on(self, sample: Sample) -> Outcome | None:
        reference = self.subject.reference
        if reference is None:
            return None
        sample = sample.copy()
        before = [_copy(x) for x in sample.tensors]
        with seeded(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # samples may use what torch warns about
            return Outcome(sample.tensors, before, reference(*sample.args, **sample.kwargs))


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone(memory_format=torch.preserve_format)


def _raised(step: Callable[[], Any]) -> Exception | None:
    try:
        step()
    except Exception as error:
        return error
    return None
