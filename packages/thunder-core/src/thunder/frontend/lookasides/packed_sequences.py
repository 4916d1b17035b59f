"""Packed sequences of recurrent networks: the lengths of the sequences are decisions on data."""

from __future__ import annotations

import torch

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.refused_methods import decided_values
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES)


@TABLE.with_parameters(torch._pack_padded_sequence)
def _pack_padded_sequence(
    session: TracingSession, input: TensorProxy, lengths: TensorProxy, batch_first: bool
) -> tuple[TensorProxy, TensorProxy]:
    """Return the steps of padded sequences one after the other, and how many sequences each step has."""
    sizes = decided_values(lengths)
    steps, count = (1, 0) if batch_first else (0, 1)
    if any(size <= 0 for size in sizes):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if sizes != sorted(sizes, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
            "pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
            "requirement if you do not need ONNX exportability."
        )
    if len(sizes) != input.shape[count] or sizes[0] > input.shape[steps]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={input.shape[count]})"
        )
    batch_sizes = [sum(size > t for size in sizes) for t in range(sizes[0])]
    padded = ltorch.transpose(input, 0, 1) if batch_first else input
    places = [t * len(sizes) + b for t, n in enumerate(batch_sizes) for b in range(n)]
    index = ltorch.tensor(places, device=input.device)
    data = ltorch.index_select(ltorch.flatten(padded, 0, 1), 0, index)
    return data, ltorch.tensor(batch_sizes)


@TABLE.with_parameters(torch._pad_packed_sequence)
def _pad_packed_sequence(
    session: TracingSession,
    data: TensorProxy,
    batch_sizes: TensorProxy,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[TensorProxy, TensorProxy]:
    """Return the padded sequences and their lengths; ``data: (n, *)`` has the steps one after the other."""
    sizes = decided_values(batch_sizes)
    steps, count = max(len(sizes), total_length), sizes[0]
    if 0 < total_length < len(sizes):
        raise RuntimeError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
    sizes = [*sizes, *[0] * (steps - len(sizes))]
    starts = [sum(sizes[:t]) for t in range(steps)]
    places = [starts[t] + b if b < sizes[t] else 0 for t in range(steps) for b in range(count)]
    is_step = [[b < sizes[t] for b in range(count)] for t in range(steps)]
    rest = data.shape[1:]
    index = ltorch.tensor(places, device=data.device)
    mask = ltorch.reshape(ltorch.tensor(is_step, device=data.device), (steps, count, *[1] * len(rest)))
    padded = ltorch.reshape(ltorch.index_select(data, 0, index), (steps, count, *rest))
    padded = ltorch.masked_fill(padded, ltorch.logical_not(mask), padding_value)
    lengths = ltorch.tensor([sum(size > b for size in sizes) for b in range(count)])
    return ltorch.transpose(padded, 0, 1) if batch_first else padded, lengths
