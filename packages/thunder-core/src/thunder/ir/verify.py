"""Verification of traces: the rules that passes preserve and generated code relies on.

Checked are: every name is defined before its use, once, and not used after its `del`; the program ends with
its return and nothing follows; an unpacking has as many targets as elements; a decomposition uses only its
arguments and computes the outputs; and the meta function of every call returns the outputs in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.errors import PluginTraceError, ThunderError, TraceError
from thunder.base.plugin_calls import as_plugin_error
from thunder.base.structural_ids import COMMENT, DEL, LINES, RELEASES, RETURN, STRUCTURAL, UNPACK
from thunder.ir.proxies import NumberProxy, Proxy, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_sizes import SymbolicNumber, are_same
from thunder.ir.trace import TraceCtx, TraceTag, detached_trace

__all__ = ["check_trace"]

#: number of statements shown before and after the faulty one
_AROUND = 3

#: what a meta function raises for arguments that it cannot take
META_ERRORS = (ThunderError, TypeError, ValueError, RuntimeError, LookupError, AttributeError)


def check_trace(
    trace: TraceCtx,
    *,
    stage: str | None = None,
    check_meta: bool = True,
    checked: set[BoundSymbol] | None = None,
) -> None:
    """Raise TraceError, which shows the program around the fault, if a trace is malformed.

    `stage` is the name of the pass or transform that returned the trace, for the message; by default its
    provenance. The meta functions of the calls in `checked` are not asked again; others are added to it. It
    is for passes of core, which change no call in place.
    """
    checker = _Checker(trace, stage or (trace.provenance.pss if trace.provenance is not None else None))
    checker.run()
    if check_meta:
        checked = set() if checked is None else checked
        for index, bsym in enumerate(trace.bound_symbols):
            faulty = _meta_fault(bsym, checked)
            if faulty is not None:
                fault, symbol = faulty
                raise checker.error(index, fault, symbol=symbol)


def check_plugin_trace(
    trace: TraceCtx, stage: str, origin: Callable[[], str], *, check_meta: bool = False
) -> None:
    """Check a trace that a plugin returned; raise PluginTraceError for a fault.

    `origin` returns the origin of the plugin (see `thunder.base.extension_origin`), and is called for a fault
    only.
    """
    try:
        check_trace(trace, stage=stage, check_meta=check_meta)
    except TraceError as error:
        raise as_plugin_error(error, origin()) from error.__cause__


def check_same_interface(given: TraceCtx, returned: TraceCtx, stage: str, origin: Callable[[], str]) -> None:
    """Raise PluginTraceError unless a trace has the inputs and the types of results of the given one.

    A stage may change what is computed. The prologue passes the inputs, and the epilogue takes the results,
    as before.
    """
    for what, read in (("inputs", _inputs), ("results", _results)):
        before, after = read(given), read(returned)
        if before != after:
            raise PluginTraceError(
                f"the stage {stage!r} returned a trace with other {what} than the trace it was given",
                found={"given": ", ".join(before) or "none", "returned": ", ".join(after) or "none"},
                hint="Return the trace that the stage received, or one that from_trace makes of it, and no "
                "trace of another compile.",
            ).blame(origin())


def _inputs(trace: TraceCtx) -> list[str]:
    return [f"{p.name}: {_type_of(p)}" for p in proxies_in((trace.args, trace.kwargs))]


def _results(trace: TraceCtx) -> list[str]:
    """Return the types of a trace's results; what a forward saves for its backward is a stage's to choose."""
    results = trace.output[0] if TraceTag.AUGMENTED_FORWARD in trace.tags else trace.output
    return [_type_of(p) for p in proxies_in(results)]


def _type_of(p: Any) -> str:
    return p.type_string() if isinstance(p, TensorProxy) else type(p).__name__


class _Checker:
    """Walks the statements with the set of names that are alive."""

    def __init__(self, trace: TraceCtx, stage: str | None) -> None:
        self.trace = trace
        self.stage = stage
        self.alive: set[str] = {p.name for p in proxies_in((trace.args, trace.kwargs))}
        self.alive |= {"args", "kwargs"} if trace.star_args else set()
        self.alive |= {name for name in trace.args if isinstance(name, str)}  # those of an epilogue
        self.deleted: dict[str, int] = {}

    def run(self) -> None:
        """Check every statement, and that the last one returns."""
        bsyms = self.trace.bound_symbols
        for index, bsym in enumerate(bsyms):
            fault = self._statement_fault(index, bsym)
            if fault is not None:
                raise self.error(index, fault)
        if not bsyms or bsyms[-1].sym.id not in (RETURN, LINES):
            raise self.error(len(bsyms) - 1, "the program does not end with a return")

    def _statement_fault(self, index: int, bsym: BoundSymbol) -> str | None:
        if bsym.sym.id == RETURN and index != len(self.trace.bound_symbols) - 1:
            return "statements follow the return"
        fault = self._use_fault(bsym) or self._definition_fault(bsym)
        if fault is not None:
            return fault
        if bsym.sym.id == DEL:
            self.alive.difference_update([p.name for p in bsym.flat_proxy_args])
            self.deleted.update({p.name: index for p in bsym.flat_proxy_args})
        self.alive.update([p.name for p in bsym.flat_proxy_outs])
        return _unpacking_fault(bsym) or _decomposition_fault(bsym)

    def _use_fault(self, bsym: BoundSymbol) -> str | None:
        if bsym.sym.id == COMMENT:
            return None
        for p in bsym.flat_proxy_args:
            if p.name in self.deleted and p.name not in self.alive:
                return f"{p.name} is used after its del"
            if p.name not in self.alive:
                return f"{p.name} is used before it is defined"
        return None

    def _definition_fault(self, bsym: BoundSymbol) -> str | None:
        arguments = {p.name for p in bsym.flat_proxy_args}
        for p in bsym.flat_proxy_outs:
            if p.name not in arguments and (p.name in self.alive or p.name in self.deleted):
                return f"{p.name} is defined twice"
        return None

    def error(self, index: int, fault: str, **facts: object) -> TraceError:
        """Return the error for a fault of the statement at `index`."""
        bsyms = self.trace.bound_symbols
        made_by = f" made by {self.stage}" if self.stage is not None else ""
        return TraceError(
            f"the trace{made_by} is malformed: {fault}",
            found={"program": "\n" + _excerpt(bsyms, index)},
            where=bsyms[index].locations if 0 <= index < len(bsyms) else None,
            hint="The line marked → is at fault; the named pass or transform returned the trace.",
            facts={"stage": self.stage, "index": index, "fault": fault, **facts},
        )


def _excerpt(bsyms: Sequence[BoundSymbol], index: int) -> str:
    lines = []
    for i in range(max(0, index - _AROUND), min(len(bsyms), index + _AROUND + 1)):
        mark = "→ " if i == index else "  "
        lines += [f"{mark}{line}" for line in bsyms[i].python(print_depth=1)]
    return "\n".join(lines)


def _unpacking_fault(bsym: BoundSymbol) -> str | None:
    if bsym.sym.id != UNPACK:
        return None
    targets, n = len(bsym.output or ()), bsym.args[1]
    return None if targets == n else f"{n} elements are unpacked into {targets} targets"


def _decomposition_fault(bsym: BoundSymbol) -> str | None:
    """Return the fault of a call's subsymbols, or None.

    A call may be replaced by its subsymbols, so they must read its arguments and compute its outputs. Unless
    the call is a region, they may read symbolic sizes too, which are inputs of every trace.
    """
    if not bsym.subsymbols:
        return None
    defined = {p.name for p in bsym.flat_proxy_args}
    for sub in bsym.subsymbols:
        for p in sub.flat_proxy_args:
            if isinstance(p, SymbolicNumber) and not bsym.sym.is_fusion:
                continue
            if p.name not in defined and sub.sym.id not in RELEASES:
                return f"{p.name} is used inside {bsym.sym.name}, which neither takes nor computes it"
        defined.update([p.name for p in sub.flat_proxy_outs])
        fault = _decomposition_fault(sub)
        if fault is not None:
            return fault
    for p in bsym.flat_proxy_outs:
        if p.name not in defined:
            return f"{p.name} is an output of {bsym.sym.name}, and its decomposition does not compute it"
    return None


def _meta_fault(bsym: BoundSymbol, checked: set[BoundSymbol]) -> tuple[str, Symbol] | None:
    """Return how the outputs in the trace differ from those of a meta function, and its symbol; or None.

    A call without meta function (claimed by an executor) is checked by its subsymbols. Calls without a fault
    are added to `checked`.
    """
    if bsym in checked or bsym.sym.id in STRUCTURAL or bsym.sym.python_printer is not None:
        return None
    if bsym.sym.meta is None:
        faults = (_meta_fault(sub, checked) for sub in bsym.subsymbols)
        return next((fault for fault in faults if fault is not None), None)
    # Without gradients: whether the target of a write is a leaf depends on the trace around the call.
    with detached_trace(), torch.no_grad():
        try:
            expected = bsym.sym.meta(*bsym.args, **bsym.kwargs)
        except META_ERRORS as error:
            text = error.asked if isinstance(error, ThunderError) else error
            return f"the meta function of {bsym.sym.id} refuses the arguments: {text}", bsym.sym
    values, outputs = list(proxies_in(expected)), list(proxies_in(bsym.output))
    if len(values) == len(outputs) and all(map(_is_same_type, values, outputs)):
        checked.add(bsym)
        return None
    computed, recorded = ", ".join(map(_leaf, values)), ", ".join(map(_leaf, outputs))
    return f"the meta function of {bsym.sym.id} returns {computed}, and the trace has {recorded}", bsym.sym


def _is_same_type(a: TensorProxy | Proxy, b: TensorProxy | Proxy) -> bool:
    """Return whether two values have one type; sizes are equal if the facts of the program say so."""
    if not isinstance(a, TensorProxy) or not isinstance(b, TensorProxy):
        return _leaf(a) == _leaf(b)
    if (a.device, a.dtype.shortname()) != (b.device, b.dtype.shortname()):
        return False
    return are_same(tuple(a.shape), tuple(b.shape))


def _leaf(x: TensorProxy | Proxy) -> str:
    if isinstance(x, NumberProxy):  # an integer is a size where the computation finds one
        return x.python_type.__name__
    return x.type_string() if isinstance(x, TensorProxy) else type(x).__name__
