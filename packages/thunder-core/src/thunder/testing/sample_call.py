"""A sample call on its way through the compiler: recorded on proxies, offered to the executor, claimed, run.

Each step is taken when it is first asked for. What a step raises is the business of one case each
(`recording_error`, `asking_error`, `lowering_error`, `running_error`); the others leave such calls out.
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
from thunder.passes.fallback_claim import always
from thunder.passes.fuse import fuse
from thunder.passes.placement import Placement
from thunder.testing.conformance_failure import described_call
from thunder.testing.samples import Sample, cast

if TYPE_CHECKING:
    from thunder.testing.subjects import Subject

__all__ = ["Call", "Outcome", "Program", "Recording", "lowered", "plain", "proxy_of", "record", "seeded"]

SEED = 42

#: operators whose values nobody promises
UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted", "new_empty_strided")


@dataclass(frozen=True, eq=False)
class Recording:
    """A program of one call: its trace, the call, and the tensors that its arguments stand for.

    Of a call that only handed an argument on, nothing is recorded, and the first bound symbol is the return.
    """

    trace: TraceCtx
    bsym: BoundSymbol
    tensors: list[torch.Tensor]


@dataclass(frozen=True, eq=False)
class Program:
    """A program that runs: its final trace, who got each call, and two functions of the tensors.

    `run` is what a compiled function runs; `bare` lacks the decorators that hide changes of torch's modes.
    """

    trace: TraceCtx
    placements: Sequence[Placement]
    run: Callable[..., Any]
    bare: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run: the tensors that went in, copies of them from before, and what came out."""

    given: list[torch.Tensor]
    before: list[torch.Tensor]
    result: Any


def proxy_of(x: torch.Tensor, *, device: Any = None, requires_grad: bool = False) -> TensorProxy:
    """The proxy that a program has for a tensor."""
    return TensorProxy(like=x, device=device, requires_grad=requires_grad, strides=x.stride())


def record(
    symbol: Symbol, sample: Sample, *, device: Any = None, requiring_grad: Iterable[int] = ()
) -> Recording:
    """The program that makes the call and returns its result.

    `requiring_grad` are positions among the sample's tensors; `device` is where the proxies say they are.
    """
    trace, wanted = TraceCtx(), set(requiring_grad)
    with tracectx(trace), using_language(TORCH), torch.set_grad_enabled(bool(wanted)):
        proxies = {
            id(x): proxy_of(x, device=device, requires_grad=i in wanted) for i, x in enumerate(sample.tensors)
        }
        trace.args = list(proxies.values())
        args, kwargs = tree_map(lambda x: proxies.get(id(x), x), (tuple(sample.args), dict(sample.kwargs)))
        out = symbol(*args, **kwargs)
        prims.python_return(plain(out))
    return Recording(trace, trace.bound_symbols[0], sample.tensors)


def plain(tree: Any) -> Any:
    """A result with tuples for the named tuples of torch, which a program unpacks before it returns them."""
    if isinstance(tree, tuple):
        return tuple(plain(x) for x in tree)
    return [plain(x) for x in tree] if isinstance(tree, list) else tree


def lowered(trace: TraceCtx, executor: Executor) -> Program:
    """The program as a compile with this one executor, and those that are always asked, would make it."""
    last = get_always_executors()
    executors = (executor, *(ex for ex in last if ex != executor))
    claimed, placements = claim(trace, executors)
    final, placements = always(fuse(claimed, executors), last, placements)
    check_trace(final)
    return Program(final, placements, final.python_callable(), final.python_callable(decorated=False))


@contextmanager
def seeded(seed: int = SEED) -> Iterator[None]:
    """Within the context torch's generator of the CPU starts from `seed`; it is restored afterwards."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        yield


class Call:
    """One sample call of a subject."""

    def __init__(self, subject: Subject, sample: Sample) -> None:
        self.subject, self.sample = subject, sample

    def __str__(self) -> str:
        return described_call(self.subject.symbol.name, self.sample.args, self.sample.kwargs)

    # -- steps

    @cached_property
    def recording(self) -> Recording:
        """The call on proxies."""
        return record(self.subject.symbol, self.sample)

    @cached_property
    def recording_error(self) -> Exception | None:
        """What the meta function, or the operator's decomposition, raised."""
        return _raised(lambda: self.recording)

    @property
    def is_other_operator(self) -> bool:
        """Whether what was recorded is no call of the operator: it only handed an argument on."""
        return self.recording_error is None and self.recording.bsym.sym.id != self.subject.id

    @cached_property
    def answer(self) -> bool | Refusal:
        """What the executor says to the call."""
        return self.subject.executor.can_execute_or_fuse(self.recording.bsym)

    @cached_property
    def asking_error(self) -> Exception | None:
        """What the checker raised."""
        return None if self.recording_error else _raised(lambda: self.answer)

    @cached_property
    def is_claimed(self) -> bool:
        """Whether the executor says that it runs the call."""
        return self.recording_error is None and self.asking_error is None and self.answer is True

    @cached_property
    def program(self) -> Program:
        """The program in which the executor has the call."""
        return lowered(self.recording.trace, self.subject.executor)

    @cached_property
    def lowering_error(self) -> Exception | None:
        """What an execution transform, a fusion pass or the checks of their traces raised."""
        return _raised(lambda: self.program) if self.is_claimed else None

    @cached_property
    def outcome(self) -> Outcome:
        """The first run."""
        return self.run()

    @cached_property
    def running_error(self) -> Exception | None:
        """What the first run raised."""
        return _raised(lambda: self.outcome) if self.is_claimed and self.lowering_error is None else None

    @property
    def is_run(self) -> bool:
        """Whether the executor claimed the call and it ran."""
        return self.is_claimed and self.lowering_error is None and self.running_error is None

    def run(self, fn: Callable[..., Any] | None = None, seed: int = SEED) -> Outcome:
        """A run of the program on copies of the sample's tensors."""
        given = self.sample.copy().tensors
        before = [_copy(x) for x in given]
        with seeded(seed):
            result = (fn or self.program.run)(*given)
        return Outcome(given, before, result)

    # -- what is right

    @cached_property
    def is_random(self) -> bool:
        """Whether the call draws random numbers and says so."""
        return self.recording_error is None and has_tags(self.recording.bsym, (OpTags.RANDOM_OP,))

    @property
    def promises_values(self) -> bool:
        """Whether results are the same whenever the arguments are."""
        return not self.is_random and self.subject.symbol.name not in UNINITIALISED

    @cached_property
    def eager(self) -> Outcome | None:
        """The reference on these arguments; None without one."""
        return self._reference_on(self.sample)

    @cached_property
    def reference_error(self) -> Exception | None:
        """What the reference raised."""
        return _raised(lambda: self.eager)

    @cached_property
    def exact(self) -> Outcome | None:
        """The reference on these arguments in float64; None where it does not take that."""
        wide = cast(self.sample, torch.float64)
        return None if _raised(lambda: self._reference_on(wide)) else self._reference_on(wide)

    def _reference_on(self, sample: Sample) -> Outcome | None:
        reference = self.subject.reference
        if reference is None:
            return None
        sample = sample.copy()
        before = [_copy(x) for x in sample.tensors]
        with seeded(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what eager thinks of a call that nobody has to make
            return Outcome(sample.tensors, before, reference(*sample.args, **sample.kwargs))


def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone(memory_format=torch.preserve_format)


def _raised(step: Callable[[], Any]) -> Exception | None:
    try:
        step()
    except Exception as error:
        return error
    return None
