"""Iterators that leave the program: built again at the position where the program left them.

    return zip(xs, ys)              →   zip(iter(xs), iter(ys))
    return (f(y) for y in ys)       →   genexpr(iter(ys)), whose body the caller runs, as in eager

A generator whose body has begun cannot be built again.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from thunder.base.errors import UnsupportedProgram
from thunder.base.iterator_parts import OF_ELEMENTS, READABLE, reduced, set_state
from thunder.interpreter.generator_objects import suspended_frame
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["advance", "is_built", "iterator", "original", "parts_of"]

#: iterators whose ``__reduce__`` returns the arguments that make them, and the state
_REDUCIBLE: Final = OF_ELEMENTS | frozenset(
    cls
    for cls in (
        *(map, filter, zip, enumerate, reversed),
        *(itertools.chain, itertools.islice, itertools.repeat, itertools.starmap, itertools.zip_longest),
        *(itertools.takewhile, itertools.dropwhile, itertools.filterfalse, itertools.cycle),
    )
    if "__reduce__" in vars(cls) or cls in READABLE
)
#: iterators of dicts, and what makes them of the dict
_OF_DICTS: Final[dict[type, Callable[[Any], Any]]] = {
    type(iter({})): iter,
    type(iter({}.values())): dict.values,
    type(iter({}.items())): dict.items,
}


def is_built(value: Any) -> bool:
    """Return whether an iterator can be built again where it is."""
    cls = type(value)
    if cls is types.GeneratorType:
        return _call_of(value) is not None
    return cls in _REDUCIBLE or (cls in _OF_DICTS and isinstance(_dict_of(value), dict))


def parts_of(value: Any) -> Iterable[Any]:
    """Return what an iterator is built of."""
    if type(value) is types.GeneratorType:
        call = _call_of(value)
        assert call is not None, "the generator can be built"
        return [call[0], *call[1], *call[2].values()]
    if type(value) in _OF_DICTS:
        return [_dict_of(value)]
    _, args, *state = reduced(value)
    return [*map(original, args), *_flat(state)]


def iterator(b: EpilogueBuilder, value: Any) -> str:
    """Return code that builds an iterator."""
    if type(value) is types.GeneratorType:
        call = _call_of(value)
        assert call is not None, "the generator can be built"
        function, args, kwargs = call
        if b.session.objects.overridden:
            raise UnsupportedProgram(
                "the program returns or stores a generator, whose body would read the tensors of the module "
                "in place of those that override them",
                hint="Return a list.",
            )
        text = f"{b.expression(function)}(*{b.items('[', args, ']')}, **{b.parts(kwargs)})"
        return b.shared(value, text)
    if type(value) in _OF_DICTS:
        return _of_dict(b, value)
    make, args, *state = reduced(value)
    text = f"{b.refer(make)}({', '.join(b.expression(original(arg)) for arg in args)})"
    if state and state[0] is not None:
        text = f"{b.refer(_at)}({text}, {b.expression(state[0])})"
    return b.shared(value, text)


def _of_dict(b: EpilogueBuilder, value: Any) -> str:
    items = _dict_of(value)
    steps = len(items) - value.__length_hint__()
    view = f"{b.refer(_OF_DICTS[type(value)])}({b.expression(items)})"
    return b.shared(value, f"{b.refer(advance)}(iter({view}), {steps})")


def _dict_of(value: Any) -> Any:
    """Return the dict of an iterator over it; an iterator at its end has none."""
    return next(iter(gc.get_referents(value)), None)


def _at(iterator: Any, state: Any) -> Any:
    set_state(iterator, state)
    return iterator


def advance(iterator: Iterator[Any], steps: int) -> Iterator[Any]:
    """Take so many elements from an iterator, and return it."""
    next(itertools.islice(iterator, steps, steps), None)
    return iterator


def original(fn: Any) -> Any:
    """Return the user's function of a shim that the interpreter passed to native code."""
    return getattr(fn, "thunder_interpreted", fn) if type(fn) is types.FunctionType else fn


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) is tuple:
            yield from _flat(value)
        else:
            yield value


def _call_of(generator: Any) -> tuple[Any, list[Any], dict[str, Any]] | None:
    """Return the function and arguments of a generator of the program whose body has not begun."""
    frame = suspended_frame(generator)
    if frame is None or inspect.getgeneratorstate(generator) != inspect.GEN_CREATED or frame.function is None:
        return None
    code, values = frame.code, frame.arguments()
    names = iter(code.co_varnames)
    args = [values.get(name, MISSING) for name in itertools.islice(names, code.co_argcount)]
    kwargs = {name: values.get(name, MISSING) for name in itertools.islice(names, code.co_kwonlyargcount)}
    if code.co_flags & inspect.CO_VARARGS:
        args += values[next(names)]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= values[next(names)]
    return None if any(v is MISSING for v in (*args, *kwargs.values())) else (frame.function, args, kwargs)
