"""Generators of the user that a program consumes: their bodies are interpreted, and the user's are closed.

    total((f(x) for x in xs))     →   the body of the generator is a part of the program
                                      epilogue: generator.close()

The facts are the code of a generator, its variables, and that its body has not begun. A closed generator has
ended, as eager's has. Of one that the program consumes in part the body cannot be both a part of the program
and the caller's: then the program is traced again, and advances the caller's own (``opaque_iterators``).
"""

from __future__ import annotations

import inspect
import itertools
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.iterator_parts import FUNCTION, part_of_iterator, variables_of
from thunder.base.provenance import ABSENT, Path
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.session import TracingSession
from thunder.ops import prims

__all__ = ["LeftInPart", "adopt_generator"]

_PLAIN = inspect.CO_GENERATOR | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_NESTED
_WITH_REST = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


#: generators whose bodies were interpreted in part
_left_in_part: weakref.WeakSet[types.GeneratorType[Any, Any, Any]] = weakref.WeakSet()


class LeftInPart(UnsupportedProgram):
    """The program has consumed a generator in part; another trace would advance the generator itself."""


@dataclass(frozen=True, eq=False)
class ReachedGenerator:
    """A generator of the user whose body has not begun, its path, and the one that the program runs.

    Opaque calls have run once for the call that is traced, in an order that another trace may not have.
    """

    original: types.GeneratorType[Any, Any, Any]
    path: Path
    copy: types.GeneratorType[Any, Any, Any]
    opaque: OpaqueCalls

    @property
    def steps(self) -> int:
        """1 if the program has begun to run the body, else 0."""
        return int(inspect.getgeneratorstate(self.copy) != inspect.GEN_CREATED)

    @property
    def has_ended(self) -> bool:
        """Return False: what its variables hold, such as a module of ``parameters()``, others hold too."""
        return False

    def effect(self) -> tuple[Callable[..., Any], Any]:
        """Return the function that ends the user's generator, and its second argument.

        Raises LeftInPart where the program has consumed it in part.
        """
        if inspect.getgeneratorstate(self.copy) != inspect.GEN_CLOSED:
            _left_in_part.add(self.original)
            raise (UnsupportedProgram if self.opaque.calls else LeftInPart)(
                f"the program takes some elements of {self.path.source}, a generator, and leaves others",
                hint="Pass a list or tuple of its elements, or consume it to its end.",
            )
        return _end, None


def _end(generator: types.GeneratorType[Any, Any, Any], _: None) -> None:
    generator.close()


def adopt_generator(session: TracingSession, raw: types.GeneratorType[Any, Any, Any], path: Path) -> Any:
    """Return the generator that the program runs in place of the user's; None if there is none."""
    code, function = raw.gi_code, part_of_iterator(raw, FUNCTION, ABSENT)
    if raw in _left_in_part or function is ABSENT or code.co_flags & ~(_PLAIN | _WITH_REST) & 0xFFF:
        return None
    if path.parent is not None:
        session.note(prims.check_type, path, types.GeneratorType)
    function_path = path.step("iterated", FUNCTION)
    for name in ("__code__", "__globals__"):
        session.note(prims.check_same_object, function_path.step("attribute", name), getattr(function, name))
    for i, cell in enumerate(function.__closure__ or ()):
        cell_path = function_path.step("closure", i).step("cell", code.co_freevars[i])
        session.variables.cell_paths.setdefault(id(cell), (cell, cell_path))
    new = types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
    session.created_by_program[id(new)] = new

    def value(name: str) -> Any:
        return session.adopt(variables_of(raw)[name], path.step("iterated", name))

    names = iter(code.co_varnames)
    args = [value(name) for name in itertools.islice(names, code.co_argcount)]
    kwargs = {name: value(name) for name in itertools.islice(names, code.co_kwonlyargcount)}
    if code.co_flags & inspect.CO_VARARGS:
        args += value(next(names))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= value(next(names))
    copy = session.call(new, tuple(args), kwargs)
    session.objects.counts.append(ReachedGenerator(raw, path, copy, session.state(OpaqueCalls)))
    session.objects.track(raw, path, copy)
    return copy
