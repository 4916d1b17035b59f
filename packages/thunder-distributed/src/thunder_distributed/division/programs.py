"""The stage that divides a program: values are in parts as far as they can, and whole where they have to be.

A parameter in parts is read as `assembled(part, …)`. From there the layouts follow the program: a rule of
an operator computes part of its result from parts of its operands. Where there is no rule, operands are
gathered, and the operator computes what it did. So a program means the same, whatever the rules are (Xu et
al., GSPMD, arXiv:2105.04663).

    w0 = assembled(t_w0, '1', 0, 16, None)        t0 = shared(x, '1')
    h = linear(x, w0, b0)                         h = linear(t0, t_w0, t_b0)       a part of its columns
    a = gelu(h)                              →    a = gelu(h)
    w1 = assembled(t_w1, '1', 1, 16, None)        t1 = linear(a, t_w1)             terms of a sum
    y = linear(a, w1, b1)                         t2 = reduced(t1, '1'); y = t2 + b1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core import prims
from thunder.core.proxies import ProxyTag, Variable, is_proxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from ..collectives import all_gather
from ..last_statements import final_grad_mode, split_at_write
from .draws import check_draws, devices_of_draws
from .operators import INLINED, Division, assembled, joined, part_of, shared
from .rules import can_be_divided, rule_of
from .values import Result

__all__ = ["divided", "inlined"]


def divided(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return the program that computes on parts; the trace itself if no parameter is in parts."""
    if not any(bsym.sym.id == assembled.id for bsym in trace.bound_symbols):
        return trace
    new = from_trace(trace)
    with tracectx(new):
        program = _Program(new)
        groups = sorted({bsym.args[1] for bsym in trace.bound_symbols if bsym.sym.id == assembled.id})
        for device in sorted(devices_of_draws(trace.bound_symbols)):
            for group in groups:
                check_draws(group, device)
        body, last = split_at_write(trace)
        for bsym in body:
            new.bound_symbols += program.statements(bsym)
        new.bound_symbols += program.on_whole_values(last)
    new.set_provenance(TraceProvenance("Division over processes"))
    return new


def inlined(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return a trace with gradients in which the operators between layouts are collectives."""
    if not any(bsym.sym.id in INLINED for bsym in trace.bound_symbols):
        return trace
    returned = {p.name for p in trace.bound_symbols[-1].flat_proxy_args}
    new, itself = from_trace(trace), dict[Variable, Any]()
    for bsym in trace.bound_symbols:
        if bsym.sym.id == shared.id and bsym.output.name not in returned:
            (operand,) = bsym.flat_proxy_args
            itself[Variable(bsym.output)] = operand
            continue
        bsym = bsym.from_bsym_swap_proxies(itself, skip_output=True) if itself else bsym
        if bsym.sym.id in INLINED and bsym.subsymbols:
            new.bound_symbols += [sub.from_bsym(source=bsym.source) for sub in bsym.subsymbols]
        else:
            new.bound_symbols.append(bsym)
    new.set_provenance(TraceProvenance("Collectives between layouts"))
    return new


class _Program:
    """The values of a program that is divided, and their conversions."""

    def __init__(self, trace: TraceCtx) -> None:
        self._trace = trace
        #: name in the original program → what it is here, and how it is divided
        self._values: dict[str, tuple[Any, Division | None]] = {}
        #: conversions that there are already; the gradient of one depends on the mode in which it is recorded
        self._converted: dict[tuple[Any, ...], Any] = {}
        self._recomputed = False
        self._grad_mode = torch.is_grad_enabled()

    # -- statements

    def statements(self, bsym: BoundSymbol) -> list[BoundSymbol]:
        """Return what computes here what a statement of the program computes."""
        if bsym.sym.id == assembled.id:
            part, group, dim, extent, results = bsym.args
            self._values[bsym.output.name] = self.value(part), Division(group, dim, extent, results)
            return []
        if bsym.sym.id == prims.set_grad_enabled.id:
            self._grad_mode = bool(bsym.args[0])
        outputs = [p for p in bsym.flat_proxy_outs if is_proxy(p)]
        self._recomputed = bool(outputs) and all(ProxyTag.RECOMPUTE_IN_BACKWARD in p.tags for p in outputs)
        scope: list[BoundSymbol] = []
        with self._trace.recording_into(scope), torch.set_grad_enabled(self._grad_mode):
            if not self._is_computed_on_parts(bsym):
                self._trace.record(self._on_whole_values(bsym))
        return [self._placed(call, bsym) for call in scope]

    def on_whole_values(self, bsyms: Sequence[BoundSymbol]) -> list[BoundSymbol]:
        """Return the last statements of a program, after the conversions of all values that they read."""
        read = {p.name: p for bsym in bsyms for p in bsym.flat_proxy_args if p.name in self._values}
        scope: list[BoundSymbol] = []
        with self._trace.recording_into(scope), final_grad_mode(self._grad_mode, bsyms) as self._grad_mode:
            for p in read.values():
                self.whole(p)
        return [*scope, *map(self._on_whole_values, bsyms)]

    def _placed(self, call: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol:
        """Return a recorded call with the source line and the tags of the statement that it is for."""
        if call is bsym:
            return call
        for p in call.flat_proxy_outs if self._recomputed else ():
            p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        return call.from_bsym(source=call.source or bsym.source, tags=call.own_tags | bsym.own_tags)

    def _is_computed_on_parts(self, bsym: BoundSymbol) -> bool:
        """Record what computes a statement from parts, if its operands are divided and a rule says how."""
        if not any(self.division(p) for p in bsym.flat_proxy_args) or not can_be_divided(bsym):
            return False
        compute = rule_of(bsym, self)
        if compute is not None:
            start = len(self._trace.peek_scope())
            self._bind(bsym, compute(), start)
            return True
        return bool(bsym.subsymbols) and self._is_decomposed(bsym)

    def _is_decomposed(self, bsym: BoundSymbol) -> bool:
        """Record the parts of a composite, if none of them needs a whole operand that is divided."""
        values, converted = dict(self._values), dict(self._converted)
        scope: list[BoundSymbol] = []
        with self._trace.recording_into(scope):
            for sub in bsym.subsymbols:
                if self._is_computed_on_parts(sub):
                    continue
                if any(self.division(p) for p in sub.flat_proxy_args):
                    self._values, self._converted = values, converted
                    return False
                self._trace.record(self._on_whole_values(sub))
        for call in scope:
            self._trace.record(call)
        return True

    def _on_whole_values(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return a statement that reads whole values, which are gathered before it."""
        swapped = {
            Variable(p): self.whole(p)
            for p in bsym.flat_proxy_args
            if p.name in self._values and self.whole(p) is not p
        }
        if not swapped:
            return bsym
        new = bsym.from_bsym_swap_proxies(swapped)
        for old, p in zip(bsym.flat_proxy_outs, new.flat_proxy_outs, strict=True):
            if old.name != p.name:  # an operand that is a result
                self._values[old.name] = p, None
        return new

    def _bind(self, bsym: BoundSymbol, results: Sequence[Result], start: int) -> None:
        """Enter the results of a rule, under the names of the statement's where they were recorded for it."""
        scope = self._trace.peek_scope()
        recorded = {p.name for call in scope[start:] for p in call.flat_proxy_outs}
        kept = {v.name for v in self._converted.values()} | {v.name for v, _ in self._values.values()}
        renamed: dict[Variable, Any] = {}
        for output, (value, division) in zip(bsym.flat_proxy_outs, results, strict=True):
            if value.name in recorded - kept and Variable(value) not in renamed:
                named = value.replace(name=output.name)
                renamed[Variable(value)] = value = named
            self._values[output.name] = renamed.get(Variable(value), value), division
        if renamed:
            scope[start:] = [call.from_bsym_swap_proxies(renamed) for call in scope[start:]]

    # -- values, and their conversions

    def value(self, p: Any) -> Any:
        """Return what a value of the original program is here, whole or divided."""
        return self._values.get(p.name, (p, None))[0]

    def division(self, p: Any) -> Division | None:
        """Return how a value of the original program is divided; None for a whole one."""
        if not isinstance(p, TensorProxy):
            return None
        return self._values.get(p.name, (p, None))[1]

    def whole(self, p: Any) -> Any:
        """Return a value, whole."""
        value, division = self.value(p), self.division(p)
        if division is None:
            return value
        return self._convert(("whole", value.name), lambda: _joined(value, division))

    def part(self, p: Any, division: Division) -> Any:
        """Return the part of this process of a value, divided in some way."""
        if self.division(p) == division:
            return self.value(p)
        whole = self.whole(p)
        return self._convert(("part", whole.name, division), lambda: _parted(whole, division))

    def shared(self, p: Any, group: str) -> Any:
        """Return a whole value that the processes of a group read for parts of results.

        Its gradient is the sum of those of all processes.
        """
        division = self.division(p)
        if division is not None and division.group == group and division.is_even:
            value = self.value(p)
            return self._convert(("gathered", value.name), lambda: all_gather(value, group, division.dim))
        whole = self.whole(p)
        if not whole.dtype.is_inexact:
            return whole
        return self._convert(("shared", whole.name, group), lambda: shared(whole, group))

    def _convert(self, key: tuple[Any, ...], convert: Any) -> Any:
        key = (*key, self._grad_mode)
        if key not in self._converted:
            self._converted[key] = convert()
        return self._converted[key]


def _joined(value: Any, division: Division) -> Any:
    whole = joined(value, division.group, division.dim)
    return whole if division.is_even else ltorch.narrow(whole, division.dim, 0, division.extent)


def _parted(whole: Any, division: Division) -> Any:
    missing = division.each * division.size - division.extent
    if missing:
        shape = replace(division, extent=missing).whole(whole.shape)
        zeros = ltorch.zeros(shape, dtype=whole.dtype, device=whole.device)
        whole = ltorch.cat((whole, zeros), division.dim)
    return part_of(whole, division.group, division.dim)
