"""Shadow copies of containers that a program reaches from its inputs.

C code works on a shadow natively; the original is never touched while tracing. What differs between shadow
and snapshot at the end is what the program wrote, and becomes the epilogue.

    def f(xs):            →   trace:     works on a copy of xs whose tensors are proxies
        xs[0] = y             epilogue:  xs[:] = [y]

Note [Unread lists]
The copy of a list or deque begins with :data:`UNREAD` in the place of its items. The first use of an item
reads them, and guards them; what only adds to the list does not, so that a program with a list that grows is
compiled once:

    self.losses.append(y)      [UNREAD, y]                          epilogue:  self.losses.extend([y])
    len(self.losses)           2 + 1, and a fact, or an input (Note [Sizes that vary])
    self.losses[-1]            y, which the program has appended
    self.losses[0]             reads the items: [item, other, y]

C code gets a list by ``natives/unread_items``, and the interpreter asks ``Policy.read_items`` before it takes
elements itself. Whatever looks at the marker raises InternalError, so that a place that does not ask gives no
wrong value.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from thunder.base.errors import InternalError
from thunder.base.provenance import ABSENT, Path, content_of
from thunder.frontend.objects.class_kinds import extended_container
from thunder.frontend.objects.container_keys import refuse_moved_keys
from thunder.frontend.objects.writes import Write, WrittenNames
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

#: container types that are shadowed, by exact type → the items to track as (key, value) pairs, and how a copy
#: is made of new values
MAPPINGS: dict[type, Callable[[Any, dict[Any, Any]], Any]] = {
    dict: lambda original, items: items,
    OrderedDict: lambda original, items: OrderedDict(items),
    defaultdict: lambda original, items: defaultdict(original.default_factory, items),
    Counter: lambda original, items: _counter(items),
}
SEQUENCES: dict[type, Callable[[Any, list[Any]], Any]] = {
    list: lambda original, items: items,
    deque: lambda original, items: deque(items, original.maxlen),
}


#: builtin containers, of which classes may be derived
_BUILTINS: frozenset[Any] = frozenset({dict, OrderedDict, defaultdict, list, deque, set})


def _counter(items: dict[Any, Any]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, items)
    return counter


def _refuse(*_: Any) -> Any:
    raise InternalError("the items of a list are used before they have been read")


class _Unread:
    """The type of :data:`UNREAD`, of which all uses raise InternalError."""

    __slots__ = ()
    __getattribute__ = __setattr__ = __eq__ = __ne__ = __hash__ = __bool__ = __repr__ = __format__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __iter__ = __len__ = __getitem__ = __call__ = __index__ = _refuse


UNREAD: Final = _Unread()
"""What the copy of a list or deque has in the place of its items until they are read."""


def without_unread(items: Iterable[Any]) -> list[Any]:
    """Return the items of a list that are known."""
    return [item for item in items if item is not UNREAD]


@dataclass(eq=False, slots=True)
class ItemOverlay:
    """Items of a dict that were read or replaced one by one, without a shadow of the dict.

    ``owner`` is the object whose attribute the dict is, or the dict of a module's overriding tensors, and
    ``path`` that of the dict. A shadow that is made later starts with what was written here, and the overlay
    ends.
    """

    owner: Any
    path: Path
    items: dict[Any, Any] = field(default_factory=dict)
    writes: WrittenNames = field(default_factory=WrittenNames)

    def written_items(self) -> Iterator[Write]:
        """Return the items that the program replaced."""
        return (self._written_item(key, value) for key, value in self.writes.items())

    def _written_item(self, key: Any, value: Any) -> Write:
        return Write(
            name=f"{self.path.source}.{key}",
            emit=lambda builder: self._emit(builder, key, value),
            owner=self.owner,
            kind=dict,
            path=self.path,
            keys=(key,),
            content=(value,),
            values=(value,),
            moment=self.writes.moments[key],
        )

    def _emit(self, builder: EpilogueBuilder, key: Any, value: Any) -> None:
        """Replace an item of the user's dict."""
        if self.path.parent is None:  # the overriding tensors
            target = builder.fetched(self.path, self.owner)
            builder.emit(f"{target}[{key!r}] = {builder.expression(value)}")
            return
        target = builder.fetched(self.path.parent, self.owner)
        if self.path.key == "_buffers":
            builder.pack(prims.pack_buffer, target, key, value)
        else:
            builder.emit(f"{target}.{self.path.key}[{key!r}] = {builder.expression(value)}")


@dataclass(eq=False, slots=True)
class Shadow:
    """A container of the user, the copy that the program sees, and the copy's first content."""

    original: Any
    path: Path
    copy: Any
    snapshot: Any

    @classmethod
    def of(cls, original: Any, path: Path) -> Shadow:
        """Return a shadow without content; :meth:`fill` adds the items once they are tracked."""
        t = type(original)
        if t in MAPPINGS:
            return cls(original, path, MAPPINGS[t](original, {}), None)
        if t in SEQUENCES:
            return cls(original, path, SEQUENCES[t](original, []), None)
        if t is bytearray or t is array:
            return cls(original, path, original[:], bytes(original))
        if t is set:  # its copy gives the elements in the same order
            return cls(original, path, original.copy(), None)
        base: Any = next(b for b in t.__mro__ if b in _BUILTINS)
        new: Any = base.__new__(t)  # its ``__new__`` and ``__init__`` may be Python code
        if base is defaultdict:
            defaultdict.__init__(new, original.default_factory)
        elif base is deque:
            deque.__init__(new, (), original.maxlen)
        return cls(original, path, new, None)

    def fill(self, items: Any) -> None:
        """Add the tracked items: pairs for a mapping, values for a sequence or set."""
        put_items(self.copy, items)
        self.snapshot = self.content

    def fill_unread(self) -> None:
        """Leave the items of a list or deque unread, see Note [Unread lists]."""
        self.copy.append(UNREAD)
        self.snapshot = self.content

    def read(self, items: list[Any]) -> None:
        """Add the tracked items of a list or deque that was unread, before those that were added."""
        added = without_unread(self.copy)
        self.copy.clear()
        self.fill(items)
        self.copy.extend(added)

    @property
    def content(self) -> Any:
        """The content that the program sees now: the bytes, or a plain dict or list."""
        is_of_bytes = isinstance(self.copy, bytearray | array)
        return bytes(self.copy) if is_of_bytes else content_of(self.copy)

    @property
    def is_written(self) -> bool:
        """Return whether the program changed the container: its items by identity, or their order."""
        now, before = self.content, self.snapshot
        if isinstance(now, bytes) or isinstance(self.copy, set):
            return bool(now != before if isinstance(now, bytes) else set(now) != set(before))
        if len(now) != len(before):
            return True
        if isinstance(now, dict):
            pairs = zip(now.items(), before.items(), strict=True)
            return any(a is not c or b is not d for (a, b), (c, d) in pairs)
        return any(a is not b for a, b in zip(now, before, strict=True))

    def changed_keys(self) -> tuple[list[Any] | None, list[Any]]:
        """Return the keys whose values are others than before, or gone, and the keys that are new.

        The first are None for a set from which something is gone, and for a deque with a ``maxlen`` that is
        unread.
        """
        now, before = self.content, self.snapshot
        if isinstance(self.copy, dict):
            values = {id(key): value for key, value in now.items()}
            changed = [key for key, value in before.items() if values.get(id(key), ABSENT) is not value]
            old = set(map(id, before))
            return changed, [key for key in now if id(key) not in old]
        is_unread = isinstance(self.copy, list | deque) and any(item is UNREAD for item in before)
        if is_unread:  # a deque with a ``maxlen`` drops what it has had
            return (None if isinstance(self.copy, deque) and self.copy.maxlen is not None else []), []
        if isinstance(self.copy, list | deque):
            changed = [i for i, value in enumerate(before) if i >= len(now) or now[i] is not value]
            return changed, list(range(len(before), len(now)))
        is_kept = isinstance(self.copy, set) and set(map(id, before)) <= set(map(id, now))
        return [] if is_kept else None, []

    def write(self) -> Write:
        """Return the content that the program gave the container."""
        now, before = self.content, self.snapshot
        values = tuple(now.values() if isinstance(now, dict) else now)
        changed, added = self.changed_keys()
        if isinstance(now, list):
            # the rest is the same before and after the items have been read
            is_extended = _begins_with(now, before)
            content, values = values[len(before) if is_extended else 0 :], tuple(without_unread(now))
        else:
            content = (*now, *values) if isinstance(now, dict) else values
        return Write(
            name=self.path.source,
            emit=self._emit,
            owner=self.original,
            kind=type(self.original),
            path=self.path,
            keys=changed,
            added=added,
            content=content,
            values=() if isinstance(now, bytes) else values,
            moment=-1 if _is_of_hooks(self.path) else 0,
        )

    def _emit(self, builder: EpilogueBuilder) -> None:
        """Write the content to the user's container."""
        target = builder.fetched(self.path, self.original)
        now, before = self.content, self.snapshot
        if id(self.copy) in builder.session.objects.python_keyed:
            refuse_moved_keys(self.copy, self.path.source)
        if extended_container(type(self.copy)) is not None:
            self._emit_extended(builder, target)
        elif isinstance(now, dict):
            _emit_dict(builder, target, now, before)
        elif isinstance(now, bytes):
            builder.emit(f"{target}[:] = {text_of_bytes(builder, self.copy)}")
        elif isinstance(self.copy, set):
            builder.emit(f"{target}.clear()", f"{target}.update({builder.items('[', now, ']')})")
        elif _begins_with(now, before):
            builder.emit(f"{target}.extend({builder.items('[', now[len(before) :], ']')})")
        elif isinstance(self.copy, deque):
            builder.emit(f"{target}.clear()", f"{target}.extend({builder.items('[', now, ']')})")
        else:
            builder.emit(f"{target}[:] = {builder.items('[', now, ']')}")

    def _emit_extended(self, builder: EpilogueBuilder, target: str) -> None:
        """Write the content of a container of a Python class, whose methods ran while tracing."""
        now, before = self.content, self.snapshot
        is_kept = _begins_with(list(now), list(before))
        if isinstance(now, dict):
            changed = {k: v for k, v in now.items() if not (is_kept and k in before and before[k] is v)}
            items = builder.pairs(changed.items())
        else:
            items = builder.items("[", now[len(before) if is_kept else 0 :], "]")
        builder.emit(f"{builder.refer(put_items if is_kept else replace_items)}({target}, {items})")


def _emit_dict(builder: EpilogueBuilder, target: str, now: dict[Any, Any], before: dict[Any, Any]) -> None:
    if not _begins_with(list(now), list(before)):
        new = builder.new_name("new")
        builder.emit(f"{new} = {builder.pairs(now.items())}", f"{target}.clear()", f"{target}.update({new})")
        return
    for key, value in now.items():
        if key not in before or before[key] is not value:
            builder.pack(prims.pack_setitem, target, key, value)


def _begins_with(items: list[Any], start: list[Any]) -> bool:
    return len(items) >= len(start) and all(a is b for a, b in zip(items, start, strict=False))


def text_of_bytes(builder: EpilogueBuilder, value: bytearray | array[Any]) -> str:
    """Return code that makes an equal bytearray or array."""
    if isinstance(value, bytearray):
        return f"bytearray({bytes(value)!r})"
    return f"{builder.refer(array)}({value.typecode!r}, {value.tobytes()!r})"


def put_items(container: Any, items: Any) -> None:
    """Add items to a container, pairs to a dict, without the methods of its class."""
    if isinstance(container, dict):
        base: Any = OrderedDict if isinstance(container, OrderedDict) else dict
        for key, value in items.items() if type(items) is dict else items:
            base.__setitem__(container, key, value)
    elif isinstance(container, set):
        set.update(container, items)
    else:
        (deque if isinstance(container, deque) else list).extend(container, items)


def replace_items(container: Any, items: Any) -> None:
    """Let a container have these items alone, without the methods of its class."""
    builtins = (vars(base) for base in type(container).__mro__ if base in _BUILTINS)
    next(members["clear"] for members in builtins if "clear" in members)(container)
    put_items(container, items)


def views_whole(view: memoryview) -> bool:
    """Return whether a view is one of all bytes of a bytes object or bytearray, byte by byte.

    A view that has been released is none.
    """
    try:
        owner, shape = view.obj, view.shape
    except ValueError:
        return False
    if not isinstance(owner, bytes | bytearray) or type(owner) not in (bytes, bytearray):
        return False
    return view.format == "B" and shape == (len(owner),) and view.strides == (1,)


def _is_of_hooks(path: Path) -> bool:
    """Return whether a container has the hooks of a tensor, which a handle of torch's refers to."""
    parent = path.parent
    return path.kind == "referent" and parent is not None and parent.key == "hooks_dict_ref"
