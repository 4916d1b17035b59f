"""A region that is cut in two, each part by what is fastest for it: a candidate beside the whole region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.core.errors import ThunderError
from thunder.core.proxies import TensorProxy
from thunder.extend import Region, consists_of_views, cut_positions, parts_of_region
from thunder_autotune.candidates import Candidate
from thunder_autotune.entries import Entry, Figure
from thunder_autotune.keys import region_key
from thunder_autotune.unit_values import Subject
from thunder_autotune.units import Unit
from thunder_autotune.ways import CALLS, Way
from thunder_bisect.calls import copies_of, evaluate

__all__ = ["Parts", "in_two", "is_worth_a_cut", "part_keys"]

#: the fewest kernels of a region that is cut
_FEWEST: Final = 4
#: a region that takes less than this part of the time of its calls one by one stays whole
_GAINING: Final = 0.75


@dataclass(frozen=True)
class Parts:
    """A region in parts: the candidate that runs them, and what was measured of each."""

    candidate: Candidate
    entries: tuple[Entry, ...]


def is_worth_a_cut(unit: Unit, figures: Mapping[str, Figure]) -> bool:
    """Return whether a part of a region may be faster otherwise: its calls alone are about as fast."""
    if unit.region is None or len(_kernels(unit.bsyms)) < _FEWEST or CALLS not in figures:
        return False
    best = min(figure.us for name, figure in figures.items() if name != CALLS) if len(figures) > 1 else None
    return best is not None and best > _GAINING * figures[CALLS].us


def in_two(
    unit: Unit, subject: Subject, measure: Callable[[Unit], tuple[Entry, Candidate] | None]
) -> Parts | None:
    """Return a region in two parts, cut where least is handed on, or None where it cannot be.

    `measure` returns the entry of a part with its fastest candidate, or None.
    """
    region = unit.region
    assert region is not None, "only a region is cut"
    assert unit.region_executor is not None, "a region has the executor that compiles it"
    position = _position(region)
    if position is None:
        return None
    values = copies_of(subject.values)
    found: list[tuple[Unit, Entry, Candidate]] = []
    for part in parts_of_region(region, [position]):
        key = region_key(part)
        if key is None or not all(isinstance(p, TensorProxy) for p in (*part.inputs, *part.outputs)):
            return None
        calls = tuple(bsym for bsym in unit.bsyms if _is_in(bsym, part))
        part_unit = Unit(
            "region",
            key,
            calls,
            tuple(part.inputs),
            tuple(part.outputs),
            region=None,  # it is not cut once more
            region_executor=unit.region_executor,
            places={tuple(p.name for p in part.outputs)},
            values=copies_of({p.name: values[p.name] for p in part.inputs}),
            default=unit.region_executor.name,
        )
        measured = measure(part_unit)
        if measured is None:
            return None
        found.append((part_unit, *measured))
        try:
            with torch.no_grad():
                for bsym in calls:
                    evaluate(bsym, values)
        except ThunderError:
            return None  # torch has no function for a call: the values for the next part are not known
    names, outputs = [p.name for p in unit.inputs], [p.name for p in unit.outputs]

    def run(*inputs: Any) -> list[torch.Tensor]:
        known = dict(zip(names, inputs, strict=True))
        for part, _, candidate in found:
            results = candidate.run(*(known[p.name] for p in part.inputs))
            known.update(zip((p.name for p in part.outputs), results, strict=True))
        return [known[name] for name in outputs]

    way = Way(unit.region_executor.name, cuts=(position,))
    return Parts(Candidate(str(way), run), tuple(entry for _, entry, _ in found))


def part_keys(unit: Unit, cuts: Sequence[int]) -> list[str]:
    """Return the keys of the parts of a region."""
    assert unit.region is not None, "only a region is cut"
    return [key for part in parts_of_region(unit.region, cuts) if (key := region_key(part)) is not None]


def _position(region: Region) -> int | None:
    """Return the position before which a region is cut: where least is handed on, nearest to the middle."""
    middle = len(region.bsyms) / 2

    def cost(position: int) -> tuple[int, float]:
        first, _ = parts_of_region(region, [position])
        return sum(p.numel() * p.dtype.itemsize for p in first.outputs), abs(position - middle)

    possible = [
        k
        for k in cut_positions(region)
        if len(_kernels(region.bsyms[:k])) > 1 and len(_kernels(region.bsyms[k:])) > 1
    ]
    return min(possible, key=cost, default=None)


def _kernels(bsyms: Sequence[Any]) -> list[Any]:
    return [bsym for bsym in bsyms if not consists_of_views(bsym)]


def _is_in(bsym: Any, part: Region) -> bool:
    results = [p.name for p in bsym.flat_proxy_outs]
    return any([p.name for p in call.flat_proxy_outs] == results for call in part.bsyms)
