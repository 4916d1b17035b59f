"""Writes in place: values that functionalisation computed beside the memory that they are written to.

Note [Writes in place]
A functional program computes the next value of an input and copies it there at the end. Where nothing reads
the old elements after the write, the write itself goes to the input:

    def f(cache, k, p):          t1 = copy_with_setitem(cache, (:, p), k)       copy_with_setitem_in_place(…)
        cache[:, p] = k      →   t2 = sum(t1)                             →     t2 = sum(cache)
        return cache.sum()       copy_(t1, cache)                               return t2
                                 return t2

A chain of calls leads from the input to the value that is copied to it. It is put in place as a whole or not
at all:

- each of its calls has an in-place form (``ops/in_place``), which writes to the value before it in the chain;
- later statements read neither that value nor memory that it may share, and no result and no saved value is
  in the memory of the chain;
- the input shares memory with no other input (``trace.input_aliases``);
- where a later statement may raise, the form keeps what it overwrites (``base/overwritten``), to be put back.
  Where only memory may run out, a write to all elements keeps nothing; a call that fails so is not run again.

A part of a tensor that the program has computed itself is written in place too, if it is read no more.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache

from thunder.base.structural_ids import RETURN, STRUCTURAL
from thunder.base.tags import OpenTag, OpTags
from thunder.ir.aliasing import shared_memory, views_of
from thunder.ir.effects import COPY
from thunder.ir.proxies import FutureTensorProxy, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_sizes import are_same
from thunder.ir.trace import TraceCtx, TraceTag, with_bound_symbols
from thunder.ops.data_errors import may_raise_on_data
from thunder.ops.in_place import InPlaceForm, has_own_form, in_place_form
from thunder.ops.operator import row_of
from thunder.passes.raising_calls import ProgramEffects, Raises, raises, runs_kernel_of_core

__all__ = ["InputWrite", "write_in_place"]

#: calls whose result has the elements of the first argument, which alone is read
_SAME = frozenset({"prims.detach", "prims.replace_data", "prims.stride_order"})


#: calls whose results may have gaps, or elements that overlap
_UNUSUAL = frozenset({"torch.empty_strided", "torch.Tensor.new_empty_strided"})


@dataclass(frozen=True)
class InputWrite:
    """What became of a program's writes to an input.

    ``lines`` are the user's lines; ``reason`` says why the input is written by a copy, None: in place.
    """

    target: str
    lines: tuple[str, ...]
    reason: str | None = None

    def __str__(self) -> str:
        where = f" ({', '.join(self.lines)})" if self.lines else ""
        return f"{self.target}{where}: {'in place' if self.reason is None else f'copied, {self.reason}'}"


def write_in_place(
    trace: TraceCtx, effects: ProgramEffects, deferred: TraceCtx | None = None
) -> tuple[TraceCtx, TraceCtx | None, list[InputWrite]]:
    """Put writes in place; return the program, the deferred writes that are left, and what was done.

    See Note [Writes in place]. The calls of ``trace`` are claimed. ``deferred`` are the writes that follow it
    in training (``autograd/deferred_writes``). Returns the traces themselves if nothing changes.
    """
    start = time.perf_counter_ns()
    ending = trace if deferred is None else deferred
    if not any(b.sym.id == COPY for b in ending.bound_symbols) and not any(
        form.keeps_layout for b in trace.bound_symbols if (form := in_place_form(b)) is not None
    ):
        return trace, deferred, []
    facts = _Facts(trace, deferred)
    chains = _Chains(facts, effects)
    chains.select()
    links = {link.position: link for chain in chains.chosen.values() for link in chain.links}
    values = {step.value.name: chain.target for chain in chains.chosen.values() for step in chain.steps}
    _place_own(facts, links, values)
    if not links:
        return trace, deferred, chains.report
    dropped = chains.dropped
    statements = [
        links[i].in_place(values) if i in links else substitute_operands(bsym, values)
        for i, bsym in enumerate(trace.bound_symbols)
        if i not in dropped
    ]
    new = with_bound_symbols(trace, statements, "Writes in place", time.perf_counter_ns() - start)
    if deferred is not None:
        written = {chain.target.name for chain in chains.chosen.values()}
        left = [b for b in deferred.bound_symbols if b.sym.id != COPY or b.args[1].name not in written]
        deferred = with_bound_symbols(deferred, left, "Writes in place")
    return new, deferred, chains.report


@dataclass
class _Link:
    """A call of a chain, at a position of the program: ``copies`` become the memory of ``bases``."""

    position: int
    bsym: BoundSymbol
    form: InPlaceForm
    bases: Sequence[TensorProxy]
    copies: Sequence[TensorProxy]
    #: whether it keeps what it overwrites, writes memory of the program itself, or neither
    tag: OpenTag | None = None

    def in_place(self, values: Mapping[str, TensorProxy]) -> BoundSymbol:
        """Return the call that writes, on the operands that ``values`` names."""
        call = substitute_operands(self.bsym, values)
        return self.bsym.from_bsym(
            sym=_symbol(self.form, self.bsym.sym.name, self.bsym.sym.id, self.tag),
            args=call.args,
            kwargs=call.kwargs,
            output=self.form.results(self.bsym.output),
            subsymbols=(),
        )


#: how the names of in-place forms end
_ENDINGS = {
    None: "_in_place",
    OpTags.KEEPS_OVERWRITTEN: "_in_place_kept",
    OpTags.WRITES_OWN_MEMORY: "_in_place_own",
}


@cache
def _symbol(form: InPlaceForm, name: str, operator_id: str, tag: OpenTag | None) -> Symbol:
    """Return the symbol of an in-place form."""
    row = row_of(operator_id)
    tags = frozenset({OpTags.IN_PLACE} if tag is None else {OpTags.IN_PLACE, tag})
    name = f"{name if row is None else row.name}{_ENDINGS[tag]}"
    kernel = form.kernel(keeps_overwritten=tag is OpTags.KEEPS_OVERWRITTEN)
    return Symbol(name, f"{operator_id}_in_place", tags=tags, python_impl=kernel)


class _Facts:
    """What is known of a program: who computes and who reads a value, and which values share memory."""

    def __init__(self, trace: TraceCtx, deferred: TraceCtx | None) -> None:
        self.statements = trace.bound_symbols
        self.inputs = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
        self.is_training = TraceTag.AUGMENTED_FORWARD in trace.tags
        self.shared = {alias.proxy.name for group in trace.input_aliases for alias in group}
        self.producer = {p.name: i for i, b in enumerate(self.statements) for p in b.flat_proxy_outs}
        self.views = {view.output.name for b in self.statements for view in views_of(b)}
        self.is_asynchronous = any(
            isinstance(p, FutureTensorProxy) for b in self.statements for p in b.flat_proxy_outs
        )
        self._memory = shared_memory(self.statements)
        self._of_inputs = {self.memory(p) for p in self.inputs.values()}
        #: the value and the input of each copy to an input
        ending = self.statements if deferred is None else deferred.bound_symbols
        self.copies = [b for b in ending if b.sym.id == COPY and b.args[1].name in self.inputs]
        self.copy_position = {b.args[1].name: i for i, b in enumerate(self.statements) if b.sym.id == COPY}
        #: the values of a forward that the deferred writes read once: they copy it
        reads = [
            p.name
            for b in (deferred.bound_symbols if deferred is not None else ())
            for p in b.flat_proxy_args
        ]
        self._only_copied = {b.args[0].name for b in self.copies if reads.count(b.args[0].name) == 1}
        #: memory → the positions of statements that read it; of the return separately
        self._readers: dict[str, list[int]] = {}
        self.returned: set[str] = set()
        for i, bsym in enumerate(self.statements):
            for p in self._read(bsym):
                self._readers.setdefault(self.memory(p), []).append(i)

    def memory(self, p: TensorProxy) -> str:
        """Return the name that represents the values with which a value may share memory."""
        return self._memory.find(p.name)

    def _read(self, bsym: BoundSymbol) -> Iterator[TensorProxy]:
        if bsym.sym.id == RETURN:
            results = bsym.flat_proxy_args
            if self.is_training:  # beside the results it has all inputs
                returned, saved = bsym.args
                tree = (returned["output"], returned["flat_output"])
                results = (
                    *(p for p in proxies_in(tree) if p.name not in self._only_copied),
                    *proxies_in(saved),
                )
            self.returned |= {self.memory(p) for p in results if isinstance(p, TensorProxy)}
        elif bsym.sym.id not in STRUCTURAL:
            read = bsym.args[:1] if bsym.sym.id == COPY or bsym.sym.id in _SAME else (bsym.args, bsym.kwargs)
            yield from (p for p in proxies_in(read) if isinstance(p, TensorProxy))

    def is_own(self, p: TensorProxy) -> bool:
        """Return whether a value has memory of its own that a kernel of core has allocated."""
        position = self.producer.get(p.name)
        if position is None or p.name in self.views or self.memory(p) in self._of_inputs:
            return False
        bsym = self.statements[position]
        return (
            runs_kernel_of_core(bsym) and bsym.sym.id not in _UNUSUAL and OpTags.IN_PLACE not in bsym.all_tags
        )

    def check_reads(self, link: _Link, memory: Set[str], end: int, dropped: Container[int]) -> None:
        """Raise _Refused if ``memory``, which a call is to write, is read by it or between it and ``end``."""
        bases = {p.name for p in link.bases}
        operands = [p for p in proxies_in((link.bsym.args, link.bsym.kwargs)) if isinstance(p, TensorProxy)]
        others = [p for p in operands if p.name not in bases]
        if any(self.memory(p) in memory for p in others) or (
            len(operands) - len(others) > len(bases) and not link.form.is_whole
        ):
            raise _Refused(f"{_name(link.bsym)} reads its memory by another argument")
        for i in sorted(i for m in memory for i in self._readers.get(m, ())):
            if link.position < i < end and i not in dropped:
                raise _Refused(f"{_name(self.statements[i])} reads the old elements")
        if end == len(self.statements) and memory & self.returned:
            raise _Refused("the old elements are a result, or saved for the backward")

    def link(self, position: int) -> _Link | None:
        """Return the call at a position with its in-place form; None if it has none."""
        bsym = self.statements[position]
        form = in_place_form(bsym)
        if form is None or not (runs_kernel_of_core(bsym) or has_own_form(bsym)):
            return None
        bases, copies = form.bases(bsym.args, bsym.kwargs), form.copies(bsym.output)
        if len(bases) != len(copies) or not all(map(_have_same_elements, bases, copies)):
            return None
        return _Link(position, bsym, form, bases, copies)


def _have_same_elements(base: object, copy: object) -> bool:
    if type(base) is not TensorProxy or type(copy) is not TensorProxy:
        return False
    return base.dtype is copy.dtype and base.device == copy.device and are_same(base.shape, copy.shape)


class _Refused(Exception):
    """A chain is not put in place; the message is the reason."""


@dataclass(frozen=True)
class _Step:
    """A call of a chain, whose result ``value`` becomes the input; without ``link`` it passes elements on."""

    position: int
    value: TensorProxy
    link: _Link | None = None


@dataclass(frozen=True)
class _Chain:
    """The calls from an input to the value that is copied to it, first ones first."""

    target: TensorProxy
    steps: tuple[_Step, ...]

    @property
    def links(self) -> list[_Link]:
        """The calls that write."""
        return [step.link for step in self.steps if step.link is not None]


class _Chains:
    """Selects the inputs that are written in place, and reports on all that are written."""

    def __init__(self, facts: _Facts, effects: ProgramEffects) -> None:
        self.facts, self.effects = facts, effects
        self.chosen: dict[str, _Chain] = {}
        self.report: list[InputWrite] = []
        #: the positions of statements of which nothing is left
        self.dropped: set[int] = set()
        #: the names of the values that become inputs
        self._values: set[str] = set()
        #: for each statement, the worst that the later ones may raise
        self._later: Sequence[Raises] = ()

    def select(self) -> None:
        """Select chains; drop those that cannot be put in place until all that are left can be."""
        refused: dict[str, str] = {}
        for copy in self.facts.copies:
            name = copy.args[1].name
            try:
                self.chosen[name] = self._chain(copy)
            except _Refused as reason:
                refused[name] = str(reason)
        while found := self._refusals():
            refused |= found
            self.chosen = {name: chain for name, chain in self.chosen.items() if name not in found}
        for copy in self.facts.copies:
            name = copy.args[1].name
            self.report.append(InputWrite(name, self._lines(copy), refused.get(name)))
        for chain in self.chosen.values():
            for link in chain.links:
                if self._needs_undoing(link):
                    link.tag = OpTags.KEEPS_OVERWRITTEN

    def _refusals(self) -> dict[str, str]:
        """Return the inputs that cannot be written in place beside the other chosen ones, with reasons."""
        steps = [step for chain in self.chosen.values() for step in chain.steps]
        copies = (i for name, i in self.facts.copy_position.items() if name in self.chosen)
        self.dropped = {*(step.position for step in steps if step.link is None), *copies}
        self._values = {step.value.name for step in steps}
        self._later = self._later_raises({step.position for step in steps if step.link is not None})
        refused: dict[str, str] = {}
        for name, chain in self.chosen.items():
            try:
                self._check(chain)
            except _Refused as reason:
                refused[name] = str(reason)
        return refused

    def _lines(self, copy: BoundSymbol) -> tuple[str, ...]:
        value, target = copy.args
        chain, producer = self.chosen.get(target.name), self.facts.producer.get(value.name)
        calls = [copy] if producer is None else [self.facts.statements[producer]]
        if chain is not None:
            calls = [link.bsym for link in chain.links]
        sources = [b.source.location for b in calls if b.source is not None]
        return tuple(dict.fromkeys(f"{s.file}:{s.line}" for s in sources))

    # -- the chain of an input -------------------------------------------------------------------------------

    def _chain(self, copy: BoundSymbol) -> _Chain:
        facts, (value, target), steps = self.facts, copy.args, list[_Step]()
        if facts.is_asynchronous:
            raise _Refused("the program has asynchronous calls, which may still read it")
        if target.name in facts.shared:
            raise _Refused("it shares memory with another input")
        if sum(c.args[1].name == target.name for c in facts.copies) > 1:
            raise _Refused("it is copied to twice")
        tracked = facts.is_training and (target.requires_grad or value.requires_grad)
        if copy.kwargs["grad_enabled"] or tracked:
            raise _Refused("torch's autograd tracks the write")
        while value.name != target.name:
            position = facts.producer.get(value.name)
            if position is None:
                raise _Refused("its value is another input")
            bsym = facts.statements[position]
            if bsym.sym.id in _SAME and runs_kernel_of_core(bsym):
                steps.append(_Step(position, value))
                value = bsym.args[0]
                continue
            link = facts.link(position)
            if link is None:
                raise _Refused(_no_form(bsym))
            steps.append(_Step(position, value, link))
            value = next(b for b, c in zip(link.bases, link.copies, strict=True) if c.name == value.name)
        if not any(step.link for step in steps):
            raise _Refused("its value is its own")
        return _Chain(target, tuple(reversed(steps)))

    def _check(self, chain: _Chain) -> None:
        """Raise _Refused if a chain cannot be put in place beside the other chosen ones."""
        facts = self.facts
        own = facts.memory(chain.target)
        if facts.is_training and own in facts.returned:
            raise _Refused("its memory is saved for the backward")
        end = facts.copy_position.get(chain.target.name, len(facts.statements))
        memory = {own}
        for step in chain.steps:
            if step.link is not None:
                if not all(p.name in self._values for p in step.link.copies):
                    raise _Refused(f"{_name(step.link.bsym)} writes another tensor too, which is copied")
                facts.check_reads(step.link, memory, end, self.dropped)
                if step.link.form.restoring is None and self._needs_undoing(step.link):
                    raise _Refused("a later call may raise, and what it overwrites is not known")
            memory.add(facts.memory(step.value))
        if any(map(self._needs_undoing, chain.links)) and all(link.form.is_whole for link in chain.links):
            raise _Refused("a later call may raise, and then all elements would have been kept")
        if (memory - {own}) & facts.returned:
            raise _Refused("a result, or what is saved for the backward, is the value that is written")

    # -- calls that raise ------------------------------------------------------------------------------------

    def _later_raises(self, written: Set[int]) -> list[Raises]:
        """Return for each statement the worst that the later ones may raise."""
        worst, later = Raises.NOTHING, list[Raises]()
        for i, bsym in reversed(list(enumerate(self.facts.statements))):
            later.append(worst)
            is_write = i in written and runs_kernel_of_core(bsym) and not may_raise_on_data(bsym)
            if i not in self.dropped and not is_write:
                worst = max(worst, raises(bsym))
        return later[::-1]

    def _allowed(self, link: _Link) -> Raises:
        """Return the worst that later statements may raise if a call keeps nothing of what it overwrites.

        Of a part of a tensor something is always kept. Where memory runs out after a write to all elements,
        an error passes on what is written, as in eager, unless the program may handle it; so does any error
        if all effects of the program are such writes, and what they overwrite is not known.
        """
        is_part = link.form.restoring is not None and not link.form.is_whole
        if self.effects.handles_errors or is_part:
            return Raises.NOTHING
        if link.form.is_whole:
            return Raises.MEMORY
        is_only = not self.effects.has_others and len(self.chosen) == len(self.facts.copies)
        return Raises.ERRORS if is_only else Raises.MEMORY

    def _needs_undoing(self, link: _Link) -> bool:
        """Return whether what a call overwrites may have to be put back."""
        is_seen = self.effects.handles_errors or link.form.restoring is not None
        raises_itself = may_raise_on_data(link.bsym) and is_seen
        if self.facts.is_training or raises_itself:  # in training hooks of the caller may raise
            return True
        return self._later[link.position] > self._allowed(link)


def _name(bsym: BoundSymbol) -> str:
    return str(bsym.sym.name if bsym.sym.is_fusion else bsym.sym.id)


def _no_form(bsym: BoundSymbol) -> str:
    if bsym.sym.is_fusion:
        return f"the region {bsym.sym.name} computes its value"
    return f"{_name(bsym)} computes its value"


# -- tensors of the program itself ---------------------------------------------------------------------------


def _place_own(facts: _Facts, links: dict[int, _Link], values: dict[str, TensorProxy]) -> None:
    """Add calls that write a part of a tensor which the program has computed, and reads no more."""
    own: dict[str, TensorProxy] = {}  # a value that became memory of an earlier one, by name
    for position in range(len(facts.statements)):
        link = facts.link(position) if position not in links and not facts.is_asynchronous else None
        if link is None or not link.form.keeps_layout:
            continue
        (base,), (copy,) = link.bases, link.copies
        if base.name in values or not (base.name in own or facts.is_own(base)):
            continue
        try:
            facts.check_reads(link, {facts.memory(base)}, len(facts.statements), ())
        except _Refused:
            continue
        link.tag = OpTags.WRITES_OWN_MEMORY
        links[position], own[copy.name] = link, own.get(base.name, base)
    values |= own
