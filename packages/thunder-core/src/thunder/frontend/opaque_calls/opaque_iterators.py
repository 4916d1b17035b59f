"""Iterators of the user of which only advancing tells what they yield: each step is an opaque call.

    def f(x, batches):                 →   (t1,) = run_opaque(next(batches), ())     # advances it
        return x * next(batches)           t2 = mul(x, item(t1))

A generator whose body has begun, an iterator of a dict, ``itertools.chain``: nothing tells where they are.
The numbers that they yield are values of the program, tensors are as of any opaque call, and other values are
checked. The iterator itself is guarded by its identity.
"""

from __future__ import annotations

import functools
import itertools
import operator
import types
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder.base import opaque_results
from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path
from thunder.base.pytree import tree_map
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import is_foreign
from thunder.frontend.objects.writes import Write
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.opaque_calls.opaque_run import Raised
from thunder.frontend.places import READS
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types.reached_generators import adopt_generator
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["TABLE", "adopt_unread", "refuse_identity"]

TABLE = LookasideTable(READS)

_ITEM, _END, _ERROR, _NUMBER = "item", "end", "error", "number"
#: how an iterator is advanced: its method's name and arguments
Request = tuple[str, tuple[Any, ...]]
_NEXT: Final[Request] = ("__next__", ())


class OpaqueIterators(SessionState):
    """What the program has in the place of such iterators, by id, and what they have yielded."""

    def __init__(self, session: TracingSession) -> None:
        self.stand_ins: dict[int, Any] = {}
        self.tensors: dict[int, TensorProxy] = {}  # by id
        self.containers: list[tuple[Any, Path, tuple[Any, ...]]] = []  # with what they had
        self.has_ended = False

    def writes(self) -> Iterator[Write]:
        for container, path, content in self.containers:
            now = _content(container)
            if len(now) != len(content) or any(a is not b for a, b in zip(now, content, strict=True)):
                name = f"an element of {path.source}"
                yield Write(name=name, emit=functools.partial(_refuse_write, name), content=now)

    def end(self) -> None:
        self.has_ended = True
        self.stand_ins.clear()  # they hold the caller's iterators, and this object


def adopt_unread(session: TracingSession, raw: Any, path: Path) -> Any:
    """Return what the program has in the place of an iterator without parts; None for one with other uses."""
    if type(raw) is types.GeneratorType:
        interpreted = adopt_generator(session, raw, path)
        if interpreted is not None:
            return interpreted
    elif not _is_only_advanced(type(raw)):
        return None
    if path.parent is not None:
        session.note(prims.check_type, path, type(raw))
    request = _requests(raw, path)
    if type(raw) is types.GeneratorType:
        stand_in: Any = _driver(session, request)
        next(stand_in)  # so that it waits for a request
    else:  # it may go on after an error, as a generator does not
        stand_in = map(lambda _: request(session, _NEXT), itertools.repeat(None))
    session.state(OpaqueIterators).stand_ins[id(stand_in)] = stand_in
    session.objects.track(raw, path, stand_in)
    return stand_in


def _is_only_advanced(cls: type) -> bool:
    """Return whether objects of a class implemented in C have no use but to be advanced."""
    names = (name for name in dir(cls) if not name.startswith("_"))
    return is_foreign(cls) and all(isinstance(getattr(cls, name), types.BuiltinMethodType) for name in names)


def _requests(raw: Any, path: Path) -> Callable[[TracingSession, Request], Any]:
    """Return a function that lets the program advance an iterator.

    It returns the item, or raises StopIteration with the value that the iterator returns.
    """

    def advance(iterator: Any, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        try:
            item = getattr(iterator, name)(*args)
        except StopIteration as stop:
            if stop.value is None:  # it is as before
                return {_END: None}
            answer = {_END: tree_map(_packed, stop.value)}
        except Exception as error:
            answer = {_ERROR: Raised(type(error), repr(error), error)}
        else:
            answer = {_ITEM: tree_map(_packed, item)}
        opaque_results.note_advanced()
        return answer

    advance.__module__, advance.__qualname__ = path.source, "__next__"

    def request(session: TracingSession, request: Request) -> Any:
        answer = opaque_acquisition.call(session, advance, (session.adopt(raw, path), *request), {})
        ((kind, value),) = answer.items()
        if kind == _ERROR:
            raise value.error
        value = _unpacked(session, path, value)
        if kind == _END:
            raise StopIteration(*(() if value is None else (value,)))
        return value

    return request


def _driver(
    session: TracingSession, request: Callable[[TracingSession, Request], Any]
) -> Generator[Any, Any, Any]:
    """Do what the program does with a generator; the first value is None, before any request."""
    state, item = session.state(OpaqueIterators), None
    while True:
        try:
            sent = yield item
        except GeneratorExit:
            if not state.has_ended:
                request(session, ("close", ()))
            raise
        except BaseException as error:
            raise UnsupportedProgram(
                "the program raises an exception in a generator of the caller whose body has begun",
                hint="Advance it outside of the compiled function.",
            ) from error
        try:
            item = request(session, _NEXT if sent is None else ("send", (sent,)))
        except StopIteration as stop:
            return stop.value


def _packed(value: Any) -> Any:
    """Return a number as a tensor, which is another one in each call; other values as they are.

    Raises UnsupportedProgram for a leaf that requires grad: the opaque call has another tensor.
    """
    if type(value) is float or (type(value) is int and -(2**63) <= value < 2**63):
        return {_NUMBER: torch.tensor(value, dtype=torch.float64 if type(value) is float else torch.int64)}
    if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
        raise UnsupportedProgram(
            "an iterator of the caller yields a leaf that requires grad",
            hint="Pass a list of its elements.",
        )
    return value


def _unpacked(session: TracingSession, path: Path, value: Any) -> Any:
    state = session.state(OpaqueIterators)
    if type(value) is TensorProxy:
        state.tensors[id(value)] = value
    if type(value) is dict and value.keys() == {_NUMBER}:
        return session.call(torch.Tensor.item, (value[_NUMBER],), {})
    if type(value) is tuple:
        return tuple(_unpacked(session, path, part) for part in value)
    if isinstance(value, dict | list | deque):
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            value[key] = _unpacked(session, path, part)
        state.containers.append((value, path, _content(value)))
    return value


def _content(container: Any) -> tuple[Any, ...]:
    return (*container, *(container.values() if isinstance(container, dict) else ()))


def _refuse_write(name: str, builder: EpilogueBuilder) -> None:
    raise UnsupportedProgram(
        f"the program writes to {name}, which the caller may have as well", hint="Write to a copy of it."
    )


def refuse_identity(session: TracingSession, *tensors: TensorProxy) -> None:
    """Refuse to tell a tensor from one that an iterator has yielded: the opaque call has another tensor."""
    if not session.state(OpaqueIterators).tensors.keys().isdisjoint(map(id, tensors)):
        raise UnsupportedProgram(
            "the program asks whether a tensor is one that an iterator of the caller yields",
            hint="Pass a list of its elements.",
        )


@TABLE.lookaside(operator.length_hint)
def _length_hint(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args and id(args[0]) in session.state(OpaqueIterators).stand_ins:
        raise UnsupportedProgram(
            "the program asks how many elements an iterator of the caller has left",
            hint="Pass a list of its elements.",
        )
    return session.machine.generic_call(operator.length_hint, args, kwargs)
