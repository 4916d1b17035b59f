"""The parts of a program in which less may happen than at its own level, and what may happen in which.

    y = torch.vmap(f)(x)          f runs once, for all examples: it may write and print, and reads no clock
    loss.backward()               the backward of a Function runs later: what it reads is read then

A part begins and ends with :meth:`Places.entered`; what the program switches on and off in any order, such as
inference mode, is asked where it is kept (:meth:`Places.add_state`). An :class:`Effect` is a row of the table
:data:`EFFECTS`: the parts in which it may happen. In all others it is refused, also in those that are added
later; in a backward it ends the tracing of the backward, which then runs as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from thunder.base.errors import UnsupportedProgram

__all__ = ["EFFECTS", "Effect", "Outcome", "Place", "Places", "ReadsState"]


class Place(enum.Enum):
    """A special part of a program; the value is how an error says that something happens there."""

    BACKWARD = "in a backward"
    FORWARD = "in a function with a gradient of its own"
    MAPPED = "in a mapped or differentiated function"
    DIFFERENTIATED = "in a function that torch.func differentiates"
    REGION = "in a checkpointed region, which runs twice"
    DECOMPOSITION = "in the decomposition of an operator"
    INFERENCE = "in inference mode"
    MODE = "under a torch function mode"


class Outcome(enum.Enum):
    """What becomes of an effect in a part of the program."""

    ALLOWED = "yes"
    REFUSED = "refused"
    ENDS = "runs as it is"


class ReadsState(UnsupportedProgram):
    """A backward reads state, or has an effect, when it runs."""


@dataclass(frozen=True, eq=False)
class Effect:
    """Something that a program does: its name, the parts in which it may, and what to do in the others."""

    name: str
    allowed: frozenset[Place]
    hint: str | None = None

    def outcome(self, kind: Place) -> Outcome:
        """Return what becomes of the effect in a part of this kind."""
        if kind in self.allowed:
            return Outcome.ALLOWED
        return Outcome.ENDS if kind is Place.BACKWARD else Outcome.REFUSED


# -- the table -----------------------------------------------------------------------------------------------

_LATER = frozenset({Place.BACKWARD})
#: parts that run once, at their place of the program, and are recorded as its own level is
_AT_ITS_PLACE = frozenset({Place.FORWARD, Place.DIFFERENTIATED, Place.INFERENCE, Place.MODE})
#: parts whose code runs once for each call of the program
_NOW = _AT_ITS_PLACE | {Place.MAPPED, Place.REGION}

COMPUTES: Final = Effect("computes with tensors, reads code and constants", _NOW | _LATER)
READS: Final = Effect("reads a variable, an attribute, an item, a default", _NOW)
READS_SURROUNDINGS: Final = Effect("reads a mode, a flag, the environment, a context variable", _NOW)
WRITES: Final = Effect("writes a variable, an attribute, an item; sets a context variable", _NOW)
OUTPUT: Final = Effect("prints, warns, logs", _NOW)
DRAWS: Final = Effect("draws random numbers of torch", _NOW)
DECIDES: Final = Effect("decides by a value of a tensor", _AT_ITS_PLACE | {Place.REGION})
MAKES_TEXT: Final = Effect("makes a text of values", _NOW)
READS_CLOCK: Final = Effect(
    "reads a clock; makes a `uuid4()`, `datetime.now()`, `os.urandom()`",
    _AT_ITS_PLACE,
    "Read the clock around the call of it.",
)
DRAWS_ON_HOST: Final = Effect(
    "draws random numbers of Python or NumPy",
    _AT_ITS_PLACE,
    "Draw it before, or use torch's random numbers.",
)
CALLS_OPAQUE: Final = Effect(
    "calls an opaque callable; advances an iterator of the caller",
    frozenset({Place.FORWARD, Place.DIFFERENTIATED}),
    "Call it elsewhere.",
)
CALLS_PACKAGE: Final = Effect(
    "calls a function in C of another package, or one of torch that needs data", CALLS_OPAQUE.allowed
)
MAKES_ARRAY: Final = Effect("makes an array of a tensor", _AT_ITS_PLACE)
LAUNCHES_KERNEL: Final = Effect(
    "launches a kernel of a package",
    _AT_ITS_PLACE - {Place.MODE} | {Place.REGION, Place.BACKWARD},
    "Launch it outside, or in an autograd.Function.",
)
REBINDS: Final = Effect(
    "assigns data, or changes the shape of a tensor in place (`x.t_()`)",
    _AT_ITS_PLACE,
    "Use the out-of-place form, or do it outside of the compiled function.",
)
REBINDS_ARGUMENT: Final = Effect(
    "does that to an argument of a function with a gradient of its own",
    _AT_ITS_PLACE - {Place.FORWARD},
    REBINDS.hint,
)
HOOKS_LEAF: Final = Effect(
    "registers a hook on a leaf",
    _AT_ITS_PLACE,
    "Register it outside of the checkpointed or transformed function.",
)
HOOKS_TENSOR: Final = Effect(
    "registers a hook on a tensor that is computed",
    _NOW - {Place.MAPPED, Place.DIFFERENTIATED},
    "Register it outside of the transformed function.",
)
READS_NODE: Final = Effect("reads `grad_fn`", _NOW - {Place.MAPPED, Place.DIFFERENTIATED})
COMPUTES_GRADIENTS: Final = Effect("computes gradients: `grad`, `backward`", _NOW)
OPENS_DUAL_LEVEL: Final = Effect(
    "opens a level of dual numbers",
    frozenset({Place.DIFFERENTIATED, Place.REGION}),
    "Use torch.func.jvp there.",
)
CHECKPOINTS: Final = Effect(
    "checkpoints a function",
    _NOW - {Place.MODE},
    "Enter the mode inside of the checkpointed function.",
)

OTHER: Final = Effect("calls a function of which nothing says what it reads", _NOW)

EFFECTS: Final = tuple(value for value in dict(vars()).values() if isinstance(value, Effect))
"""The table: what a program may do in which parts."""


# -- where the program is ------------------------------------------------------------------------------------


class Places:
    """The parts of a program in which it is: those that it has entered, and states that are on.

    ``changed`` is called with the places that the program has entered, when one begins or ends; ``position``
    says how many statements have been recorded.
    """

    def __init__(self, changed: Callable[[frozenset[Place]], None], position: Callable[[], int]) -> None:
        self._entered: list[tuple[Place, Any, int]] = []  # innermost last
        self._states: dict[Place, Callable[[], Any]] = {}
        self._changed, self._position = changed, position
        self._waiting: list[tuple[Effect, Callable[[], None]]] = []

    def add_state(self, kind: Place, is_on: Callable[[], Any]) -> None:
        """Add a part that lasts as long as a state is on."""
        self._states[kind] = is_on

    @contextmanager
    def entered(self, kind: Place, part: Any) -> Iterator[None]:
        """Within the context, the program is in ``part``, which says more of it to :meth:`parts`."""
        self._entered.append((kind, part, self._position()))
        self._changed(self._kinds())
        try:
            yield
        finally:
            self._entered.pop()
            self._changed(self._kinds())
            while self._waiting and self.allows(self._waiting[0][0]):
                self._waiting.pop(0)[1]()

    @property
    def is_within(self) -> bool:
        """Whether the program has entered a part."""
        return bool(self._entered)

    def _kinds(self) -> frozenset[Place]:
        return frozenset(kind for kind, *_ in self._entered)

    def parts(self, kind: Place) -> list[Any]:
        """Return the parts of a kind that the program has entered, innermost last."""
        return [part for k, part, _ in self._entered if k is kind]

    def place_that_refuses(self, effect: Effect) -> Place | None:
        """Return a place in which the program is and an effect may not happen; None if it may."""
        for kind in Place:
            if kind not in effect.allowed and self.is_in(kind):
                return kind
        return None

    def is_in(self, kind: Place) -> bool:
        """Return whether the program is in a part of a kind."""
        if kind in self._states:
            return bool(self._states[kind]())
        return any(k is kind for k, *_ in self._entered)

    def allows(self, effect: Effect) -> bool:
        """Return whether an effect may happen where the program is."""
        return self.place_that_refuses(effect) is None

    def beginning(self, effect: Effect) -> int | None:
        """Return at which statement the outermost part began that refuses an effect; None if a state does."""
        if any(kind not in effect.allowed and self.is_in(kind) for kind in self._states):
            return None
        return next((start for kind, _, start in self._entered if kind not in effect.allowed), None)

    def when_allowed(self, effect: Effect, action: Callable[[], None]) -> None:
        """Call ``action`` as soon as the program is where an effect may happen."""
        if self.allows(effect):
            action()
        else:
            self._waiting.append((effect, action))

    def check(
        self, effect: Effect, what: str, error: type[UnsupportedProgram] = UnsupportedProgram, **facts: Any
    ) -> None:
        """Refuse an effect where it may not happen, or end the backward; ``what`` is a sentence about it."""
        kind = self.place_that_refuses(effect)
        if kind is not None:
            ends = effect.outcome(kind) is Outcome.ENDS
            raise (ReadsState if ends else error)(f"{what} {kind.value}", hint=effect.hint, **facts)

    def end_backward(self, what: str) -> NoReturn:
        """End the tracing of the innermost backward, which ``what`` says of: it reads state, for example."""
        raise ReadsState(
            f"the backward of {self.parts(Place.BACKWARD)[-1].name} {what} when it runs",
            hint="Keep in ctx what the backward reads, as a tensor or a constant.",
        )
