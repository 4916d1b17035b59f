"""The choice of the inputs that are written in place."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from thunder.base.tags import OpTags
from thunder.ir.symbol import BoundSymbol
from thunder.ops.data_errors import may_raise_on_data
from thunder.passes.placed_writes.chains import Chain, chain_of
from thunder.passes.placed_writes.program_facts import Link, ProgramFacts, Refused, name_of
from thunder.passes.placed_writes.raising_calls import ProgramEffects, Raises, raises, runs_kernel_of_core

__all__ = ["ChainSelection", "InputWrite"]


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


class ChainSelection:
    """Selects the inputs that are written in place, and reports on all that are written."""

    def __init__(self, facts: ProgramFacts, effects: ProgramEffects) -> None:
        self.facts, self.effects = facts, effects
        self.chosen: dict[str, Chain] = {}
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
            self._choose(copy, refused, by_parts=True)
        while found := self._refusals():
            refused |= found
            failed = [chain for name, chain in self.chosen.items() if name in found]
            self.chosen = {name: chain for name, chain in self.chosen.items() if name not in found}
            for chain in failed:
                if chain.is_by_parts:
                    self._choose(chain.copy, refused, by_parts=False)
        for copy in self.facts.copies:
            name = copy.args[1].name
            self.report.append(InputWrite(name, self._lines(copy), refused.get(name)))
        for chain in self.chosen.values():
            for link in chain.links:
                if self._needs_undoing(link):
                    link.tag = OpTags.KEEPS_OVERWRITTEN

    def _choose(self, copy: BoundSymbol, refused: dict[str, str], *, by_parts: bool) -> None:
        """Choose the chain of a copy; without one, enter the reason into ``refused``."""
        name = copy.args[1].name
        refused.pop(name, None)
        try:
            self.chosen[name] = chain_of(self.facts, copy, by_parts=by_parts)
        except Refused as reason:
            if by_parts:
                self._choose(copy, refused, by_parts=False)
            else:
                refused[name] = str(reason)

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
            except Refused as reason:
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

    def _check(self, chain: Chain) -> None:
        """Raise Refused if a chain cannot be put in place beside the other chosen ones."""
        facts = self.facts
        own = facts.memory(chain.target)
        if facts.is_training and own in facts.returned:
            raise Refused("its memory is saved for the backward")
        end = facts.copy_position.get(chain.target.name, len(facts.statements))
        memory = {own}
        for step in chain.steps:
            if step.link is not None:
                if not all(p.name in self._values for p in step.link.copies):
                    raise Refused(f"{name_of(step.link.bsym)} writes another tensor too, which is copied")
                facts.check_reads(step.link, memory, end, self.dropped)
                if step.link.form.restoring is None and self._needs_undoing(step.link):
                    raise Refused("a later call may raise, and what it overwrites is not known")
            memory.add(facts.memory(step.value))
        is_whole = all(link.writes_all_of(chain.target) for link in chain.links)
        if is_whole and any(map(self._needs_undoing, chain.links)):
            raise Refused("a later call may raise, and then all elements would have been kept")
        if (memory - {own}) & facts.returned:
            raise Refused("a result, or what is saved for the backward, is the value that is written")

    # -- calls that raise ------------------------------------------------------------------------------------

    def _later_raises(self, written: Set[int]) -> list[Raises]:
        """Return for each statement the worst that the later ones may raise."""
        worst, later = Raises.NOTHING, list[Raises]()
        for i, bsym in reversed(list(enumerate(self.facts.statements))):
            later.append(worst)
            is_write = (
                i in written and runs_kernel_of_core(bsym) and not may_raise_on_data(bsym, at_its_place=True)
            )
            if i not in self.dropped and not is_write:
                worst = max(worst, raises(bsym))
        return later[::-1]

    def _allowed(self, link: Link) -> Raises:
        """Return the worst that later statements may raise if a call keeps nothing of what it overwrites.

        Where memory runs out, the error passes on what is written, as in eager, unless the program may end
        it. So does any error if what is overwritten is not known, all effects of the program are such writes,
        and it has no handler.
        """
        if self.effects.catches_errors:
            return Raises.NOTHING
        has_others = self.effects.has_others or self.effects.handles_errors
        is_only = not has_others and len(self.chosen) == len(self.facts.copies)
        return Raises.ERRORS if is_only and link.form.restoring is None else Raises.MEMORY

    def _needs_undoing(self, link: Link) -> bool:
        """Return whether what a call overwrites may have to be put back."""
        is_seen = self.effects.handles_errors or link.form.restoring is not None
        raises_itself = may_raise_on_data(link.bsym, at_its_place=True) and is_seen
        if self.facts.is_training or raises_itself:  # in training hooks of the caller may raise
            return True
        return self._later[link.position] > self._allowed(link)
