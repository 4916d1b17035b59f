"""Generators, bit generators and sequences of seeds that a program creates.

    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(2)[1])    →   exists while tracing
    x * rng.random()                                                      →   mul(x, 0.5427)

Each call of the program begins them with the same seed, so that all that they give is known. Those without a
seed belong to the compiled program, and begin in each call with a state of the operating system's.
"""

from __future__ import annotations

import random
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.arrays.array_memory import is_plain_array
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.host_draws.draw_statements import NewGenerator, draw_decided
from thunder.frontend.host_draws.host_generators import (
    NUMPY_CLASSES,
    has_numpy_state,
    is_host_generator,
    method_of,
)
from thunder.frontend.natives.libraries import is_numpy_scalar, numpy
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.places import DRAWS_ON_HOST
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import NumberProxy

__all__ = [
    "adopted",
    "attribute",
    "create",
    "is_constructor",
    "is_created",
    "known_argument",
    "maker_of_unseeded",
    "refuse_shared_bits",
    "set_attribute",
]


class CreatedGenerators(SessionState):
    """The generators, and what belongs to them, that the program has created, by id."""

    def __init__(self, session: TracingSession) -> None:
        self.objects: dict[int, Any] = {}
        #: those without a seed: how they are made
        self.unseeded: dict[int, tuple[Any, Any]] = {}

    def end(self) -> None:
        self.objects.clear()
        self.unseeded.clear()


def is_created(session: TracingSession, x: Any) -> bool:
    """Return whether the program has created a generator, or what belongs to one."""
    return id(x) in session.state(CreatedGenerators).objects


def maker_of_unseeded(session: TracingSession, generator: Any) -> Any:
    """Return the function by which the program has made a generator without a seed, or None."""
    return session.state(CreatedGenerators).unseeded.get(id(generator), (None, None))[1]


def is_constructor(fn: Any) -> bool:
    """Return whether a callable creates a generator of NumPy, or what belongs to one."""
    module = numpy()
    names = ("default_rng", *NUMPY_CLASSES)
    return module is not None and any(fn is getattr(module.random, name, None) for name in names)


def create(session: TracingSession, make: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a new generator, or what belongs to one.

    One without a seed belongs to the compiled program, and each call gives it a state of the system's.
    Raises UnsupportedProgram without a seed for what belongs to a generator.
    """
    if make.__name__ == "default_rng" and len(args) == 1 and type(args[0]).__name__ == "Generator":
        return args[0] if has_numpy_state(args[0]) else make(*args, **kwargs)
    values = [known_argument(session, "a constructor", a) for a in (*args, *kwargs.values())]
    if all(v is None for v in values) and is_host_generator(generator := make()):
        session.place.check(DRAWS_ON_HOST, "the program makes a generator with a seed of the system")
        unseeded = session.state(CreatedGenerators).unseeded
        begun = NewGenerator(generator, "seed", make=make, number=len(unseeded))
        begun.run()
        draw_decided(begun, None, -1)
        unseeded[id(generator)] = generator, make
        return generator
    if not values or any(v is None for v in values):
        raise UnsupportedProgram(
            "the program creates a generator of random numbers with a seed of the operating system",
            hint="Pass a seed, or create it before the call.",
        )
    made = make(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
    return adopted(session, made)


def adopted(session: TracingSession, value: Any) -> Any:
    """Return what a created object gives; generators and what belongs to them are created, too."""
    if type(value) is list:
        return [adopted(session, item) for item in value]
    if type(value) is random.Random or has_numpy_state(value):
        session.state(CreatedGenerators).objects[id(value)] = value
    return value


def refuse_shared_bits(session: TracingSession, generator: Any) -> None:
    """Refuse to build a generator again whose bit generator the program has, which others may share."""
    bits = getattr(generator, "bit_generator", None) or getattr(generator, "_bit_generator", None)
    if bits is not None and is_created(session, bits):
        raise UnsupportedProgram(
            "the program returns or stores a generator of NumPy and has its bit generator too",
            hint="Create it with np.random.default_rng(seed), or before the call.",
        )


def attribute(session: TracingSession, generator: Any, name: str) -> Any:
    """Return an attribute of a created object of NumPy, or a method of it."""
    if callable(getattr(type(generator), name, None)):
        return method_of(generator, name)
    return adopted(session, getattr(generator, name))


def set_attribute(session: TracingSession, generator: Any, name: str, value: Any) -> None:
    """Set an attribute of a generator of NumPy; raises UnsupportedProgram for one from outside."""
    if not is_created(session, generator):
        raise UnsupportedProgram(
            f"the program sets {name!r} of a generator of NumPy", hint="Set it before the call."
        )
    setattr(generator, name, value)


def known_argument(session: TracingSession, name: str, x: Any) -> Any:
    """Return an argument of a draw, with the values of numbers of the trace, which are decisions."""
    if isinstance(x, NumberProxy):
        return x.fixed(name)
    if type(x) in (tuple, list):
        return type(x)([known_argument(session, name, v) for v in x])
    if is_plain_array(x):
        traced = session.state(Arrays).of(x)
        if traced is not None:
            session.state(Arrays).read(traced)
        return x.copy()
    if type(x) in LEAVES or is_numpy_scalar(x) or isinstance(x, type) or is_created(session, x):
        return x
    raise UnsupportedProgram(
        f"the program passes an object of type {type(x).__qualname__} to {name} of a generator of random "
        "numbers",
        hint="Draw positions, and choose by them.",
    )
