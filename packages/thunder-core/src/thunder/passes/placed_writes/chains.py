"""Chains: the calls from an input to the value that is copied to it."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.view_rules import Place
from thunder.passes.placed_writes.program_facts import Link, ProgramFacts, Refused, name_of
from thunder.passes.placed_writes.raising_calls import runs_kernel_of_core
from thunder.passes.placed_writes.written_places import (
    are_same_places,
    part_written,
    place_of_argument,
    place_of_view,
    whole_place,
)

__all__ = ["Chain", "Step", "chain_of"]


@dataclass(frozen=True)
class Step:
    """A call of a chain, whose result ``value`` becomes the memory of ``source``, a value before it.

    Without ``link`` nothing is left of the call. ``written`` is then a value that the call before it in the
    chain has to have written to its place.
    """

    position: int
    value: TensorProxy
    source: TensorProxy
    link: Link | None = None
    written: TensorProxy | None = None


@dataclass(frozen=True)
class Chain:
    """The calls from an input to the value that is copied to it, first ones first."""

    copy: BoundSymbol
    steps: tuple[Step, ...]
    #: whether what is written to a part of the input is computed in that part
    is_by_parts: bool

    @property
    def target(self) -> TensorProxy:
        """The input."""
        target = self.copy.args[1]
        assert isinstance(target, TensorProxy), "a copy writes to a tensor"
        return target

    @property
    def links(self) -> list[Link]:
        """The calls that write."""
        return [step.link for step in self.steps if step.link is not None]


def chain_of(facts: ProgramFacts, copy: BoundSymbol, *, by_parts: bool) -> Chain:
    """Return the chain of an input; raise Refused if there is none.

    ``by_parts``: what is written to a part of the input is computed in that part, where it can be.
    """
    return _Builder(facts, by_parts).chain(copy)


class _Builder:
    def __init__(self, facts: ProgramFacts, by_parts: bool) -> None:
        self.facts, self.by_parts = facts, by_parts
        self.steps: list[Step] = []  # last ones first
        #: values that are computed in a part of the input, and those that have to be
        self.located: dict[str, Place] = {}
        self.required: list[tuple[TensorProxy, Place]] = []

    def chain(self, copy: BoundSymbol) -> Chain:
        value, target = copy.args
        self._refuse(copy)
        place = whole = whole_place(target)
        while value.name != target.name:
            position = self.facts.producer.get(value.name)
            if position is None:
                raise Refused("its value is another input")
            bsym = self.facts.statements[position]
            link = self.facts.link(position)
            if OpTags.SAME_ELEMENTS in bsym.tags and runs_kernel_of_core(bsym):
                self.steps.append(Step(position, value, bsym.args[0]))
                value = bsym.args[0]
            elif link is not None and (base := link.base_of(value)) is not None:
                if self.by_parts and place is not None and self._is_by_part(position, value, base, place):
                    value = base
                else:
                    self.steps.append(Step(position, value, base, link))
                    value = base
            else:
                found = None if place is None else place_of_argument(bsym, place)
                if found is None:
                    raise Refused(_no_form(bsym))
                value, place = found
        for p, required in self.required:
            if p.name not in self.located or not are_same_places(self.located[p.name], required):
                raise Refused("a part of it is computed elsewhere")
        if place is not None and whole is not None and not are_same_places(place, whole):
            raise Refused("its value has its elements in another order")
        self._check_order()
        return Chain(copy, tuple(reversed(self.steps)), bool(self.located))

    def _refuse(self, copy: BoundSymbol) -> None:
        facts, (value, target) = self.facts, copy.args
        if facts.is_asynchronous:
            raise Refused("the program has asynchronous calls, which may still read it")
        if target.name in facts.shared:
            raise Refused("it shares memory with another input")
        if facts.copy_counts[target.name] > 1:
            raise Refused("it is copied to twice")
        tracked = facts.is_training and (target.requires_grad or value.requires_grad)
        if copy.kwargs["grad_enabled"] or tracked:
            raise Refused("torch's autograd tracks the write")

    def _check_order(self) -> None:
        """Raise Refused unless the links are in the program's order, and values where they have to be."""
        last: Link | None = None
        for step in reversed(self.steps):
            if step.link is not None:
                if last is not None and last.position >= step.position:
                    raise Refused("its parts are not computed in the order of the writes")
                last = step.link
            written = step.written
            if written is not None and (last is None or all(p.name != written.name for p in last.copies)):
                raise Refused("a part of it is computed elsewhere")
        if last is None:
            raise Refused("its value is its own")

    def _is_by_part(self, position: int, result: TensorProxy, base: TensorProxy, place: Place) -> bool:
        """Return whether what a call writes to a part of ``base`` is computed there; add the steps then.

        It is if the last call that computes it has an in-place form on that part: on a view of ``base``, or
        on a value that an earlier step has written there. It may also be that value itself.
        """
        facts = self.facts
        found = part_written(facts.statements[position], place)
        steps, located = [Step(position, result, base)], dict[str, Place]()
        while found is not None:
            value, part = found
            producer = facts.producer.get(value.name)
            if producer is None:
                return False
            bsym, link = facts.statements[producer], facts.link(producer)
            located[value.name] = part
            if OpTags.SAME_ELEMENTS in bsym.tags and runs_kernel_of_core(bsym):
                steps.append(Step(producer, value, bsym.args[0]))
                found = bsym.args[0], part
            elif link is None or link.base_of(value) is None:
                found = place_of_argument(bsym, part)
            elif len(link.bases) > 1:
                return False
            else:
                (source,) = link.bases
                of_base = place_of_view(source, base, place, facts.statements, facts.producer)
                if of_base is not None and not are_same_places(of_base, part):
                    return False
                if of_base is None:
                    is_view = source.name in facts.views or source.name in facts.inputs
                    self.required.append((value if is_view else source, part))
                    if is_view:
                        self.steps += [Step(position, result, base, written=value), *steps[1:]]
                        return True
                self.steps += [*steps, Step(producer, value, source, link)]
                self.located |= located
                return True
        return False


def _no_form(bsym: BoundSymbol) -> str:
    if bsym.sym.is_fusion:
        return f"the region {bsym.sym.name} computes its value"
    return f"{name_of(bsym)} computes its value"
