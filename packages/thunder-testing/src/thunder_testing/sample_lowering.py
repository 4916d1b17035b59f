"""Programs of single calls: traced on proxies, and lowered as a compile would lower them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from thunder.core import prims
from thunder.core.langctxs import TORCH, using_language
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.trace import TraceCtx, tracectx
from thunder.core.verify import check_trace
from thunder.executors.passes import Placement, claim, claim_rest, fuse
from thunder.extend import Executor, get_always_executors

if TYPE_CHECKING:
    from thunder_testing.samples import Sample

__all__ = ["LoweredProgram", "TracedCall", "lowered", "plain", "proxy_of", "seeded", "trace_call"]

SEED = 42


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


def proxy_of(x: torch.Tensor, *, device: Any = None, requires_grad: bool = False) -> TensorProxy:
    """Return the proxy of a tensor."""
    return TensorProxy(like=x, device=device, requires_grad=requires_grad, strides=x.stride())


def trace_call(
    symbol: Symbol, sample: Sample, *, device: Any = None, requiring_grad: Iterable[int] = ()
) -> TracedCall:
    """Trace the program that makes the call and returns its result.

    `requiring_grad` are positions among the sample's tensors; `device` is the device of the proxies.
    """
    trace, positions, tensors = TraceCtx(), set(requiring_grad), sample.tensors
    with tracectx(trace), using_language(TORCH), torch.set_grad_enabled(bool(positions)):
        proxies = {
            id(x): proxy_of(x, device=device, requires_grad=i in positions) for i, x in enumerate(tensors)
        }
        trace.args = list(proxies.values())
        args, kwargs = sample.with_tensors(proxies)
        out = symbol(*args, **kwargs)
        prims.python_return(plain(out))
    return TracedCall(trace, trace.bound_symbols[0], tensors)


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
        torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds every device, in milliseconds
        yield
