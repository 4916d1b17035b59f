"""Tools to edit traces: visiting, inserting and replacing calls, changing results and metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, TraceError
from thunder.base.structural_ids import RETURN
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import substitute, substitute_in_tree, substitute_operands
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx

__all__ = [
    "VISIT_TYPE",
    "add_trace_output",
    "insert_inplace",
    "recorded_by",
    "refuse_new_writes",
    "replace_calls",
    "replace_inplace",
    "trace_with_replaced_proxy_metadata",
    "visitor_transform",
]

CHECK_TENSOR = "prims.check_tensor_shape_and_metadata"
SET_GRAD_ENABLED = "prims.set_grad_enabled"


class VISIT_TYPE(Enum):
    """The place of the calls that a visitor recorded, relative to the visited bound symbol."""

    INSERT_BEFORE = auto()
    INSERT_AFTER = auto()
    REPLACE = auto()
    NO_OP = auto()


def recorded_by(trace: TraceCtx, fn: Callable[..., Any], *args: Any) -> tuple[list[BoundSymbol], Any]:
    """Return the bound symbols that `fn(*args)` records with names of a trace, and its result."""
    scope: list[BoundSymbol] = []
    with tracectx(trace), trace.recording_into(scope):
        result = fn(*args)
    return scope, result


def visitor_transform(
    trace: TraceCtx, visit: Callable[[BoundSymbol], VISIT_TYPE], *, provenance: str | None = None
) -> TraceCtx:
    """Return a trace in which `visit` has been called on every top-level bound symbol.

    Calls that `visit(bsym)` records are inserted before or after `bsym`, or replace it, as its result (a
    VISIT_TYPE) states.
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


def replace_calls(
    trace: TraceCtx,
    replacement: Callable[[BoundSymbol], Any],
    *,
    nested: bool = False,
    provenance: str | None = None,
) -> TraceCtx:
    """Return a trace in which calls are replaced by what a function records for them.

    `replacement(bsym)` is called for every top-level call; with `nested=True` also for those of which a
    composite consists, such as the linear layers of `multi_head_attention_forward`: if one of them is
    replaced, they take the place of the composite. It returns None to keep the call, else the results that
    replace the outputs of `bsym`, in the same structure; later calls read them. Raises InvalidArgument for a
    result of another shape, dtype or device than the output that it replaces, and for a write to a tensor.
    """
    start = time.perf_counter_ns()
    new, replaced, grad_mode = from_trace(trace), dict[str, Any](), torch.is_grad_enabled()

    def changed(bsym: BoundSymbol) -> tuple[list[BoundSymbol], bool]:
        """Return the calls in place of one that reads replaced values, and whether any was replaced."""
        bsym = substitute_operands(bsym, replaced)
        with torch.set_grad_enabled(grad_mode):
            recorded, results = recorded_by(new, replacement, bsym)
        if results is not None:
            if not has_tags(bsym, {OpTags.IN_PLACE}):
                refuse_new_writes(recorded, f"replaces a call of {bsym.sym.id}")
            return _renamed(recorded, bsym, results, replaced), True
        parts = [changed(sub) for sub in bsym.subsymbols] if nested else []
        if not any(is_replaced for _, is_replaced in parts):
            return [bsym], False
        return [_in_place_of(call, bsym) for calls, _ in parts for call in calls], True

    for bsym in trace.bound_symbols:
        if bsym.sym.id == SET_GRAD_ENABLED:
            grad_mode = bool(bsym.args[0])
        new.bound_symbols += changed(bsym)[0]
    new.args = list(trace.args)  # `replacement` may have added inputs
    took = time.perf_counter_ns() - start
    name = provenance or str(getattr(replacement, "__name__", "Replacement of calls"))
    new.set_provenance(TraceProvenance(name, took))
    return new


def refuse_new_writes(recorded: Iterable[BoundSymbol], purpose: str) -> None:
    """Raise InvalidArgument for a write to a tensor: the program's own have been functionalised already."""
    for bsym in recorded:
        if has_tags(bsym, {OpTags.IN_PLACE}):
            raise InvalidArgument(
                f"the function that {purpose} writes to a tensor, by {bsym.sym.id}",
                hint="Use an out-of-place operator.",
            )


def _in_place_of(call: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol:
    """Return a call with the source line and the tags of the one that it replaces."""
    return call.from_bsym(source=call.source or bsym.source, tags=call.own_tags | bsym.own_tags)


def _renamed(
    recorded: list[BoundSymbol], bsym: BoundSymbol, results: Any, replaced: dict[str, Any]
) -> list[BoundSymbol]:
    """Return the recorded calls with the names of the outputs of `bsym`.

    Values that replace outputs in later calls are entered into `replaced`.
    """
    outputs, values = proxies_in(bsym.output), proxies_in(results)
    if [_form(p) for p in outputs] != [_form(p) for p in values]:
        raise InvalidArgument(
            f"a call of {bsym.sym.id} is replaced by results of another form: "
            f"{', '.join(map(_form, values))} and not {', '.join(map(_form, outputs))}"
        )
    computed = {p.name for b in recorded for p in b.flat_proxy_outs}
    names: dict[str, Any] = {}
    for output, value in zip(outputs, values, strict=True):
        if value.name in computed and value.name not in names:
            names[value.name] = value.replace(name=output.name)
        replaced[output.name] = names.get(value.name, value)
    return [_in_place_of(substitute(b, names), bsym) for b in recorded]


def _form(p: Any) -> str:
    return str(p.type_string())


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
