"""The memory of a process at the peak of a step, by what it is for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from thunder import TensorProxy
from thunder.core.rewrite import module_tensors
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.examine.memory_calculation import allocations_of, storages_at_peak

from .collectives import (
    COLLECTIVES,
    all_gather,
    all_reduce,
    pack,
    pack_for_fsdp,
    reduce_scatter,
    unpack,
    unpack_for_fsdp,
    wait,
)
from .roofline import nbytes_of

__all__ = ["CATEGORIES", "memory_at_peak"]

#: what memory is for, in the order of a table
CATEGORIES: Final = (
    "parameters",
    "optimizer",
    "buffers and inputs",
    "gathered parameters",
    "gradients",
    "activations",
    "workspaces",
)

_REDUCTIONS = frozenset({all_reduce.id, reduce_scatter.id})
_PACKS = frozenset({pack.id, pack_for_fsdp.id})
_UNPACKS = frozenset({unpack.id, unpack_for_fsdp.id, wait.id})


def memory_at_peak(
    prologue: TraceCtx, forward: TraceCtx, backward: TraceCtx | None, optimizer_tensors: int
) -> dict[str, int]:
    """Return the bytes of each category when the most memory is in use.

    Parameters are what this process has of those that require grad, and the optimizer has so many tensors of
    the same size for each. Gathered parameters include what is packed for a gather, gradients what is packed
    for a reduction, and those of whole parameters before it. Activations are all other tensors.
    """
    stored = module_tensors(prologue)
    trained = {p.name for p in stored.values() if p.requires_grad}
    inputs = [p for p in forward.args if isinstance(p, TensorProxy)]
    names = {p.name for p in stored.values()}
    parameters = nbytes_of(p for p in inputs if p.name in trained)
    frozen = nbytes_of(p for p in inputs if p.name in names - trained)
    memory = dict.fromkeys(CATEGORIES, 0)
    memory["parameters"] = parameters
    memory["optimizer"] = optimizer_tensors * parameters
    memory["buffers and inputs"] = frozen + nbytes_of(p for p in inputs if p.name not in names)
    category = _categories(forward, set()) | _categories(backward, _results(backward))
    for storage, nbytes in storages_at_peak(forward, backward).items():
        kind = "workspaces" if storage.endswith("(workspace)") else category.get(storage, "activations")
        memory[kind] += nbytes
    return memory


def _results(backward: TraceCtx | None) -> set[str]:
    """Return the names of the gradients that a backward returns."""
    return set() if backward is None else {p.name for p in backward.bound_symbols[-1].flat_proxy_args}


def _categories(trace: TraceCtx | None, gradients: set[str]) -> dict[str, str]:
    """Return the category of each storage that is for a collective."""
    if trace is None:
        return {}
    bsyms, storages = trace.bound_symbols, allocations_of(trace).storages
    gathered = _following(bsyms, {b.output.name for b in bsyms if b.sym.id == all_gather.id}, _UNPACKS)
    gathered |= _packed(bsyms, {b.args[0].name for b in bsyms if b.sym.id == all_gather.id}) - {
        p.name for p in trace.args
    }
    reduced = [b for b in bsyms if b.sym.id in _REDUCTIONS]
    gradients = gradients | _following(bsyms, {b.output.name for b in reduced}, _UNPACKS)
    gradients |= _packed(bsyms, {b.args[0].name for b in reduced})
    found = {storages[name]: "gathered parameters" for name in gathered if name in storages}
    found |= {storages[name]: "gradients" for name in gradients if name in storages}
    return found


def _following(bsyms: Sequence[BoundSymbol], names: set[str], symbols: Iterable[Any]) -> set[str]:
    """Return the names, and those of the values that some operators compute from them."""
    names = set(names)
    for bsym in bsyms:
        if bsym.sym.id in symbols and any(p.name in names for p in bsym.flat_proxy_args):
            names |= {p.name for p in bsym.flat_proxy_outs}
    return names


def _packed(bsyms: Sequence[BoundSymbol], names: set[str]) -> set[str]:
    """Return the names, and those of the values that are joined or divided into them."""
    names = set(names)
    for bsym in reversed(bsyms):
        one = len([p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]) == 1
        joins = bsym.sym.id in _PACKS or (one and bsym.sym.id not in COLLECTIVES and _keeps_size(bsym))
        if joins and any(p.name in names for p in bsym.flat_proxy_outs):
            names |= {p.name for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
    return names


def _keeps_size(bsym: BoundSymbol) -> bool:
    """Return whether a statement of one tensor computes one of the same size, as a division does."""
    tensors = [p for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs) if isinstance(p, TensorProxy)]
    return len(tensors) == 2 and tensors[0].numel == tensors[1].numel
