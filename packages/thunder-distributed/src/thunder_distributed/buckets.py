"""Which parameters are communicated together, and the stage that makes one collective of a bucket.

w = synchronize(s, '0', FULLY_SHARDED, '0')        p = pack((s, c)); q = all_gather(p, '0')
…                                             →    w, b = unpack_for_fsdp(q, …)
b = synchronize(c, '0', FULLY_SHARDED, '0')        …
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from thunder.core.errors import InvalidArgument
from thunder.core.proxies import ProxyTag
from thunder.core.rewrite import in_place_of, replace_calls
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from .collectives import (
    all_gather,
    all_reduce,
    ex,
    pack,
    pack_for_fsdp,
    reduce_scatter,
    unpack,
    unpack_for_fsdp,
)
from .layouts import DistParallelType, FSDPBucketingStrategy
from .process_groups import group_size
from .synchronization import synchronize, synchronize_gradient

__all__ = ["buckets_of_bytes", "buckets_of_modules", "checked_size", "with_collectives", "within_bytes"]


def buckets_of_modules(
    model: nn.Module, names: Iterable[str], strategy: FSDPBucketingStrategy
) -> dict[str, str]:
    """Return the bucket of each parameter by the module that it belongs to; none for `NONE`."""
    if strategy is FSDPBucketingStrategy.NONE:
        return {}
    if strategy is FSDPBucketingStrategy.LAYER:
        return {name: name.rpartition(".")[0] or "the module" for name in names}
    blocks = [
        f"{path}.{key}" if path else key
        for path, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        for key in module._modules
    ]
    return {name: _outermost(name, blocks) for name in names}


def _outermost(name: str, blocks: Iterable[str]) -> str:
    """Return the first of the blocks that a dotted name is below."""
    return next((block for block in blocks if name.startswith(f"{block}.")), "the module")


def checked_size(bucket_size_in_mb: float) -> float:
    """Return the size of a bucket. Raises InvalidArgument for what is not one."""
    if isinstance(bucket_size_in_mb, bool) or not bucket_size_in_mb >= 0:
        raise InvalidArgument(
            f"bucket_size_in_mb={bucket_size_in_mb!r} is not a size", hint="0 makes no buckets."
        )
    return bucket_size_in_mb


def buckets_of_bytes(parameters: Mapping[str, torch.Tensor], limit: float) -> dict[str, str]:
    """Return the bucket of each parameter, in reverse order, so that none has more than `limit` bytes.

    A parameter that is larger is alone. Those of a bucket have one dtype and device. A limit of 0 makes none.
    """
    if limit == 0:
        return {}
    buckets: dict[str, str] = {}
    filled: dict[tuple[Any, ...], tuple[str, int]] = {}
    for name, parameter in reversed(list(parameters.items())):
        form = parameter.dtype, parameter.device
        nbytes = parameter.numel() * parameter.element_size()
        bucket, used = filled.get(form, ("", 0))
        if not bucket or used + nbytes > limit:
            bucket, used = f"bucket {len(set(buckets.values()))}", 0
        buckets[name], filled[form] = bucket, (bucket, used + nbytes)
    return buckets


def within_bytes(
    buckets: Mapping[str, str], parameters: Mapping[str, torch.Tensor], limit: float
) -> dict[str, str]:
    """Return buckets of which none has more than `limit` bytes, by dividing those that have.

    A parameter that is larger is alone. A limit of 0 makes none.
    """
    divided: dict[str, str] = {}
    for bucket in dict.fromkeys(buckets.values()):
        members = {name: parameters[name] for name, own in buckets.items() if own == bucket}
        parts = buckets_of_bytes(members, limit)
        is_one = len(set(parts.values())) == 1
        divided |= {name: bucket if is_one else f"{bucket}, {part}" for name, part in parts.items()}
    return divided


# -- the stage -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Unit:
    """Statements that become one: those of a bucket, or one statement alone."""

    position: int
    members: tuple[BoundSymbol, ...]


def with_collectives(trace: TraceCtx, context: Any) -> TraceCtx:
    """Replace the synchronisation of each bucket by one collective; that of a replicated parameter by itself.

    Parameters are gathered before the first use of one of them, gradients reduced when the last of them is
    computed; other statements keep their order as far as they can.
    """
    synchronizes = (synchronize.id, synchronize_gradient.id)
    if not any(bsym.sym.id in synchronizes for bsym in trace.bound_symbols):
        return trace
    trace = _without_replicated(trace)
    new = from_trace(trace)
    with tracectx(new):
        for unit in _ordered(_units(trace.bound_symbols)):
            first = unit.members[0]
            if first.sym.id not in synchronizes:
                new.bound_symbols.extend(unit.members)
                continue
            recorded: list[BoundSymbol] = []
            with new.recording_into(recorded):
                (_gather if first.sym.id == synchronize.id else _reduce)(new, unit.members)
            new.bound_symbols += in_place_of(first, recorded)
    new.set_provenance(TraceProvenance("Collectives"))
    return new


def _without_replicated(trace: TraceCtx) -> TraceCtx:
    """Return the trace that reads replicated parameters themselves, except those that it returns."""
    returned = {p.name for p in trace.bound_symbols[-1].flat_proxy_args}

    def itself(bsym: BoundSymbol) -> Any:
        is_replicated = bsym.sym.id == synchronize.id and bsym.args[2] is DistParallelType.REPLICATED
        return bsym.args[0] if is_replicated and bsym.output.name not in returned else None

    return replace_calls(trace, itself)


def _bucket_of(bsym: BoundSymbol) -> tuple[Any, ...] | None:
    """Return what the members of a bucket have in common; None for a statement that is alone."""
    if bsym.sym.id not in (synchronize.id, synchronize_gradient.id):
        return None
    operand, group, kind, bucket, *options = bsym.args
    replicated = bsym.sym.id == synchronize.id and kind is DistParallelType.REPLICATED
    if bucket is None or replicated:
        return None
    return bsym.sym.id, group, kind, bucket, *options, operand.dtype, operand.device


def _units(bsyms: Sequence[BoundSymbol]) -> list[_Unit]:
    buckets: dict[tuple[Any, ...], list[int]] = {}
    units = []
    for index, bsym in enumerate(bsyms):
        bucket = _bucket_of(bsym)
        if bucket is None:
            units.append(_Unit(index, (bsym,)))
        else:
            buckets.setdefault(bucket, []).append(index)
    for indices in buckets.values():
        members = tuple(bsyms[index] for index in indices)
        is_gather = members[0].sym.id == synchronize.id
        units.append(_Unit(indices[0] if is_gather else indices[-1], members))
    return sorted(units, key=lambda unit: unit.position)


def _ordered(units: Sequence[_Unit]) -> list[_Unit]:
    """Return the units so that values are computed before they are read, by position where there is a choice.

    Statements with effects keep their order; the last statement, which returns, stays the last one.
    """
    producer = {p.name: i for i, unit in enumerate(units) for b in unit.members for p in b.flat_proxy_outs}
    needs: list[set[int]] = []
    effect: int | None = None
    for index, unit in enumerate(units):
        read = {producer[p.name] for b in unit.members for p in b.flat_proxy_args if p.name in producer}
        if any(map(_has_effect, unit.members)):
            read |= set() if effect is None else {effect}
            effect = index
        needs.append(read - {index})
    needs[-1] = set(range(len(units) - 1))
    readers: dict[int, list[int]] = {}
    for index, read in enumerate(needs):
        for other in read:
            readers.setdefault(other, []).append(index)
    ready = [index for index, read in enumerate(needs) if not read]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(units[index])
        for reader in readers.get(index, ()):
            needs[reader].discard(index)
            if not needs[reader]:
                heapq.heappush(ready, reader)
    assert len(order) == len(units), "a bucket whose members depend on each other has no order"
    return order


def _has_effect(bsym: BoundSymbol) -> bool:
    if bsym.sym.executor is ex:  # what is kept for each parameter does not depend on the others
        return False
    effects = {OpTags.DONT_DCE, OpTags.RANDOM_OP, OpTags.IN_PLACE, OpTags.CTX_MANAGER_ENTER_EXIT_OP}
    return not bsym.flat_proxy_outs or bool(has_tags(bsym, effects))


def _gather(trace: TraceCtx, members: Sequence[BoundSymbol]) -> None:
    """Record what gathers the parameters of a bucket, under the names of the members' results."""
    group, kind = members[0].args[1:3]
    outputs = [member.output for member in members]
    again = any(ProxyTag.RECOMPUTE_IN_BACKWARD in output.tags for output in outputs)
    if kind is DistParallelType.REPLICATED:
        trace.peek_scope().extend(members)
        return
    if len(members) == 1:
        trace.record(_bound(all_gather, members[0].args[0], group, output=outputs[0]))
        return
    size = group_size(group)
    packed = pack(tuple(member.args[0] for member in members))
    gathered = all_gather(packed, group)
    if again:
        packed.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        gathered.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
    shapes = tuple(tuple(output.shape) for output in outputs)
    trace.record(_bound(unpack_for_fsdp, gathered, shapes, size, output=tuple(outputs)))


def _reduce(trace: TraceCtx, members: Sequence[BoundSymbol]) -> None:
    """Record what reduces the gradients of a bucket, under the names of the members' results."""
    _, group, kind, _, mean = synchronize_gradient.normalize(*members[0].args)[0]
    outputs = [member.output for member in members]
    size = group_size(group)
    sharded = kind is DistParallelType.FULLY_SHARDED
    reduction = reduce_scatter if sharded else all_reduce
    if len(members) == 1:
        gradient = members[0].args[0]
        term = gradient / size if mean else gradient
        trace.record(_bound(reduction, term, group, output=outputs[0]))
        return
    gradients = tuple(member.args[0] for member in members)
    packed = pack_for_fsdp(gradients, size) if sharded else pack(gradients)
    reduced = reduction(packed / size if mean else packed, group)
    shapes = tuple(tuple(output.shape) for output in outputs)
    trace.record(_bound(unpack, reduced, shapes, output=tuple(outputs)))


def _bound(symbol: Any, *args: Any, output: Any) -> BoundSymbol:
    """Return a call with its defaults filled in, and with results that there are already."""
    args, kwargs = symbol.normalize(*args)
    bsym: BoundSymbol = symbol.bind(*args, output=output, **kwargs)
    return bsym
