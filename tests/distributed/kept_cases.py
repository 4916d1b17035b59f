"""Programs of ranks that are kept: one process compiles, and others, and later ones, find its program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import thunder
import thunder_store
from distributed.agreement_cases import Activated
from distributed.launching import case, message, shared_folder, sliced
from distributed.small_models import batches, part, words
from distributed.training_cases import STRATEGIES
from distributed.trainings import compared
from thunder.distributed import column_parallel, communication, fsdp, row_parallel
from thunder_distributed import running
from thunder_store import program_cache


def tensor_parallel() -> list[thunder.Transform]:
    """Return the transforms of tensor parallelism."""
    layers = {column_parallel: "blocks.*.up", row_parallel: "blocks.*.down"}
    return [make(target_modules=[name]) for make, name in layers.items()]


LAYOUTS: dict[str, Any] = {
    "ddp": STRATEGIES["ddp-small"],
    "zero3": STRATEGIES["zero3-block"],
    "tensor": tensor_parallel,
    "zero2": STRATEGIES["zero2-none"],
    "ddp-large": STRATEGIES["ddp-large"],
}


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Within the context nothing is known of programs that were compiled, and modules count as old."""
    with (
        mock.patch.multiple(running, _sequences={}, _programs={}),
        mock.patch.object(program_cache, "refuse_newer_files"),
    ):
        yield


def trained_twice(make: Any) -> list[dict[str, Any]]:
    """Return what two trainings differ in from one process, and what became of their compiles."""
    folder, runs = shared_folder(), []
    for _ in range(2):
        before = len(thunder_store.events())
        with as_in_a_new_process():
            result = trained(make(), folder)
        runs.append({**result, "events": [event.kind for event in thunder_store.events()[before:]]})
    return runs


def trained(transforms: Any, folder: Path) -> dict[str, Any]:
    """Return the differences of a training from that in one process; programs are kept in a folder."""
    rank, size = dist.get_rank(), dist.get_world_size()
    data = batches(4, 3, size)
    is_divided = isinstance(transforms, list)

    def own(batch: Any) -> Any:
        return batch if is_divided else part(batch, rank, size)

    return compared(words(), words(), transforms, data, own, program_cache=str(folder))


KEPT = sliced(2, {f"kept {name}": partial(trained_twice, make) for name, make in LAYOUTS.items()})


@case
def kept_without_synchronisation() -> list[dict[str, Any]]:
    """Calls with and without communication are two programs, and both are kept."""
    folder, runs = shared_folder(), []
    own = part(batches(1, 3, 2)[0], dist.get_rank())
    for _ in range(2):
        before = len(thunder_store.events())
        with as_in_a_new_process():
            compiled = thunder.jit(words(), transforms=[STRATEGIES["ddp-small"]()], program_cache=str(folder))
            with compiled.no_sync():
                compiled(*own).backward()
                sent = [[c.name for c in communication(compiled)]]
            compiled(*own).backward()
            sent.append([c.name for c in communication(compiled)])
        kinds = [event.kind for event in thunder_store.events()[before:]]
        gradients = {name: p.grad for name, p in compiled.named_parameters() if p.grad is not None}
        runs.append({"sent": sent, "events": kinds, "gradients": gradients})
    return runs


@case
def traces_in_another_state() -> str:
    """Ask for the traces of a program without communication, which was found, outside of `no_sync`."""
    folder = shared_folder() / str(dist.get_rank())
    for _ in range(2):
        compiled = thunder.jit(Activated(torch.tanh), transforms=[fsdp()], program_cache=str(folder))
        with compiled.no_sync(), as_in_a_new_process():
            compiled(torch.ones(2, 4)).backward()
    return message(lambda: thunder.last_traces(compiled)[-1])
