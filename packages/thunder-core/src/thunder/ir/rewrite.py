"""Tools to edit traces: visiting, inserting and replacing calls, changing results and metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any

from thunder.base.errors import InvalidArgument, TraceError
from thunder.base.structural_ids import RETURN
from thunder.base.tags import OpTags
from thunder.ir.evaluation import recorded_by
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import substitute, substitute_in_tree
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace

__all__ = [
    "VISIT_TYPE",
    "add_trace_output",
    "insert_inplace",
    "refuse_new_writes",
    "replace_inplace",
    "trace_with_replaced_proxy_metadata",
    "visitor_transform",
]

CHECK_TENSOR = "prims.check_tensor_shape_and_metadata"


class VISIT_TYPE(Enum):
    """The place of the calls that a visitor recorded, relative to the visited bound symbol."""

    INSERT_BEFORE = auto()
    INSERT_AFTER = auto()
    REPLACE = auto()
    NO_OP = auto()


def visitor_transform(
    trace: TraceCtx, visit: Callable[[BoundSymbol], VISIT_TYPE], *, provenance: str | None = None
) -> TraceCtx:
    """Return a trace in which `visit` has been called on every top-level bound symbol.

    Calls that `visit(bsym)` records are inserted before or after `bsym`, or replace it, as its result (a
    VISIT_TYPE) states. Raises InvalidArgument for any other result.
    """
    start = time.perf_counter_ns()
    new = from_trace(trace)
    for bsym in trace.bound_symbols:
        recorded, answer = recorded_by(new, visit, bsym)
        if not isinstance(answer, VISIT_TYPE):
            raise InvalidArgument(f"a visitor returned {answer!r}", hint="It returns a member of VISIT_TYPE.")
        before = recorded if answer in (VISIT_TYPE.INSERT_BEFORE, VISIT_TYPE.REPLACE) else []
        visited = [] if answer is VISIT_TYPE.REPLACE else [bsym]
        after = recorded if answer is VISIT_TYPE.INSERT_AFTER else []
        new.bound_symbols += [*before, *visited, *after]
    took = time.perf_counter_ns() - start
    new.set_provenance(TraceProvenance(provenance or str(getattr(visit, "__name__", "Visitor")), took))
    return new


def insert_inplace(trace: TraceCtx, idx: int, fn: Callable[[], Any]) -> None:
    """Record `fn()` at position `idx` of the trace itself."""
    recorded, _ = recorded_by(trace, fn)
    trace.bound_symbols[idx:idx] = recorded


def replace_inplace(trace: TraceCtx, idx: int, fn: Callable[[BoundSymbol], Any]) -> None:
    """Record `fn(bsym)` in place of the bound symbol at position `idx` of the trace itself."""
    recorded, _ = recorded_by(trace, fn, trace.bound_symbols[idx])
    trace.bound_symbols[idx : idx + 1] = recorded


def refuse_new_writes(recorded: Iterable[BoundSymbol], purpose: str) -> None:
    """Raise InvalidArgument for a write to a tensor: the program's own have been functionalised already."""
    for bsym in recorded:
        if has_tags(bsym, {OpTags.IN_PLACE}):
            raise InvalidArgument(
                f"the function that {purpose} writes to a tensor, by {bsym.sym.id}",
                hint="Use an out-of-place operator.",
            )


def add_trace_output(trace: TraceCtx, proxy: Any, subindex: int | None = None) -> None:
    """Add `proxy` to the results of the trace itself, as the last element of its tuple.

    `subindex` selects the tuple among the results: a prologue returns `((computation's inputs), (epilogue's
    inputs))`. Raises TraceError if there is no such tuple.
    """
    end = trace.bound_symbols[-1]
    if end.sym.id != RETURN:
        raise TraceError("the trace does not end with a return")
    output = trace.output
    target = output if subindex is None else output[subindex]
    if not isinstance(target, tuple):
        raise TraceError(
            f"the trace does not return a tuple to which {proxy.name} could be added", found=str(end)
        )
    longer: Any = (*target, proxy)
    if subindex is not None:
        longer = tuple(longer if i == subindex else item for i, item in enumerate(output))
    trace.bound_symbols[-1] = end.from_bsym(args=(longer,) if len(end.args) == 1 else longer)


def trace_with_replaced_proxy_metadata(trace: TraceCtx, changes: Mapping[str, Mapping[str, Any]]) -> TraceCtx:
    """Return a trace whose tensors of these names have other metadata.

    `changes` is, for example, `{"t_weight": {"shape": (4, 4)}}`. Values computed from the tensors keep their
    metadata. Raises InvalidArgument for a name that the trace does not have.
    """
    tensors = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
    for bsym in trace.bound_symbols:
        tensors.update({p.name: p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)})
    unknown = set(changes) - set(tensors)
    if unknown:
        raise InvalidArgument(f"the trace has no tensor {sorted(unknown)[0]!r}")
    changed = {name: tensors[name].replace(**metadata) for name, metadata in changes.items()}
    new = from_trace(trace)
    new.args = substitute_in_tree(trace.args, changed)
    new.bound_symbols = [_with_metadata(b, changed) for b in trace.bound_symbols]
    new.set_provenance(TraceProvenance("Replacement of proxy metadata"))
    return new


def _with_metadata(bsym: BoundSymbol, changed: Mapping[str, TensorProxy]) -> BoundSymbol:
    if bsym.sym.id == CHECK_TENSOR and bsym.args[0].name in changed:
        p = changed[bsym.args[0].name]
        facts = (tuple(p.shape), p.device.device_str(), p.dtype.torch_dtype, p.requires_grad)
        return bsym.from_bsym(args=(p, *facts))
    return substitute(bsym, changed)
