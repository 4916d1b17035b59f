"""The memory of an entry over its statements: what is alive, at the peak and for the backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thunder import TensorProxy, TraceCtx
from thunder.core.prims import OpTags
from thunder.core.symbol import BoundSymbol
from thunder.core.vjp_utils import get_saved_for_backward_tensors
from thunder.examine.memory_calculation import (
    allocations_of,
    estimate_memory,
    live_bytes,
    storages_at_peak,
)
from thunder_distributed.roofline import flops_of
from thunder_report.costs import bytes_of_call
from thunder_report.model import Holder, Memory, Saved
from thunder_report.statements import StatementTable, producers, shown_statements, statement_text

__all__ = ["memory_of"]

#: the readers that are shown of one tensor
_READERS = 8
_WORKSPACE = " (workspace)"


def memory_of(
    table: StatementTable,
    forward: TraceCtx,
    backward: TraceCtx | None,
    measured: Mapping[str, tuple[int | None, ...]],
) -> Memory:
    """Return the estimate of final traces, and what was measured of them."""
    estimate = estimate_memory(forward, backward)
    lives = live_bytes(forward, backward)
    shown = [
        tuple(live[i] for i, _ in shown_statements(trace)) if trace is not None else ()
        for trace, live in zip((forward, backward), lives, strict=True)
    ]
    peaks = [max(values, default=0) for values in shown]
    branch = int(peaks[1] > peaks[0])
    return Memory(
        estimate.inputs,
        estimate.inputs + peaks[branch],
        shown[0],
        shown[1],
        ("forward", "backward")[branch],
        shown[branch].index(peaks[branch]) if shown[branch] else 0,
        _holders(table, forward, backward),
        _saved(table, forward, backward) if backward is not None else (),
        measured.get("forward", ()),
        measured.get("backward", ()),
        _uses_allocator(forward),
    )


def _uses_allocator(trace: TraceCtx) -> bool:
    """Return whether torch's allocator is measured: for results on a GPU."""
    results = (p for bsym in trace.bound_symbols for p in bsym.flat_proxy_outs)
    return any(isinstance(p, TensorProxy) and p.device.type == "cuda" for p in results)


def _holders(table: StatementTable, forward: TraceCtx, backward: TraceCtx | None) -> tuple[Holder, ...]:
    known = producers([*forward.bound_symbols, *(backward.bound_symbols if backward is not None else ())])
    holders = []
    for name, nbytes in storages_at_peak(forward, backward).items():
        owner = known.get(name.removesuffix(_WORKSPACE))
        type_, place, text = _described(table, name.removesuffix(_WORKSPACE), owner)
        holders.append(Holder(name, nbytes, type_, place, text))
    return tuple(sorted(holders, key=lambda holder: -holder.nbytes))


def _described(
    table: StatementTable, name: str, owner: tuple[BoundSymbol, BoundSymbol] | None
) -> tuple[str, int, str]:
    """Return the type of a value, the place of the call that computes it, and that call as text."""
    if owner is None:
        return "", -1, ""
    _, part = owner
    value = next((p for p in part.flat_proxy_outs if p.name == name), None)
    return (value.type_string() if value is not None else ""), table.place_of(part), statement_text(part)


def _saved(table: StatementTable, forward: TraceCtx, backward: TraceCtx) -> tuple[Saved, ...]:
    memory = allocations_of(forward)
    known = producers(forward.bound_symbols)
    readers = _readers(backward)
    counted: dict[str, str] = {}
    saved = []
    for p in _tensors(get_saved_for_backward_tensors(forward)):
        storage = memory.storages.get(p.name, p.name)
        owner = known.get(p.name)
        shares = counted.get(storage, "") if owner is not None else "an input"
        counted.setdefault(storage, p.name)
        nbytes = 0 if shares else memory.sizes.get(storage, 0)
        if owner is not None and not shares and not nbytes:
            shares = storage
        type_, place, text = _described(table, p.name, owner)
        saved.append(
            Saved(
                p.name,
                nbytes,
                type_ or p.type_string(),
                place,
                text,
                shares,
                readers.get(p.name, ()),
                _again(owner[1]) if owner is not None else None,
            )
        )
    return tuple(sorted(saved, key=lambda tensor: -tensor.nbytes))


def _again(call: BoundSymbol) -> tuple[int, int] | None:
    """Return the operations and bytes of computing a value once more; None for random numbers."""
    if OpTags.RANDOM_OP in call.all_tags:
        return None
    return flops_of(call), bytes_of_call(call)


def _tensors(values: Sequence[Any]) -> list[TensorProxy]:
    return [p for p in values if isinstance(p, TensorProxy)]


def _readers(backward: TraceCtx) -> Mapping[str, tuple[str, ...]]:
    """Return for each value the calls of a backward that read it; of a region, its calls."""
    readers: dict[str, list[str]] = {}
    for _, bsym in shown_statements(backward):
        for call in bsym.subsymbols if bsym.sym.is_fusion else (bsym,):
            if not call.flat_proxy_outs or call.sym.id == "prims.unpack_sequence":
                continue
            text = statement_text(call)
            for name in {p.name for p in call.flat_proxy_args}:
                found = readers.setdefault(name, [])
                if len(found) < _READERS:
                    found.append(text)
    return {name: tuple(texts) for name, texts in readers.items()}
