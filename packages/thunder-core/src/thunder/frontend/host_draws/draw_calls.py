"""Calls that draw from generators of Python and of NumPy, see Note [Draws of the host]."""

from __future__ import annotations

import operator
import random
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.arrays.array_memory import is_plain_array
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.host_draws.created_generators import (
    adopted,
    attribute,
    create,
    is_constructor,
    is_created,
    known_argument,
)
from thunder.frontend.host_draws.draw_statements import (
    HostDraw,
    draw_array,
    draw_decided,
    draw_number,
    frozen,
)
from thunder.frontend.host_draws.host_generators import (
    has_numpy_state,
    is_host_generator,
    is_numpy_generator,
    is_system_generator,
    method_of,
    set_state,
    state_of,
)
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.libraries import numpy
from thunder.frontend.places import DRAWS_ON_HOST
from thunder.frontend.session import SessionState, TracingSession

__all__ = ["TABLE", "HostDraws", "draw_natively", "load_attr"]

TABLE = LookasideTable(DRAWS_ON_HOST)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class HostDraws(SessionState):
    """The generators from outside, by id, with their states before the first draw."""

    def __init__(self, session: TracingSession) -> None:
        self.states: dict[int, tuple[Any, Any]] = {}

    def note(self, generator: Any) -> None:
        """Keep the state of a generator from outside."""
        if id(generator) not in self.states:
            self.states[id(generator)] = generator, state_of(generator)

    def end(self) -> None:
        for generator, state in self.states.values():
            set_state(generator, state)
        self.states.clear()


# -- draws ---------------------------------------------------------------------------------------------------


def _draw(session: TracingSession, generator: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """Return what a method of a generator draws: a value of the trace, or a decision."""
    _check_place(session, name)
    args = tuple(known_argument(session, name, a) for a in args)
    kwargs = {key: known_argument(session, name, a) for key, a in kwargs.items()}
    if is_created(session, generator):
        return adopted(session, method_of(generator, name)(*args, **kwargs))
    session.state(HostDraws).note(generator)
    draw = HostDraw(generator, name, args, kwargs)
    drawn = method_of(generator, name)(*args, **kwargs)  # raises what eager raises
    if type(drawn) in (int, float):
        number = draw_number(draw, type(drawn))
        _note_value(session, number, drawn)
        return number
    if is_plain_array(drawn) and drawn.ndim:
        tensor = torch.from_numpy(drawn.copy())
        proxy = draw_array(draw, drawn.shape, tensor.dtype)
        _note_value(session, proxy, tensor)
        return session.state(Arrays).of_tensor(proxy)
    if drawn is None:
        draw_decided(draw, None, -1)
        return None
    return _decided(session, draw, frozen(drawn), drawn)


def _note_value(session: TracingSession, proxy: Any, value: Any) -> None:
    if session.speculation is not None:
        session.speculation.note_drawn(proxy, value)


def _decided(session: TracingSession, draw: HostDraw, answer: Any, drawn: Any) -> Any:
    if session.speculation is None:
        raise UnsupportedProgram(
            f"the program depends on what {draw} draws", hint="Draw it before the call, and pass it."
        )
    draw_decided(draw, answer, session.speculation.note_decided_draw(str(draw), answer))
    return drawn


def _check_place(session: TracingSession, name: str) -> None:
    session.place.check(DRAWS_ON_HOST, f"the program draws a random number ({name}) of Python or NumPy")


# -- generators that the program creates ---------------------------------------------------------------------


@TABLE.lookaside(random.Random)
def _make_generator(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return create(session, random.Random, args, kwargs)


# -- Python's generators -------------------------------------------------------------------------------------

_NUMBERS = (
    *("random", "getrandbits", "uniform", "triangular", "randint", "randrange", "betavariate"),
    *("expovariate", "gammavariate", "gauss", "lognormvariate", "normalvariate", "vonmisesvariate"),
    *("paretovariate", "weibullvariate", "binomialvariate", "seed", "randbytes"),
)


def _own(generator: Any, name: str) -> Any:
    if not is_host_generator(generator):
        raise UnsupportedProgram(
            f"the program draws ({name}) from a generator of the class {type(generator).__qualname__}",
            hint="Use random.Random, or draw before the call.",
        )
    return generator


def _register(name: str) -> None:
    method = getattr(random.Random, name, None)

    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        generator, *rest = args
        if is_system_generator(generator):
            return session.machine.generic_call(method, args, kwargs)
        if name == "seed" and (not (rest or kwargs) or None in (*rest, *kwargs.values())):
            raise UnsupportedProgram(
                "the program seeds a generator of Python from the operating system", hint="Pass a seed."
            )
        return _draw(session, _own(generator, name), name, tuple(rest), kwargs)

    if method is not None and name in vars(random.Random):
        TABLE.lookaside(method)(rule)
    elif method is not None:
        TABLE.bound_lookaside(method)(rule)


for _name in _NUMBERS:
    _register(_name)


@TABLE.lookaside(random.Random.choice)
def _choice(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    def choice(self: Any, seq: Any) -> tuple[Any, Any]:
        return self, seq

    generator, seq = choice(*args, **kwargs)
    if is_system_generator(generator):
        return session.machine.generic_call(random.Random.choice, args, kwargs)
    if not session.call(len, (seq,), {}):
        return method_of(generator, "choice")(())  # raises IndexError
    count = session.call(len, (seq,), {})  # Python asks twice
    positions = _positions(session, _own(generator, "choice"), "choice", (range(count),), {})
    return session.call(operator.getitem, (seq, positions), {})


@TABLE.lookaside(random.Random.choices)
def _choices(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    def choices(self: Any, population: Any, *rest: Any, **options: Any) -> tuple[Any, Any, Args, Kwargs]:
        return self, population, rest, options

    generator, population, rest, options = choices(*args, **kwargs)
    if is_system_generator(generator):
        return session.machine.generic_call(random.Random.choices, args, kwargs)
    count = session.call(len, (population,), {})
    positions = _positions(session, _own(generator, "choices"), "choices", (range(count), *rest), options)
    return [session.call(operator.getitem, (population, i), {}) for i in positions]


@TABLE.lookaside(random.Random.sample)
def _sample(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    def sample(self: Any, population: Any, *rest: Any, **options: Any) -> tuple[Any, Any, Args, Kwargs]:
        return self, population, rest, options

    generator, population, rest, options = sample(*args, **kwargs)
    if is_system_generator(generator):
        return session.machine.generic_call(random.Random.sample, args, kwargs)
    if type(population) not in (list, tuple, range, str):
        raise UnsupportedProgram(
            f"random.sample of an object of type {type(population).__qualname__}", hint="Pass a list."
        )
    drawn_from = (range(len(population)), *rest)
    positions = _positions(session, _own(generator, "sample"), "sample", drawn_from, options)
    return [population[i] for i in positions]


@TABLE.lookaside(random.Random.shuffle)
def _shuffle(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
    def shuffle(self: Any, x: Any) -> tuple[Any, Any]:
        return self, x

    generator, x = shuffle(*args, **kwargs)
    if is_system_generator(generator):
        session.machine.generic_call(random.Random.shuffle, args, kwargs)
    else:
        _shuffle_list(session, _own(generator, "shuffle"), x)


def _shuffle_list(session: TracingSession, generator: Any, x: Any) -> None:
    if type(x) is not list:
        raise UnsupportedProgram(
            f"the program shuffles an object of type {type(x).__qualname__}",
            hint="Shuffle a list, or use a permutation.",
        )
    order = _positions(session, generator, "shuffle", (list(range(len(x))),), {})
    session.note_write()
    x[:] = [x[i] for i in order]


def _positions(session: TracingSession, generator: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """Return the positions that a method chooses among those of a sequence; they are a decision."""
    _check_place(session, name)
    args = tuple(known_argument(session, name, a) for a in args)
    kwargs = {key: known_argument(session, name, a) for key, a in kwargs.items()}
    kind = _Shuffle if name == "shuffle" else HostDraw
    draw = kind(generator, name, args, kwargs)
    if is_created(session, generator):
        return draw.run()
    session.state(HostDraws).note(generator)
    drawn = draw.run()
    return _decided(session, draw, drawn, drawn)


class _Shuffle(HostDraw):
    """The draw of a permutation, by a method that shuffles a list in place."""

    def run(self) -> Any:
        """Return the shuffled positions."""
        positions = list(self.args[0])
        method_of(self.generator, self.name)(positions)
        return tuple(positions)


# -- NumPy's generators --------------------------------------------------------------------------------------

#: methods of NumPy's generators that are no draws
_OTHERS = frozenset(
    ("get_state", "set_state", "spawn", "__getstate__", "__setstate__", "__reduce__", "bit_generator")
)


def draw_natively(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call a method of a generator of NumPy; NotImplemented where ``fn`` is none."""
    module = numpy()
    if module is None:
        return NotImplemented
    if is_constructor(fn):
        return create(session, fn, args, kwargs)
    if fn is module.random.seed:
        fn = module.random.rand.__self__.seed
    owner, name = getattr(fn, "__self__", None), getattr(fn, "__name__", "")
    if not has_numpy_state(owner):
        owner, *rest = args or (None,)
        method = getattr(type(owner), name, None)
        if not has_numpy_state(owner) or fn not in (method, getattr(method, "__wrapped__", None)):
            return NotImplemented
        args = tuple(rest)
    if is_created(session, owner) and name != "shuffle":
        return _draw(session, owner, name, args, kwargs)
    if not is_numpy_generator(owner) or name in _OTHERS or (name == "seed" and None in (args or (None,))):
        raise UnsupportedProgram(
            f"the program calls {name} of a generator of NumPy", hint="Call it before the compiled function."
        )
    if name == "shuffle":
        _shuffle_list(session, owner, *args, **kwargs)
        return None
    return _draw(session, owner, name, args, kwargs)


def load_attr(session: TracingSession, generator: Any, name: str) -> Any:
    """Return a method of a generator of NumPy, or an attribute of one that the program has created."""
    if is_created(session, generator):
        return attribute(session, generator, name)
    method = getattr(type(generator), name, None)
    if name in _OTHERS or not callable(method):
        raise UnsupportedProgram(
            f"the program reads {name!r} of a generator of NumPy",
            hint="Read it before the call.",
        )
    return method_of(generator, name)
