"""Breaks each fact of many entries, and says which facts no result depends on.

    hatch run sweep symbolic-facts            1,000 programs each of sizes, parts, other tensors, data
    hatch run sweep symbolic-facts sizes 7    program 7 of sizes alone

It exits with 1 if an entry is used whose facts do not hold, or a result is not eager's.
"""

from __future__ import annotations

import collections
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from symbolic.broken_computed_facts import DataSubject, random_calls
from symbolic.broken_facts import Subject, other_tensors
from symbolic.data_steps import random_data_program
from symbolic.fact_outcomes import Part, Verdict, arguments, outcome, sources_of
from symbolic.shape_programs import STEPS, random_program
from symbolic.shape_steps import STEPS as FURTHER

PROGRAMS = 1000
#: how many shapes are tried for a program that eager does not run for the first ones
ATTEMPTS = 20


def _subject(seed: int, *, parts: bool = False) -> Subject | None:
    """Return a random program of sizes that are not 0, which eager runs; None if it runs for none of some.

    With ``parts`` its arguments are parts of tensors with longer rows.
    """
    rng = random.Random(seed)
    program, _ = random_program(rng, {**STEPS, **FURTHER})
    for _ in range(ATTEMPTS):
        template = [[rng.randint(1, 6) for _ in range(rng.randint(1, most))] for most in (3, 2)]
        if parts:
            template = [Part(shape, rng.randint(7, 9)) if len(shape) > 1 else shape for shape in template]
        if outcome(program, partial(arguments, template, sources_of(template))).run is not None:
            return Subject(program, template, cache="symbolic values")
    return None


def of_sizes(seed: int) -> Iterator[Verdict]:
    """Yield what calls with other sizes show of a random program."""
    subject = _subject(seed)
    return iter(()) if subject is None else subject.verdicts(random.Random(seed))


def of_parts(seed: int) -> Iterator[Verdict]:
    """Yield what calls with other sizes and strides show of a random program."""
    subject = _subject(seed, parts=True)
    return iter(()) if subject is None else subject.verdicts(random.Random(seed))


def of_tensors(seed: int) -> Iterator[Verdict]:
    """Yield what calls with other tensors show of a random program."""
    subject = _subject(seed)
    return iter(()) if subject is None else other_tensors(subject)


def of_data(seed: int) -> Iterator[Verdict]:
    """Yield what calls with other data show of a random program with computed sizes."""
    rng = random.Random(seed)
    program, _ = random_data_program(rng, STEPS)
    shapes = [[rng.randint(2, 6) for _ in range(rng.randint(1, 2))], [4]]
    return DataSubject(program, random_calls(rng, shapes, 40)).verdicts()


KINDS: dict[str, Callable[[int], Iterator[Verdict]]] = {
    "sizes": of_sizes,
    "parts": of_parts,
    "tensors": of_tensors,
    "data": of_data,
}


def main(arguments: Sequence[str]) -> int:
    """Print the faults, the facts on which no result depends, and how many there are of each sort."""
    kinds = [kind for kind in KINDS if kind in arguments] or list(KINDS)
    seeds = [int(a) for a in arguments if a.isdigit()] or range(PROGRAMS)
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    faults = 0
    for kind in kinds:
        for seed in seeds:
            for verdict in KINDS[kind](seed):
                counts[kind, verdict.kind] += 1
                faults += bool(verdict.faults)
                if verdict.faults or verdict.kind == "unneeded":
                    print(kind, seed, verdict.kind, verdict.fact, verdict.origin, *verdict.faults, flush=True)
    for (kind, sort), count in sorted(counts.items()):
        print(f"{kind:10}{sort:10}{count:6}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
