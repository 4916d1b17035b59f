"""The processes that bisect one program together, and what they decide together.

Note [Bisections of several processes]
A distributed program communicates whenever it runs, so all processes run it equally often: whether another
run follows, and with which statements replaced, depends on what all of them have found. What one process can
do by itself, such as making the inputs of a wrong kernel smaller, it does alone, while the others wait.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch

import thunder
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder_bisect.report import Finding

__all__ = ["Ranks", "ranks_of", "unequal_weights"]

T = TypeVar("T")


class Ranks:
    """One process by itself: what it finds decides."""

    rank, size = 0, 1

    def gathered(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        return [value]

    def any(self, flag: object) -> bool:
        """Return whether something is true in any of the processes."""
        return any(self.gathered(bool(flag)))

    def running_apart(self) -> AbstractContextManager[None]:
        """Return the context in which programs neither see nor change gradients that a training gathers."""
        return nullcontext()

    def communicates(self, bsym: BoundSymbol) -> bool:
        """Return whether a statement needs other processes."""
        return False

    def whole_tensors(self, compiled: Any) -> dict[str, torch.Tensor] | None:
        """Return the parameters and buffers of one process by name; None if this process has them."""
        return None

    def of_process(self, compiled: Any, name: str, whole: torch.Tensor) -> torch.Tensor:
        """Return what this process has of a whole parameter or buffer."""
        return whole

    def gradient_of_process(self, compiled: Any, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """Return what this process has of the gradient of a whole parameter."""
        return gradient

    def traces_of_process(self, compiled: Any, traces: Sequence[TraceCtx]) -> Sequence[TraceCtx]:
        """Return the traces of a compile whose values are those of this process, by the same names."""
        return traces


class _Together(Ranks):
    """All processes of the default group (Note [Bisections of several processes])."""

    def __init__(self) -> None:
        from thunder_distributed import one_process  # its programs alone have several processes

        self._package = one_process
        self.rank, self.size = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def gathered(self, value: T) -> list[T]:
        return self._package.gathered_objects(value, "a bisection")

    def running_apart(self) -> AbstractContextManager[None]:
        return self._package.without_accumulation()

    def communicates(self, bsym: BoundSymbol) -> bool:
        return self._package.communicates(bsym)

    def whole_tensors(self, compiled: Any) -> dict[str, torch.Tensor] | None:
        return self._package.whole_tensors(compiled)

    def of_process(self, compiled: Any, name: str, whole: torch.Tensor) -> torch.Tensor:
        return self._package.of_process(compiled, name, whole)

    def gradient_of_process(self, compiled: Any, name: str, gradient: torch.Tensor) -> torch.Tensor:
        return self._package.gradient_of_process(compiled, name, gradient)

    def traces_of_process(self, compiled: Any, traces: Sequence[TraceCtx]) -> Sequence[TraceCtx]:
        return self._package.traces_of_process(compiled, traces)


def unequal_weights(compiled: Any, ranks: Ranks) -> list[Finding]:
    """Return the finding that processes begin with other values of the same parameters, if they do."""
    whole = ranks.whole_tensors(compiled)
    if whole is None:
        return []
    names = [name for name, _ in compiled.named_parameters()]
    first, *others = ranks.gathered({name: _digest(whole[name]) for name in names})
    odd = {
        rank: [name for name in names if digests.get(name) != first[name]]
        for rank, digests in enumerate(others, 1)
    }
    unequal = [name for name in names if any(name in own for own in odd.values())]
    if not unequal:
        return []
    what = f"{', '.join(unequal)}: other values than on rank 0"
    return [Finding(kind="ranks", what=what, ranks=tuple(rank for rank, own in odd.items() if own))]


def _digest(x: torch.Tensor) -> str:
    data = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()


def ranks_of(transforms: Iterable[thunder.Transform]) -> Ranks:
    """Return the processes that run a program with some transforms."""
    if "thunder_distributed.distribution" not in sys.modules:
        return Ranks()
    from thunder_distributed.one_process import distributes

    return _Together() if distributes(transforms) else Ranks()
