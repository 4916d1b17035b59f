"""What a step of training costs in a process of a gloo group: bytes that it sends, and its peak of memory.

Both are read from one recording of torch's profiler, whoever runs the step: gloo reports each collective and
message that it runs, and the allocator each allocation of the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

R = TypeVar("R")

STEP: Final = "measured step"

#: a collective of gloo → the bytes that a process sends in a ring of n processes (Patarasuk and Yuan,
#: Bandwidth optimal all-reduce algorithms, 2009), of an operand of so many bytes. gloo has no reduce-scatter
#: of its own: it runs an all-reduce.
SENT: Final[Mapping[str, Callable[[int, int], int]]] = {
    "gloo:all_reduce": lambda nbytes, n: 2 * nbytes * (n - 1) // n,
    "gloo:all_gather": lambda nbytes, n: nbytes * (n - 1),
    "gloo:all_to_all": lambda nbytes, n: nbytes,  # of ring attention: all of it to the next process
    # the root of a binomial tree, which sends the most; so much is counted for each process
    "gloo:broadcast": lambda nbytes, n: nbytes * (n - 1).bit_length(),
    "gloo:send": lambda nbytes, n: nbytes,
    "gloo:recv": lambda nbytes, n: 0,
}


@dataclass(frozen=True)
class StepCosts:
    """What a step cost.

    Attributes:
        sent: bytes that the process sent.
        collectives: how many it took part in.
        peak: bytes of the tensors that were alive at the peak of the step.
    """

    sent: int
    collectives: int
    peak: int


def recorded_steps(
    prepare: Callable[[], R], step: Callable[[R], float], count: int
) -> tuple[R, list[float], StepCosts]:
    """Prepare a training and take its first steps; return it, their losses, and the costs of the last one.

    What `prepare` allocates, such as parameters, is part of the peak as long as it is alive.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as recorded:
        prepared = prepare()
        losses = [step(prepared) for _ in range(count - 1)]
        dist.barrier()
        with record_function(STEP):
            losses.append(step(prepared))
        dist.barrier()
    assert recorded.profiler is not None, "the recording has ended"
    events = list(_walk(recorded.profiler.kineto_results.experimental_event_tree()))
    (measured,) = (event for event in events if event.name == STEP)
    start, end = measured.start_time_ns, measured.end_time_ns
    ran = [e for e in events if e.name.startswith("gloo:") and start <= e.start_time_ns <= end]
    sent = [SENT[event.name](_operand_bytes(event), dist.get_world_size()) for event in ran]
    return prepared, losses, StepCosts(sum(sent), len(sent), _peak(events, start, end))


def _walk(events: Any) -> Iterator[Any]:
    for event in events:
        yield event
        yield from _walk(event.children)


def _operand_bytes(event: Any) -> int:
    """Return the bytes of the first tensor that a collective reads."""
    operand = event.extra_fields.inputs[0]
    operand = operand[0] if isinstance(operand, list) else operand
    elements: int = math.prod(operand.sizes)
    return elements * torch.empty(0, dtype=operand.dtype).element_size()


def _peak(events: list[Any], start: int, end: int) -> int:
    """Return the most bytes that were allocated since the recording began, between two times."""
    alive = peak = 0
    changes = [e for e in events if type(e.extra_fields).__name__ == "_ExtraFields_Allocation"]
    for event in sorted(changes, key=lambda event: event.start_time_ns):
        if event.start_time_ns > start:
            peak = max(peak, alive)
        if event.start_time_ns > end:
            return peak
        alive += event.extra_fields.alloc_size
    return max(peak, alive)
