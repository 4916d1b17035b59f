"""Which matches of a rule can be replaced, and at which statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from thunder.executor_base.executor import Refusal
from thunder.ir.effects import may_alias
from thunder.ir.symbol import BoundSymbol
from thunder.passes.rewriting.expression_graph import ExpressionGraph
from thunder.passes.rewriting.pattern_matching import RuleMatch


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
    while True:
        reader = {match: _outside_reader(graph, match, matches) for match in matches}
        kept = [match for match in matches if reader[match] is None]
        for match in matches:
            name = reader[match]
            if name is not None:
                text = "a value inside of the match is used elsewhere too"
                refused.append((match, Refusal("used-elsewhere", text, value=name)))
        if len(kept) == len(matches):
            return kept
        matches = kept


def _outside_reader(graph: ExpressionGraph, match: RuleMatch, matches: Sequence[RuleMatch]) -> str | None:
    """Return a value inside of a match that a statement outside of all matches reads, or None."""
    outputs = {v.proxy.name for v in match.outputs}
    for position in sorted(match.covered):
        if not graph.labels[position]:
            continue  # a cast
        for proxy in graph.bsyms[position].flat_proxy_outs:
            if proxy.name in outputs:
                continue
            inner = [m for m in matches if not any(proxy is arg or _named(arg, proxy.name) for arg in m.args)]
            covered = frozenset().union(match.covered, *(m.covered for m in inner))
            if any(reader not in covered for reader in graph.readers.get(proxy.name, ())):
                return str(proxy.name)
    return None


def _named(arg: object, name: str) -> bool:
    return getattr(arg, "name", None) == name


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
        value = graph.values.get(getattr(arg, "name", ""))
        if value is not None and value.proxy.name in defined and defined[value.proxy.name] > place.position:
            return False
        if value is not None and value.statement >= place.position:
            return False
        if value is None or value.op is None:
            producer = _opaque_producer(graph, arg)
            if producer is not None and producer >= place.position:
                return False
    return graph.regions[place.position] == graph.regions[min(place.match.covered)]


def _opaque_producer(graph: ExpressionGraph, arg: object) -> int | None:
    name = getattr(arg, "name", None)
    for position, bsym in enumerate(graph.bsyms):
        if any(p.name == name for p in bsym.flat_proxy_outs):
            return position
    return None


def escapes(bsyms: Sequence[BoundSymbol], names: Iterable[str]) -> bool:
    """Return whether the memory of one of these values may be that of a result of the program.

    Statements after the first that reads one of them count; the last statement returns the results.
    """
    aliases = set(names)
    for bsym in bsyms[:-1]:
        if may_alias(bsym) and any(p.name in aliases for p in bsym.flat_proxy_args):
            aliases.update(p.name for p in bsym.flat_proxy_outs)
    return any(p.name in aliases for p in bsyms[-1].flat_proxy_args)
