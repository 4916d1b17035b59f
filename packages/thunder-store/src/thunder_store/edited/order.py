"""The effects of an edited program are those of the program, in its order: writes, random numbers, modes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

from thunder.core.entries import BoundSymbol, is_ordered, writes, written_tensors
from thunder_store.edited.forms import key_of
from thunder_store.edited.refusals import refusal

__all__ = ["check_order"]


def check_order(
    before: Sequence[BoundSymbol], after: Sequence[BoundSymbol], inputs: Set[str], text: str
) -> None:
    """Raise EditedProgramError for effects that are missing, new or in another order, and for a moved write.

    A write is moved where a call that reads what it writes comes on its other side. ``inputs`` are the names
    of the program's inputs.
    """
    own, found = _written(before, inputs), _written(after, inputs)
    if own != found:
        missing, new = sorted(own - found), sorted(found - own)
        what = f"does not write to {', '.join(missing)}" if missing else f"writes to {', '.join(new)}"
        statement = "def " if missing else next(b for b in after if new[0] in _targets(b))
        raise refusal(f"the edited program {what}", text, statement, expected="the writes of the program")
    drawn, draws = _others(before), _others(after)
    if [b.sym.id for b in drawn] != [b.sym.id for b in draws]:
        pairs = zip(drawn, draws, strict=False)
        wrong = next((b for a, b in pairs if a.sym.id != b.sym.id), None)
        raise refusal(
            "the calls with an effect are others, or in another order",
            text,
            "def " if wrong is None else wrong,
            found=", ".join(b.sym.name for b in draws) or "none",
            expected=", ".join(b.sym.name for b in drawn) or "none",
        )
    _check_moves(before, after, text)


def _written(calls: Iterable[BoundSymbol], inputs: Set[str]) -> Set[str]:
    return {name for b in calls for name in _targets(b) if name in inputs}


def _targets(bsym: BoundSymbol) -> list[str]:
    """Return the names of what a call writes to, as its decomposition shows."""
    if not writes(bsym):
        return []
    if bsym.subsymbols and not bsym.sym.is_fusion:
        own = {p.name for p in bsym.flat_proxy_args}
        return [name for part in bsym.subsymbols for name in _targets(part) if name in own]
    return [p.name for p in written_tensors(bsym)]


def _others(calls: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    """Return the calls with an effect that are not writes: random numbers, modes, what must run."""
    return [b for b in calls if is_ordered(b) and not writes(b)]


def _check_moves(before: Sequence[BoundSymbol], after: Sequence[BoundSymbol], text: str) -> None:
    """Refuse a call that is as it was and on the other side of a write to a value that it reads."""
    places = _places(before), _places(after)
    for key, write in places[0].items():
        for target in _targets(write[1]):
            for other, (place, bsym) in places[0].items():
                if other == key or other not in places[1] or key not in places[1]:
                    continue
                if target not in {p.name for p in bsym.flat_proxy_args}:
                    continue
                now = places[1][other][0] < places[1][key][0]
                if now != (place < write[0]):
                    raise refusal(
                        f"{bsym.line.strip()} reads or writes {target}, and was moved across a write to it",
                        text,
                        write[1],
                    )


def _places(calls: Sequence[BoundSymbol]) -> dict[Any, tuple[int, BoundSymbol]]:
    """Return the calls with their positions; of equal ones each is told from the others by its number."""
    found: dict[Any, tuple[int, BoundSymbol]] = {}
    for position, bsym in enumerate(calls):
        key, number = key_of(bsym), 0
        while (key, number) in found:
            number += 1
        found[key, number] = position, bsym
    return found
