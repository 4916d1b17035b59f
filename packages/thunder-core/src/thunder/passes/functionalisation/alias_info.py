"""Alias analysis: tensors that may share storage, their last writes, and which escape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from thunder.base.structural_ids import RETURN
from thunder.ir.aliasing import DisjointSets, InputAlias, View, before_first_write, views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ops.layouts import Layouts
from thunder.passes.functionalisation.overlapping_inputs import written_groups
from thunder.passes.mutations import COPY, flattened, writing_operators

__all__ = ["AliasInfo", "analyse_aliases"]


@dataclass(frozen=True, kw_only=True)
class AliasInfo:
    """The facts about aliases and writes that the rewrite of a program needs.

    Attributes:
        program: the calls of the program, in which each write is a statement.
        call_of: for each statement, the number of the call of the original trace that it is a part of.
        inputs: the tensors among the arguments, by name.
        pre_write_proxies: the tensors that require grad only since a write, by name, as they were before it.
        shared: the groups of inputs that overlap in memory and of which one is written.
        layouts: the layouts that eager would give the tensors, computed when they are queried.
        operator_of: for each write, as the names of value and target, the operator that it is a part of.
    """

    program: tuple[BoundSymbol, ...]
    call_of: tuple[int, ...]
    inputs: Mapping[str, TensorProxy]
    pre_write_proxies: Mapping[str, TensorProxy]
    shared: tuple[tuple[InputAlias, ...], ...]
    layouts: Layouts
    operator_of: Mapping[tuple[str, str], BoundSymbol]
    #: name of a tensor → name that represents all tensors that may share its storage; missing if it is the
    #: only one
    _alias_sets: Mapping[str, str]
    #: representative → position of the last write to a tensor of the set
    _last_write: Mapping[str, int]
    #: representative → names of inputs and results in the set
    _escaping: Mapping[str, frozenset[str]]

    def is_written(self, proxy: TensorProxy) -> bool:
        """Return whether the storage of a tensor may be written somewhere in the program."""
        return self._alias_sets.get(proxy.name, proxy.name) in self._last_write

    def may_share(self, a: TensorProxy, b: TensorProxy | None = None) -> bool:
        """Return whether a tensor may share storage with another of the program, or with ``b``."""
        if b is None or a.name not in self._alias_sets:
            return b is None and a.name in self._alias_sets
        return self._alias_sets[a.name] == self._alias_sets.get(b.name)

    def view_matters(self, view: View, position: int) -> bool:
        """Return whether it matters that an output of the statement at ``position`` is a view.

        It does if the storage is written later, or if it is written at all and several tensors in it escape.
        """
        aliases = self._alias_sets.get(view.output.name, view.output.name)
        last = self._last_write.get(aliases)
        if last is None:
            return False
        return last >= position or len(self._escaping.get(aliases, ())) >= 2

    def parts_before(self, position: int) -> Sequence[BoundSymbol]:
        """Return the statements before ``position`` that are parts of the same call."""
        first = position
        while first > 0 and self.call_of[first - 1] == self.call_of[position]:
            first -= 1
        return self.program[first:position]


def analyse_aliases(trace: TraceCtx) -> AliasInfo:
    """Analyse aliases and writes of a trace; raise UnsupportedProgram for an unknown write."""
    calls = [list(flattened([bsym])) for bsym in trace.bound_symbols]
    program = tuple(bsym for parts in calls for bsym in parts)
    inputs = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
    alias_sets = _alias_sets(program, trace.input_aliases)
    last_write: dict[str, int] = {}
    escaping = defaultdict(set)
    for name in inputs:
        escaping[alias_sets.get(name, name)].add(name)
    for position, bsym in enumerate(program):
        if bsym.sym.id == COPY:
            target = bsym.args[1].name
            last_write[alias_sets.get(target, target)] = position
        elif bsym.sym.id == RETURN:
            for p in bsym.flat_proxy_args:
                escaping[alias_sets.get(p.name, p.name)].add(p.name)
    return AliasInfo(
        program=program,
        call_of=tuple(number for number, parts in enumerate(calls) for _ in parts),
        inputs=inputs,
        pre_write_proxies=before_first_write((*trace.args, *(p for b in program for p in b.flat_proxy_outs))),
        shared=tuple(
            written_groups(trace.input_aliases, lambda p: alias_sets.get(p.name, p.name) in last_write)
        ),
        layouts=Layouts(inputs.values(), program, trace.input_aliases),
        operator_of=writing_operators(trace.bound_symbols),
        _alias_sets=alias_sets,
        _last_write=last_write,
        _escaping={representative: frozenset(names) for representative, names in escaping.items()},
    )


def _alias_sets(
    program: Sequence[BoundSymbol], input_aliases: Sequence[Sequence[InputAlias]]
) -> Mapping[str, str]:
    """Map each tensor that may share storage with another to the name that represents its set."""
    sets, names = DisjointSets(), set()
    pairs = [(view.output.name, view.source.name) for bsym in program for view in views_of(bsym)]
    pairs += [(alias.proxy.name, group[0].proxy.name) for group in input_aliases for alias in group[1:]]
    for a, b in pairs:
        sets.union(a, b)
        names |= {a, b}
    return {name: sets.find(name) for name in names}
