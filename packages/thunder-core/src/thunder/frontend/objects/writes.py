"""The log of what a program has written outside of itself, which all questions about writes are put to.

    self.n += 1; xs.append(y); VAR.set(2)   →   Write("xs"), Write("self.n"), Write("VAR")

A kind of state is listed once, by the function that yields its writes; the table of objects and the variables
have the first kinds, and each :class:`~thunder.frontend.session.SessionState` may add another one. The
epilogue, errors, locks, weak references, regions and backwards then know of it.

Note [The order of writes]
    The log is in the order of the program, as far as one can see it: the epilogue repeats each place once,
    with the last content that it got. Each write has its moment, a number that only grows.

        x.unsqueeze_(0); x.grad = g                →   torch raises where the second comes first
        o.a = 1; del o.a; o.b = 2; o.a = 3         →   the names of o are b, a
        del C.a; o.a = 1                           →   a descriptor of C would get what is written to o

    A name in a dictionary keeps the moment at which it came there, as it keeps its position
    (:class:`WrittenNames`); other places have the moment of the last write.

    Containers, iterators and arrays come first, at moment 0: native code writes to them, unseen. That is as
    in the program, since nothing else shows when they were written: the hash of a key does not read what
    the program has written (``natives/key_protocols``), and an iterator is set to its position. Before them,
    at -1, hooks are removed from torch's dictionaries: a container may hold the handle of a new one.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from thunder.base.provenance import Path

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["Mark", "Write", "Writes", "WrittenNames", "moment"]

#: returns the moment of a write, later than all before
moment: Final[Callable[[], int]] = itertools.count(1).__next__


class WrittenNames(dict[Any, Any]):
    """What a program has given to names, in the order in which a dictionary has them, with their moments."""

    __slots__ = ("moments",)

    def __init__(self) -> None:
        self.moments: dict[Any, int] = {}

    def __setitem__(self, name: Any, value: Any) -> None:
        if name not in self:
            self.moments[name] = moment()
        super().__setitem__(name, value)


@dataclass(frozen=True, kw_only=True, eq=False)
class Write:
    """The content that a program has given to one place outside of it.

    Args:
        name: the place, as the user would write it.
        moment: when it was written, see Note [The order of writes].
        emit: adds the statements to an epilogue that write it again.
        owner: the object of the user that is written, if the place belongs to one.
        kind: the class of the container or object that is written, of which another one may be the same one.
        variable: the namespace's id and the name of a global variable.
        path: where the place is; None if nothing is reached through it. With ``keys``, those parts of it.
        added: the keys of parts that are new.
        content: the values that the place has now, compared by identity.
        values: those of them that the epilogue builds.
        before: what the place had before, if it has the new content while the program is traced.
        state: what else the place has now, compared by equality.
        read_anywhere: whether any function may read the place without a reference to its owner.
    """

    name: str
    emit: Callable[[EpilogueBuilder], None]
    owner: Any = None
    kind: type | None = None
    variable: tuple[int, str] | None = None
    path: Path | None = None
    keys: Sequence[Any] | None = None
    added: Sequence[Any] = ()
    content: tuple[Any, ...] = ()
    values: tuple[Any, ...] = ()
    before: tuple[Any, ...] = ()
    state: Any = None
    read_anywhere: bool = False
    moment: int = 0


class Mark:
    """A moment of a log: equal to a later one as long as the program has written nothing in between."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, writes: Iterable[Write]) -> None:
        self._writes = list(writes)  # they hold the values, so that no id is used again

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mark) or len(self._writes) != len(other._writes):
            return False
        return all(map(_is_equal, self._writes, other._writes))


def _is_equal(a: Write, b: Write) -> bool:
    same_place = a.name == b.name and a.owner is b.owner and a.state == b.state
    return same_place and len(a.content) == len(b.content) and all(map(operator.is_, a.content, b.content))


class Writes:
    """The writes of one acquisition, in the order of the program."""

    def __init__(self) -> None:
        self._kinds: list[Callable[[], Iterable[Write]]] = []

    def add_kind(self, writes: Callable[[], Iterable[Write]]) -> None:
        """Add a kind of state by the function that yields what the program has written of it."""
        self._kinds.append(writes)

    def forget(self) -> None:
        """Forget the kinds of state, which hold what the acquisition has read."""
        self._kinds.clear()

    def __iter__(self) -> Iterator[Write]:
        return iter(sorted(self._by_kinds(), key=operator.attrgetter("moment")))

    def __bool__(self) -> bool:
        return any(True for _ in self._by_kinds())

    def _by_kinds(self) -> Iterator[Write]:
        for writes in list(self._kinds):
            yield from writes()

    def mark(self) -> Mark:
        """Return the present moment, to be compared with a later one."""
        return Mark(self)

    def names(self) -> list[str]:
        """Return the places, by name."""
        return [write.name for write in self]

    def values(self) -> list[Any]:
        """Return the values that the program keeps in objects that outlive it."""
        return [value for write in self for value in write.values]

    def touch(self, objects: Iterable[Any]) -> bool:
        """Return whether the program has written one of these objects, or a variable in one of them."""
        ids = set(map(id, objects))
        return any(id(w.owner) in ids or (w.variable is not None and w.variable[0] in ids) for w in self)

    def parts(self) -> list[str]:
        """Return the sources of the items of containers that the program has added, replaced or removed."""
        return [
            f"{write.path.source}[{key!r}]"
            for write in self
            if write.path is not None and write.name == write.path.source
            for key in (*(write.keys or ()), *write.added)
        ]
