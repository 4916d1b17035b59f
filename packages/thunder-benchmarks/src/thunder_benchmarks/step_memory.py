"""Memory of a training step: bytes saved for the backward, and the most that is allocated at once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

__all__ = ["peak_bytes", "saved_bytes"]


def saved_bytes(forward: Callable[[], object], existing: Iterable[torch.Tensor]) -> int:
    """Return the bytes that the autograd graph of a result keeps alive, without those of `existing`.

    They are the storages of all tensors that the graph packs (`saved_tensors_hooks`), each counted once and
    whole, however many views of it are saved. Raises ValueError if the result has no graph.
    """
    excluded = {tensor.untyped_storage().data_ptr() for tensor in existing}
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        # No storage is released while the result lives, so that an address stands for one storage.
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in excluded:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    leaves = tree_leaves(result)
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        raise ValueError("the result has no graph: nothing is saved for a backward")
    return sum(storages.values())


def peak_bytes(step: Callable[[], object]) -> int:
    """Return the most bytes that are allocated at once during a step, counted from its beginning.

    `torch.profiler` notes every allocation and release of the allocator, inside of kernels too.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as events:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        events.export_chrome_trace(str(path))
        entries = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = [entry for entry in entries if entry.get("name") == "[memory]"]
    memory.sort(key=lambda entry: (entry["ts"], entry["args"]["Ev Idx"]))
    return max(accumulate(entry["args"]["Bytes"] for entry in memory), default=0)
