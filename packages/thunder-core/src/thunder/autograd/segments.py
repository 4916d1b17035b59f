"""Segments: the parts of a program that are separate nodes of torch's graph.

Note [Segments]
Eager has a node for each call: a backward runs those on which its result depends, and frees what these saved.
A compiled program has one node for as many calls as it can, and no fewer nodes than can be told apart:

    def f(x, w):                             segment 1:  x → h
        h = torch.sin(x)                     segment 2:  h, w → a
        a = h * w                            segment 3:  h → b
        b = torch.exp(h)
        return a, b                          a backward of b never reaches w, and leaves segment 2 as it is

A segment begins as the steps that run in the backwards of the same results: any backward runs all of them or
none. A value that one segment computes and another differentiates through (``h``) leaves the function, and
enters the other segment's node as a tensor of torch's graph.

Segments are one node where no program can observe a difference. A backward from a result ``r`` runs, in
eager, the segments that ``r`` depends on. If these are one node with a segment that ``r`` does not depend on,
that runs too: its inputs are reached, with no gradient, and what it saved is freed. That cannot be observed
if its inputs are reached from ``r`` anyway, and if each backward that would miss what was freed fails in
eager too, because it needs something else that the backward from ``r`` has freed. Two segments stay separate
if gradients of a result flow from one into the other: hooks of that result read and change them, and
``retain_grad`` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from thunder.autograd.tape import GET_GRAD, BackwardStep, Tape
from thunder.ir.proxies import TensorProxy
from thunder.ops.rule_parts import PUT_GRAD

__all__ = ["Segment", "connecting_values", "segments_of", "whole"]


@dataclass(frozen=True)
class Segment:
    """The steps of a tape that are one node.

    ``outputs`` are the values whose cotangents the node gets: results of the program, then values to whose
    gradients later segments add. ``edges`` are the values to whose gradients it adds: inputs of the program,
    and outputs of earlier segments.
    """

    steps: tuple[BackwardStep, ...]
    outputs: tuple[TensorProxy, ...]
    edges: tuple[TensorProxy, ...]

    @property
    def computed(self) -> frozenset[str]:
        """The names of the values whose gradients its steps read."""
        return frozenset(name for step in self.steps for name in step.reads)


@dataclass(eq=False)
class _Part:
    """The steps (by number) that run in the backwards of the same results.

    ``inputs`` and ``earlier`` are the inputs, and the other parts, to whose gradients they add.
    """

    results: frozenset[int]
    saves: bool = False
    steps: list[int] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    earlier: set[_Part] = field(default_factory=set)
    #: the earlier parts to which gradients of results flow
    apart: set[_Part] = field(default_factory=set)


def whole(tape: Tape, outputs: Sequence[TensorProxy]) -> Segment:
    """Return the program as one segment."""
    added_to = _added_to(tape.steps)
    inputs = [a for a in tape.trace.args if isinstance(a, TensorProxy) and a.name in added_to]
    return Segment(tuple(tape.steps), tuple(outputs), tuple(inputs))


def segments_of(tape: Tape, outputs: Sequence[TensorProxy]) -> tuple[Segment, ...]:
    """Return the segments of a program with these results, earlier ones first.

    There is one if a result comes from no step, if a step serves second derivatives only, and if there would
    be more than ``MOST_PARTS``.
    """
    one = whole(tape, outputs)
    keys = _results_reached(tape, outputs)
    if len(outputs) < 2 or not all(keys) or not {o.name for o in outputs} <= one.computed:
        return (one,)
    parts = _parts(tape, outputs, keys)
    if parts is None or len(parts) > MOST_PARTS:
        return (one,)
    groups = _grouped(parts)
    if len(groups) == 1:
        return (one,)
    steps = [sorted(i for part in group for i in part.steps) for group in groups]
    return tuple(_segment(tape, outputs, numbers) for numbers in steps)


def connecting_values(segments: Sequence[Segment]) -> list[TensorProxy]:
    """Return the outputs of segments to whose gradients other segments add."""
    outputs = {o.name for s in segments for o in s.outputs}
    values = {e.name: e for s in segments for e in s.edges if e.name in outputs}
    return list(values.values())


def _results_reached(tape: Tape, outputs: Sequence[TensorProxy]) -> list[frozenset[int]]:
    """Return, for each step, the numbers of the results whose backwards run it."""
    reached: dict[str, frozenset[int]] = {o.name: frozenset({i}) for i, o in enumerate(outputs)}
    none: frozenset[int] = frozenset()
    keys = [none] * len(tape.steps)
    for i, step in reversed([*enumerate(tape.steps)]):
        keys[i] = none.union(*(reached.get(name, none) for name in step.reads))
        for p in step.adds_to:
            reached[p.name] = reached.get(p.name, none) | keys[i]
    return keys


def _parts(tape: Tape, outputs: Sequence[TensorProxy], keys: Sequence[frozenset[int]]) -> list[_Part] | None:
    """Return the parts, those of more results first; None if two read one gradient."""
    parts: dict[frozenset[int], _Part] = {}
    owner: dict[str, _Part] = {}
    for i, (step, key) in enumerate(zip(tape.steps, keys, strict=True)):
        part = parts.setdefault(key, _Part(key))
        part.steps.append(i)
        part.saves |= _reads_a_tensor(step)
        if any(owner.setdefault(name, part) is not part for name in step.reads):
            return None
    inputs = {a.name for a in tape.trace.args if isinstance(a, TensorProxy)}
    results = {o.name for o in outputs}
    for step, key in zip(tape.steps, keys, strict=True):
        for p in step.adds_to:
            if p.name in owner:
                parts[key].earlier.add(owner[p.name])
                if p.name in results:
                    parts[key].apart.add(owner[p.name])
            elif p.name in inputs:
                parts[key].inputs.add(p.name)
    for part in parts.values():
        part.earlier.discard(part)
    return sorted(parts.values(), key=lambda part: (-len(part.results), part.steps[0]))


def _reads_a_tensor(step: BackwardStep) -> bool:
    """Return whether a step reads a tensor of the forward, so that the node has to save one."""
    computed = {p.name for b in step.bsyms for p in b.flat_proxy_outs}
    return any(
        isinstance(p, TensorProxy) and p.name not in computed
        for b in step.bsyms
        if b.sym.id not in (GET_GRAD, PUT_GRAD)
        for p in b.flat_proxy_args
    )


#: the parts that are one node
_Group = frozenset[_Part]

#: a program of more parts is one node: each node costs time, and so does the search for groups
MOST_PARTS = 24


def _grouped(parts: Sequence[_Part]) -> list[_Group]:
    """Return the parts in groups, earlier ones first: as few nodes as no program observes."""
    run_by: dict[int, set[_Part]] = {}
    for part in parts:
        for result in part.results:
            run_by.setdefault(result, set()).add(part)
    groups = [frozenset({part}) for part in parts]
    for part in parts:
        single = next(g for g in groups if part in g)
        for group in groups[: groups.index(single)]:
            joined = [group | {part} if g is group else g for g in groups if g is not single]
            if _can_be_ordered(joined) and _is_unobservable(joined, run_by):
                groups = joined
                break
    return groups


def _can_be_ordered(groups: Sequence[_Group]) -> bool:
    """Return whether each group adds to gradients of earlier groups only."""
    position = {part: i for i, group in enumerate(groups) for part in group}
    return all(
        position[earlier] <= i for i, group in enumerate(groups) for part in group for earlier in part.earlier
    )


def _is_unobservable(groups: Sequence[_Group], run_by: Mapping[int, set[_Part]]) -> bool:
    """Return whether no backward differs because the parts of a group run together."""
    if any(not part.apart.isdisjoint(group) for group in groups for part in group):
        return False
    group_of = {part: group for group in groups for part in group}
    for in_eager in run_by.values():
        here: set[_Part] = set()
        stack = [*in_eager]
        while stack:
            part = stack.pop()
            if part not in here:
                here.update(group_of[part])
                stack += [e for p in group_of[part] for e in p.earlier if e not in here]
        reached = {name for part in in_eager for name in part.inputs}
        for part in here - in_eager:
            if not part.inputs <= reached:
                return False
            if part.saves and not all(any(p.saves for p in in_eager & run_by[r]) for r in part.results):
                return False
    return True


def _segment(tape: Tape, outputs: Sequence[TensorProxy], numbers: Sequence[int]) -> Segment:
    """Return the segment of the steps with these numbers."""
    steps = tuple(tape.steps[i] for i in numbers)
    read = {name for step in steps for name in step.reads}
    others = [tape.steps[i] for i in range(len(tape.steps)) if i not in set(numbers)]
    results = {o.name: o for o in outputs if o.name in read}
    connecting = [p for name, p in _added_to(others).items() if name in read and name not in results]
    outside = {a.name for a in tape.trace.args} | {name for step in others for name in step.reads}
    edges = [p for name, p in _added_to(steps).items() if name not in read and name in outside]
    return Segment(steps, (*results.values(), *connecting), tuple(edges))


def _added_to(steps: Iterable[BackwardStep]) -> Mapping[str, TensorProxy]:
    """Return the values to whose gradients steps add, by name."""
    return {p.name: p for step in steps for p in step.adds_to}
