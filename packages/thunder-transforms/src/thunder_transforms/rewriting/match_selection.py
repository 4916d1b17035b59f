"""Which matches of a rule can be replaced, and at which statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from thunder.extend import Refusal
from thunder_transforms.rewriting.expression_graph import ExpressionGraph
from thunder_transforms.rewriting.pattern_matching import RuleMatch


@dataclass(frozen=True, eq=False)
class Place:
    """A match, and the position of the statement before which its replacement is recorded."""

    match: RuleMatch
    position: int


def select(
    graph: ExpressionGraph, matches: Iterable[RuleMatch]
) -> tuple[list[Place], list[tuple[RuleMatch, Refusal]]]:
    """Return the matches that can be replaced, in the order of their places, and the others with reasons.

    A value inside of a match that other statements read prevents it, unless these belong to further matches,
    or the value is a cast or a broadcast, which stays. A statement is an output of at most one match, and not
    inside of another. All statements of a match have the same modes and no write between them.
    """
    refused: list[tuple[RuleMatch, Refusal]] = []
    possible = []
    for match in matches:
        reason = _divided(graph, match)
        if reason is None:
            possible.append(match)
        else:
            refused.append((match, reason))
    possible = _without_shared(graph, possible, refused)
    places = []
    defined: dict[str, int] = {}
    for place in sorted(_disjoint(graph, possible), key=lambda place: place.position):
        if _is_computable(graph, place, defined):
            places.append(place)
            defined.update({v.proxy.name: place.position for v in place.match.outputs})
        else:
            text = "an argument is computed after a reader of a result"
            refused.append((place.match, Refusal("order", text)))
    return places, refused


def _divided(graph: ExpressionGraph, match: RuleMatch) -> Refusal | None:
    if len({graph.regions[i] for i in match.covered}) > 1:
        return Refusal("region", "a write, or a change of a mode, lies between its statements")
    if len({graph.bsyms[i].own_tags for i in match.covered}) > 1:
        return Refusal("tags", "its statements have different tags")
    return None


def _without_shared(
    graph: ExpressionGraph, matches: list[RuleMatch], refused: list[tuple[RuleMatch, Refusal]]
) -> list[RuleMatch]:
    """Return the matches inside of which no value is read by a statement outside of all these matches."""
    while True:
        covering: dict[int, list[RuleMatch]] = defaultdict(list)
        for match in matches:
            for position in match.covered:
                covering[position].append(match)
        kept = []
        for match in matches:
            name = _shared_value(graph, match, covering)
            if name is None:
                kept.append(match)
            else:
                text = "a value inside of the match is used elsewhere too"
                refused.append((match, Refusal("used-elsewhere", text, value=name)))
        if len(kept) == len(matches):
            return kept
        matches = kept


def _shared_value(
    graph: ExpressionGraph, match: RuleMatch, covering: Mapping[int, Sequence[RuleMatch]]
) -> str | None:
    """Return a value inside of a match that a statement outside of all matches reads, or None."""
    outputs = {v.proxy.name for v in match.outputs}
    for position in sorted(match.covered):
        if not graph.labels[position]:
            continue  # a cast or a broadcast
        for proxy in graph.bsyms[position].flat_proxy_outs:
            readers = set(graph.readers.get(proxy.name, ())) - match.covered
            if proxy.name not in outputs and not all(
                any(not _is_argument(proxy.name, other) for other in covering.get(reader, ()))
                for reader in readers
            ):
                return str(proxy.name)
    return None


def _is_argument(name: str, match: RuleMatch) -> bool:
    return any(getattr(arg, "name", None) == name for arg in match.args)


def _disjoint(graph: ExpressionGraph, matches: Sequence[RuleMatch]) -> Iterator[Place]:
    """Yield the matches whose outputs are not inside of a match that comes later."""
    taken: set[int] = set()
    names: set[str] = set()
    for match in sorted(matches, key=lambda m: max(m.covered), reverse=True):
        own = {v.statement for v in match.outputs}
        if own.isdisjoint(taken) and names.isdisjoint(v.proxy.name for v in match.outputs):
            yield Place(match, _position(graph, match))
            taken |= match.covered
            names.update(v.proxy.name for v in match.outputs)


def _position(graph: ExpressionGraph, match: RuleMatch) -> int:
    readers = [
        i for v in match.outputs for i in graph.readers.get(v.proxy.name, ()) if i not in match.covered
    ]
    return min((max(match.covered), *readers))


def _is_computable(graph: ExpressionGraph, place: Place, defined: dict[str, int]) -> bool:
    """Return whether the arguments are computed before the place, under the modes of the match."""
    for arg in place.match.args:
        name = getattr(arg, "name", "")  # a number has none
        if max(defined.get(name, -1), graph.producer.get(name, -1) + 1) > place.position:
            return False
    return graph.regions[place.position] == graph.regions[min(place.match.covered)]
