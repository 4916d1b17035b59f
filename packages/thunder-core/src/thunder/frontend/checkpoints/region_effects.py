"""Effects of a checkpointed region, and which of them torch has a second time.

The backward runs a region again, up to the last tensor that the region's operators saved (``early_stop``):
the effects after that operator happen once.

    def region(x):
        self.calls += 1           # twice
        y = self.norm(x)          # twice: its statistics
        z = y.sin()               # saves y, the last tensor that is saved
        log.append("done")        # once
        return z + 1              # saves nothing
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.frontend.checkpoints.region_state import RegionState
from thunder.frontend.custom_gradients.backward_reads import is_in_library
from thunder.frontend.custom_gradients.custom_rule import CustomRule
from thunder.frontend.epilogue.subtrace import make_subtrace, uses_and_definitions, writes
from thunder.frontend.places import Place
from thunder.frontend.session import TracingSession
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.symbol import BoundSymbol, Symbol, has_tags, with_parts
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ops import prims
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import stand_in_tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Effects:
    """The effects of a region: the number of calls before each, and the tensors written to."""

    places: Sequence[int]
    written: Sequence[TensorProxy]


def note_write(session: TracingSession) -> None:
    """Note that the program writes to a Python object."""
    count = len(session.trace.peek_scope())
    for region in session.place.parts(Place.REGION):
        region.marks.append(count - region.start)


def note_changes(session: TracingSession) -> None:
    """Note in the regions whether the program has written anything since the last comparison."""
    state, now = session.state(RegionState), session.writes.mark()
    if now != state.mark:
        state.mark = now
        note_write(session)


def note_one_call(session: TracingSession, start: int) -> None:
    """Count everything that was recorded after the first ``start`` calls as one call."""
    for region in session.place.parts(Place.REGION):
        region.marks = [min(mark, start - region.start) for mark in region.marks]


class RegionPolicy(TracingSession):
    """The policy within a checkpointed region: each effect is noted with the number of calls before it."""

    reads_all_lists = True

    def run_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (
            fn is torch.is_grad_enabled
            and any(r.reentrant for r in self.place.parts(Place.REGION))
            and not is_in_library(self)
        ):
            raise UnsupportedProgram(
                "a region with use_reentrant=True that reads whether gradients are on",
                hint="Write use_reentrant=False: torch recommends it too.",
            )
        result = super().run_native(fn, args, kwargs)
        note_changes(self)
        return result

    def note_write(self) -> None:
        super().note_write()
        note_write(self)

    def note_operator(self) -> None:
        super().note_operator()
        note_changes(self)


def effects_of(marks: Iterable[int], calls: Sequence[BoundSymbol]) -> Effects:
    """Return the effects of a region with these calls."""
    places = list(marks)
    written: list[TensorProxy] = []
    if any(has_tags(b, {OpTags.IN_PLACE}) for b in calls):
        read = list(uses_and_definitions(calls)[0].values())
        with torch.no_grad():
            program = make_subtrace("region", tuple(read), calls, ())
        written = [read[i] for i in writes(program)[0]]
        places += _writing(calls, {p.name for p in written})
    places += [i for i, b in enumerate(calls) if _has(b, prims.python_print)]
    return Effects(sorted(places), written)


def _has(bsym: BoundSymbol, symbol: Symbol) -> bool:
    """Return whether a call is one of a symbol, or has one among its parts."""
    return any(b.sym is symbol for b in with_parts((bsym,)))


def _writing(calls: Sequence[BoundSymbol], names: set[str]) -> list[int]:
    """Return the places of the calls that write to the named tensors, or to views of them."""
    places = []
    for i, bsym in enumerate(calls):
        if not any(p.name in names for p in bsym.flat_proxy_args):
            continue
        if has_tags(bsym, {OpTags.IN_PLACE}):
            places.append(i)
        names = names | {p.name for p in bsym.flat_proxy_outs if _may_share(bsym)}
    return places


def _may_share(bsym: BoundSymbol) -> bool:
    return has_tags(bsym, VIEW_TAGS | {OpTags.SHAPE_OP})


# -- what torch saves ----------------------------------------------------------------------------------------


def saves(bsym: BoundSymbol) -> bool:
    """Return whether torch's autograd saves a tensor for the backward of a call.

    Torch runs the call on tensors without data. Raises UnsupportedProgram where it cannot.
    """
    outs = [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
    if not any_requires_grad(outs):
        return False
    rule = _rule_of(bsym)
    if rule is not None:
        return rule.saves
    row = row_of(bsym.sym)
    if row is None or row.eager is None:
        raise _unknown(bsym)
    leaves, spec = tree_flatten((bsym.args, bsym.kwargs))
    args, kwargs = tree_unflatten([_without_data(x) for x in leaves], spec)
    seen: list[torch.Tensor] = []
    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(_noting(seen), lambda t: t):
            row.eager(*args, **kwargs)
    except RuntimeError as error:
        raise _unknown(bsym) from error
    return bool(seen)


def _rule_of(bsym: BoundSymbol) -> CustomRule | None:
    """Return the rule of a function that defines its own gradient."""
    gradient = bsym.sym.gradient
    rule = getattr(gradient.fn, "__self__", None) if isinstance(gradient, JointRule) else None
    return rule if isinstance(rule, CustomRule) else None


def _noting(seen: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def note(t: torch.Tensor) -> torch.Tensor:
        seen.append(t)
        return t

    return note


def _without_data(x: Any) -> Any:
    """Return a meta tensor like a proxy; if it requires grad it is not a leaf, so writable."""
    if isinstance(x, NumberProxy):
        return x.hint if isinstance(x, SymbolicNumber) else x.stand_in
    if not isinstance(x, TensorProxy):
        return x
    t = stand_in_tensor(x, "meta", requires_grad=True)
    return t.view_as(t) if t.requires_grad else t


def _unknown(bsym: BoundSymbol) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"a checkpointed region with effects, in which {bsym.sym.id} may be the last operator that torch's "
        "recomputation reaches",
        found={"call": bsym.line},
        hint="Pass early_stop=False, or move the effects out of the region.",
    )


def are_repeated(effects: Effects, calls: Sequence[BoundSymbol], early_stop: bool) -> bool:
    """Return whether torch has the effects again when the backward runs: all of them or none.

    Raises UnsupportedProgram where some are before the last saved tensor, and some after it.
    """
    if not effects.places:
        return False
    last = next((i for i in reversed(range(len(calls))) if saves(calls[i])), None)
    if last is None or (early_stop and effects.places[0] > last):
        return False
    if any(rule is not None and rule.runs_later for rule in map(_rule_of, calls)):
        raise UnsupportedProgram(
            "a checkpointed region with effects, around a function whose backward reads state or has effects",
            hint="Move the effects out of the region.",
        )
    if early_stop and effects.places[-1] > last:
        raise UnsupportedProgram(
            "a checkpointed region whose recomputation repeats its first effects, and not those after the "
            "last tensor that is saved",
            hint="Pass early_stop=False, or move the effects out of the region.",
        )
    return True
