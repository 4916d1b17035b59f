"""The order of stages: the stages of core in theirs, those of plugins by their `before=` and `after=`.

Stages are collected first and ordered then, so a stage may name one of a plugin whose hook is called later,
and the order does not depend on the plugins' names.

Note [Places of stages]
A stage with `after=` runs as early as that allows, one with `before=` alone as late as that allows; among
equals the name decides. So both are next to the stage that they name:

    cse, a (after="cse"), autograd, …, b (before="claim"), claim

`before=` gives no place by itself, since the first stages of the pipeline are before almost everything. Such
a stage follows the last stage of core that has to precede what it runs before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from thunder.base.errors import InvalidArgument, PluginError, did_you_mean
from thunder.base.precedence import PrecedenceCycle, in_precedence

__all__ = ["Placed", "StageOrder", "refuse_unknown"]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A stage of a plugin or a transform, and its place.

    `before` and `after` name other stages, of which those in `optional` need not exist. In errors, `provider`
    is the plugin or transform.
    """

    name: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    provider: str = "the program"

    def is_placed_by(self, names: set[str]) -> bool:
        """Return whether these stages are enough to place it."""
        others = {*self.before, *self.after}
        return others - self.optional <= names and not others.isdisjoint(names)


def refuse_unknown(stage: Placed, names: Sequence[str]) -> None:
    """Raise InvalidArgument, with the nearest name, if a stage names one that does not exist."""
    for unknown in {*stage.before, *stage.after} - stage.optional - {*names}:
        raise InvalidArgument(
            f"the stage {stage.name!r} is placed by {unknown!r}, and the pipeline has no such stage."
            f"{did_you_mean(unknown, names)}",
            found={"stages": ", ".join(names)},
            hint="For a stage of a package that may be absent, write thunder.plugins.IfPresent(name).",
        )


@dataclass
class StageOrder:
    """Orders the stages of plugins among those of core, whose order is given."""

    builtin: Sequence[str]
    placed: Sequence[Placed]
    #: stage → the stages that run before it
    predecessors: dict[str, set[str]] = field(init=False)
    successors: dict[str, set[str]] = field(init=False)

    def __post_init__(self) -> None:
        names = [*self.builtin, *(stage.name for stage in self.placed)]
        self.predecessors = {name: set() for name in names}
        self.successors = {name: set() for name in names}
        for first, second in zip(self.builtin, self.builtin[1:], strict=False):
            self._add(first, second)
        for stage in self.placed:
            for other in self._existing(stage.before):
                self._add(stage.name, other)
            for other in self._existing(stage.after):
                self._add(other, stage.name)

    def _existing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.predecessors]

    def _add(self, first: str, second: str) -> None:
        self.predecessors[second].add(first)
        self.successors[first].add(second)

    def ordered(self) -> list[str]:
        """Return the names of all stages in their order.

        Raises PluginError for a cycle, with its stages and their providers; InvalidArgument for a stage that
        is placed by no stage of core.
        """
        self._refuse_cycle()
        following = [self._following(s) for s in self.placed if not self._existing(s.after)]
        for core_stage, name in following:
            if core_stage is not None:
                self._add(core_stage, name)
        return self._sorted()

    def _sorted(self) -> list[str]:
        """Return all names, each after its predecessors; of several that can be next, those of core last."""
        early = sorted(stage.name for stage in self.placed if self._existing(stage.after))
        late = sorted(stage.name for stage in self.placed if not self._existing(stage.after))
        after = {name: tuple(names) for name, names in self.predecessors.items()}
        return in_precedence([*early, *late, *self.builtin], {}, after)

    def _following(self, stage: Placed) -> tuple[str | None, str]:
        """Return the stage of core that a stage with `before=` alone follows, None if it is the first.

        It precedes all stages of core that have to run after the stage, so following it makes no cycle.
        """
        position = self._position_before(stage.name, frozenset())
        if position is None:
            raise InvalidArgument(
                f"the stage {stage.name!r} has no place: neither it nor the stages that it names are placed "
                "by a stage of core",
                found={"from": stage.provider, "stages of core": ", ".join(self.builtin)},
                hint="Add before= or after= with one of them.",
            )
        position = min([position, *(self.builtin.index(name) - 1 for name in self._core_after(stage.name))])
        return (self.builtin[position] if position >= 0 else None), stage.name

    def _core_after(self, name: str) -> set[str]:
        """Return the stages of core that have to run after a stage, without those that follow them."""
        core_stages: set[str] = set()
        visited, pending = {name}, [name]
        while pending:
            for other in self.successors[pending.pop()] - visited:
                visited.add(other)
                if other in self.builtin:
                    core_stages.add(other)
                else:
                    pending.append(other)
        return core_stages

    def _position_before(self, name: str, seen: frozenset[str]) -> int | None:
        """Return the position in core after which a stage can run at the latest; -1 if before all."""
        if name in seen:
            return None
        seen |= {name}
        latest = [
            self.builtin.index(other) - 1 if other in self.builtin else self._position(other, seen)
            for other in self.successors[name]
        ]
        known = [position for position in latest if position is not None]
        return min(known) if known else None

    def _position(self, name: str, seen: frozenset[str]) -> int | None:
        """Return the position in core that a stage follows."""
        stage = next(stage for stage in self.placed if stage.name == name)
        after = self._existing(stage.after)
        if not after or name in seen:
            return self._position_before(name, seen)
        positions = [
            self.builtin.index(other) if other in self.builtin else self._position(other, seen | {name})
            for other in after
        ]
        known = [position for position in positions if position is not None]
        return max(known) if known else None

    def _refuse_cycle(self) -> None:
        try:
            self._sorted()
        except PrecedenceCycle as error:
            cycle = self._without_inner_stages(error.names)
            providers = {stage.name: stage.provider for stage in self.placed if stage.name in cycle}
            raise PluginError(
                f"stages of the pipeline cannot be ordered: {' before '.join(map(repr, cycle))}",
                found={"cycle": "\n" + "\n".join(self._pairs(cycle))},
                hint="Change before= or after= of "
                f"{' or '.join(repr(name) for name in sorted(providers))}; THUNDER_DISABLE_PLUGINS leaves a "
                "plugin out.",
            ).blame(", ".join(dict.fromkeys(providers.values()))) from None

    def _without_inner_stages(self, cycle: Sequence[str]) -> list[str]:
        """Return a cycle from a stage of a plugin to itself; of consecutive stages of core, both ends."""
        start = next(i for i, name in enumerate(cycle) if name not in self.builtin)
        closed = [*cycle[start:], *cycle[:start], cycle[start]]
        inner = {
            name
            for before, name, after in zip(closed, closed[1:], closed[2:], strict=False)
            if {before, name, after} <= {*self.builtin}
        }
        return [name for name in closed if name not in inner]

    def _pairs(self, cycle: Sequence[str]) -> Iterable[str]:
        for first, second in pairwise(cycle):
            yield f"  {first!r} before {second!r}: {self._declared_by(first, second)}"

    def _declared_by(self, first: str, second: str) -> str:
        for stage in self.placed:
            if stage.name == first and second in stage.before:
                return stage.provider
            if stage.name == second and first in stage.after:
                return stage.provider
        return "core"
