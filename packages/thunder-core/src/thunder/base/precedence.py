"""An order of named items that say before and after which others they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["PrecedenceCycle", "in_precedence"]


class PrecedenceCycle(ValueError):
    """Names of which each comes before the next, and the last before the first."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(" → ".join((*names, names[0])))
        self.names = tuple(names)


def in_precedence(
    names: Sequence[str], before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the names such that each precedes those in `before[name]` and follows those in `after[name]`.

    Names without constraints stay in their order. Unknown names in the constraints have no effect. Raises
    PrecedenceCycle if there is no such order.
    """
    earlier: dict[str, set[str]] = {name: set() for name in names}
    for name in names:
        for other in before.get(name, ()):
            if other in earlier:
                earlier[other].add(name)
        earlier[name].update(other for other in after.get(name, ()) if other in earlier)
    placed: dict[str, None] = {}  # in order
    while len(placed) < len(earlier):
        ready = next((n for n in names if n not in placed and earlier[n] <= placed.keys()), None)
        if ready is None:
            raise PrecedenceCycle(_cycle({n: earlier[n] - placed.keys() for n in names if n not in placed}))
        placed[ready] = None
    return list(placed)


def _cycle(earlier: Mapping[str, set[str]]) -> list[str]:
    """Return a cycle in a graph in which each name has an earlier one."""
    path = [next(iter(earlier))]
    while True:
        previous = min(earlier[path[-1]])
        if previous in path:
            return path[path.index(previous) :][::-1]
        path.append(previous)
