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
from typing import Any, Final

import torch

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core import prims
from thunder.core.proxies import ProxyTag, is_proxy
from thunder.core.rewrite import in_place_of, record_parts, rename_results, replace_calls, substitute_operands
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from ..collectives import all_gather, reduce_scatter
from ..last_statements import final_grad_mode, split_at_write
from ..sharding.rules import RULES, rule_of
from ..sharding.shard import Shard
from ..sharding.values import NoRule, Result
from .draws import check_draws, devices_of_draws
from .operators import INLINED, assembled, joined, part_of, reduced, shared

__all__ = ["DIVISION", "divided", "inlined"]

#: the provenance of the program that computes on parts
DIVISION: Final = "Division over processes"

#: where the operators of core come from, by the first part of their ids
_CORE: Final = frozenset({"torch", "ltorch", "prims"})


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
    new.set_provenance(TraceProvenance(DIVISION))
    return new


def inlined(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return a trace with gradients in which the operators between layouts are collectives."""
    if not any(bsym.sym.id in INLINED for bsym in trace.bound_symbols):
        return trace
    returned = {p.name for p in trace.bound_symbols[-1].flat_proxy_args}

    def collective(bsym: BoundSymbol) -> Any:
        if bsym.sym.id == shared.id and bsym.output.name not in returned:
            return bsym.args[0]
        return record_parts(bsym) if bsym.sym.id in INLINED and bsym.subsymbols else None

    return replace_calls(trace, collective, provenance="Collectives between layouts")


class _Program:
    """The values of a program that is divided, and their conversions."""

    rotates = False

    def __init__(self, trace: TraceCtx) -> None:
        self._trace = trace
        #: name in the original program → what it is here, and how it is divided
        self._values: dict[str, tuple[Any, Shard | None]] = {}
        #: conversions that there are already; the gradient of one depends on the mode in which it is recorded
        self._converted: dict[tuple[Any, ...], Any] = {}
        self._recomputed = False
        self._grad_mode = torch.is_grad_enabled()

    # -- statements

    def statements(self, bsym: BoundSymbol) -> list[BoundSymbol]:
        """Return what computes here what a statement of the program computes."""
        if bsym.sym.id == assembled.id:
            part, group, dim, extent, results = bsym.args
            self._values[bsym.output.name] = self.local(part), Shard(group, dim, extent, results)
            return []
        if bsym.sym.id == prims.set_grad_enabled.id:
            self._grad_mode = bool(bsym.args[0])
        outputs = [p for p in bsym.flat_proxy_outs if is_proxy(p)]
        self._recomputed = bool(outputs) and all(ProxyTag.RECOMPUTE_IN_BACKWARD in p.tags for p in outputs)
        scope: list[BoundSymbol] = []
        with self._trace.recording_into(scope), torch.set_grad_enabled(self._grad_mode):
            if not self._is_computed_on_parts(bsym):
                self._trace.record(self._on_whole_values(bsym))
        for p in (p for call in scope for p in call.flat_proxy_outs if self._recomputed):
            p.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        return in_place_of(bsym, scope)

    def on_whole_values(self, bsyms: Sequence[BoundSymbol]) -> list[BoundSymbol]:
        """Return the last statements of a program, after the conversions of all values that they read."""
        read = {p.name: p for bsym in bsyms for p in bsym.flat_proxy_args if p.name in self._values}
        scope: list[BoundSymbol] = []
        with self._trace.recording_into(scope), final_grad_mode(self._grad_mode, bsyms) as self._grad_mode:
            for p in read.values():
                self.full(p)
        return [*scope, *map(self._on_whole_values, bsyms)]

    def _is_computed_on_parts(self, bsym: BoundSymbol) -> bool:
        """Record what computes a statement from parts, if its operands are divided and a rule says how."""
        if not any(self.shard_of(p) for p in bsym.flat_proxy_args) or not _can_be_divided(bsym):
            return False
        rule = rule_of(bsym)
        if rule is not None:
            start, converted = len(self._trace.peek_scope()), dict(self._converted)
            try:
                self._bind(bsym, rule(bsym, self), start)
                return True
            except NoRule:
                del self._trace.peek_scope()[start:]
                self._converted = converted
        return bool(bsym.subsymbols) and self._is_decomposed(bsym)

    def _is_decomposed(self, bsym: BoundSymbol) -> bool:
        """Record the parts of a composite, if none of them needs a whole operand that is divided."""
        values, converted = dict(self._values), dict(self._converted)
        scope: list[BoundSymbol] = []
        with self._trace.recording_into(scope):
            for sub in bsym.subsymbols:
                if self._is_computed_on_parts(sub):
                    continue
                if any(self.shard_of(p) for p in sub.flat_proxy_args):
                    self._values, self._converted = values, converted
                    return False
                self._trace.record(self._on_whole_values(sub))
        for call in scope:
            self._trace.record(call)
        return True

    def _on_whole_values(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return a statement that reads whole values, which are gathered before it."""
        whole = {p.name: self.full(p) for p in bsym.flat_proxy_args if p.name in self._values}
        new = substitute_operands(bsym, whole)
        for old, p in zip(bsym.flat_proxy_outs, new.flat_proxy_outs, strict=True):
            if old.name != p.name:  # an operand that is a result
                self._values[old.name] = p, None
        return new

    def _bind(self, bsym: BoundSymbol, results: Sequence[Result], start: int) -> None:
        """Enter the results of a rule, under the names of the statement's where they were recorded for it."""
        scope = self._trace.peek_scope()
        kept = {v.name for v in self._converted.values()} | {v.name for v, _ in self._values.values()}
        pairs = list(zip(bsym.flat_proxy_outs, results, strict=True))
        named = {p.name: v if v.name in kept else v.replace(name=p.name) for p, (v, _) in pairs}
        own = [(named[p.name], v) for p, (v, _) in pairs if v.name not in kept]
        scope[start:] = rename_results(scope[start:], bsym, own, named)
        self._values.update({p.name: (named[p.name], division) for p, (_, division) in pairs})

    # -- values, and their conversions

    def local(self, p: Any) -> Any:
        """Return what a value of the original program is here, whole or divided."""
        return self._values.get(p.name, (p, None))[0]

    def shard_of(self, p: Any) -> Shard | None:
        """Return how a value of the original program is divided; None for a whole one."""
        if not isinstance(p, TensorProxy):
            return None
        return self._values.get(p.name, (p, None))[1]

    def full(self, p: Any) -> Any:
        """Return a value, whole."""
        value, division = self.local(p), self.shard_of(p)
        if division is None:
            return value
        return self._convert(("whole", value.name), lambda: _joined(value, division))

    def shard(self, p: Any, layout: Shard) -> Any:
        """Return the part of this process of a value, divided in some way."""
        if not isinstance(p, TensorProxy) or self.shard_of(p) == layout:
            return self.local(p) if isinstance(p, TensorProxy) else p
        full = self.full(p)
        return self._convert(("part", full.name, layout), lambda: _parted(full, layout))

    def replicate(self, p: Any, group: str) -> Any:
        """Return a whole value that the processes of a group read for parts of results.

        Its gradient is the sum of those of all processes.
        """
        layout = self.shard_of(p)
        if layout is not None and layout.group == group and layout.is_even:
            value = self.local(p)
            return self._convert(("gathered", value.name), lambda: all_gather(value, group, layout.dim))
        full = self.full(p)
        if not isinstance(full, TensorProxy) or not full.dtype.is_inexact:
            return full
        return self._convert(("shared", full.name, group), lambda: shared(full, group))

    def reduce(self, partial: Any, layout: Shard) -> Result:
        """Return the sum of the terms of all processes: divided as a weight says, or replicated."""
        group, dim = layout.group, layout.results
        if dim is not None and -partial.ndim <= dim < partial.ndim:
            placed = Shard(group, dim % partial.ndim, partial.shape[dim])
            if placed.is_even and placed.dim != partial.ndim - 1:
                return reduce_scatter(partial, group, "sum", placed.dim), placed
        return reduced(partial, group), None

    def _convert(self, key: tuple[Any, ...], convert: Any) -> Any:
        key = (*key, self._grad_mode)
        if key not in self._converted:
            self._converted[key] = convert()
        return self._converted[key]


def _can_be_divided(bsym: BoundSymbol) -> bool:
    """Return whether the gradient of a statement is that of what it consists of, or of its rule.

    That of a `torch.autograd.Function`, of a hook, or of an operator of a package may be any function of the
    full value: these read full values.
    """
    return bsym.sym.id in RULES or (
        not bsym.sym.is_of_package and str(bsym.sym.id).partition(".")[0] in _CORE
    )


def _joined(value: Any, layout: Shard) -> Any:
    whole = joined(value, layout.group, layout.dim)
    return whole if layout.is_even else ltorch.narrow(whole, layout.dim, 0, layout.extent)


def _parted(whole: Any, layout: Shard) -> Any:
    missing = layout.each * layout.size - layout.extent
    if missing:
        shape = replace(layout, extent=missing).full(whole.shape)
        zeros = ltorch.zeros(shape, dtype=whole.dtype, device=whole.device)
        whole = ltorch.cat((whole, zeros), layout.dim)
    return part_of(whole, layout.group, layout.dim)
