"""Values of the traced program as real objects, for code that runs later, uninterpreted.

    ctx.sizes = [n, m]; ctx.owner = self; ctx.mean = x.mean()
                              →   maker:  (t0,) ↦ {"sizes": [3, 4], "owner": self, "mean": t0}

Tensors become arguments. An object that the program created is rebuilt in each call, once for all references
to it. An object of the user's is used itself, so its identity becomes a fact.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, cell_content, comes_with_arguments
from thunder.frontend.arrays.array_memory import copied, is_array
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.epilogue.iterators import original
from thunder.frontend.epilogue.reconstruction import (
    VIEWS,
    children,
    description,
    is_method_of_container,
    is_plain_object,
    make_instance,
    reconstruction_of,
    state_of,
    viewed,
)
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.natives.unread_items import readable_keys
from thunder.frontend.objects.class_kinds import CONTAINERS, IDENTITY_TYPES, LEAVES, plain_base
from thunder.frontend.objects.unknown_values import DeferredText, MadeInCall
from thunder.frontend.session import TracingSession
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.unmodelled_proxies import UnmodelledObject

#: collections of which an empty one is filled
_FILLED: Final = (list, dict, set, frozenset, OrderedDict)

#: from the tensors of one call, and the objects rebuilt so far by number, to an object
Maker = Callable[[Sequence[Any], dict[int, Any]], Any]


class Rebuilding:
    """A builder of makers.

    ``is_late``: the makers run after the program, the end of which may build what they cannot.
    ``tensors`` are the proxies that their values need, in the order of the arguments. ``held`` are references
    to arguments, which code that runs after the call has to keep alive from the call on.
    """

    def __init__(self, session: TracingSession, *, is_late: bool = False) -> None:
        self._is_late = is_late
        self.session, self._state = session, session.state(BackwardState)
        #: whether an object or a variable of the program is rebuilt, which others may read and write
        self.shares = False
        self.tensors: list[Any] = []
        self.held: list[weakref.ref[Any]] = []
        self._index: dict[str, int] = {}
        self._makers: dict[int, tuple[Any, Maker]] = {}  # by id: the value, held, and its maker

    def maker(self, value: Any) -> Maker:
        """Return the maker of a value.

        Raises UnsupportedProgram for one that cannot be rebuilt.
        """
        if isinstance(value, TensorProxy | UnmodelledObject):
            return self._tensor(value)
        if isinstance(value, NumberProxy):  # one of the trace is a decision
            return _constant(decided_value(value, "code that runs as it is"))
        value = original(value)
        if isinstance(value, DeferredText | MadeInCall):  # the text of numbers is a decision
            return _constant(readable_keys(self.session, (value,))[0])
        entry = self.session.entry_of(value)
        is_leaf = type(value) in LEAVES or is_numpy_scalar(value)
        if entry is None and (is_leaf or self._is_code(value)):
            return _constant(value)
        built = self._makers.get(id(value))
        if built is None:
            number = self._state.number_of(value)
            cell: list[Maker] = []  # a value may contain itself
            self._makers[id(value)] = value, lambda tensors, rebuilt: _once(number, cell[0], tensors, rebuilt)
            cell.append(self._parts(value) if entry is None else self._of_user(value, entry.obj))
            built = self._makers[id(value)]
        return built[1]

    def makers(self, values: Any) -> list[Maker]:
        """Return the makers of several values."""
        return [self.maker(v) for v in values]

    def _tensor(self, proxy: TensorProxy | UnmodelledObject) -> Maker:
        index = self._index.get(proxy.name)
        if index is None:
            index = self._index[proxy.name] = len(self.tensors)
            self.tensors.append(proxy)
        return lambda tensors, rebuilt: tensors[index]

    def _is_code(self, value: Any) -> bool:
        if is_method_of_container(value):
            return False
        return isinstance(value, IDENTITY_TYPES) and id(value) not in self.session.created_by_program

    def _of_user(self, value: Any, obj: Any) -> Maker:
        """Return the maker of an object from outside of the program, or of an array of a tensor."""
        if is_array(value):
            return self._array(value, obj)
        if isinstance(value, types.MethodType | functools.partial | tuple):
            return self._parts(value)
        self.session.guard_identity(value)
        entry = self.session.entry_of(value)
        if entry is None or not comes_with_arguments(entry.path) or not type(obj).__weakrefoffset__:
            return _constant(obj)
        reference = weakref.ref(obj)  # a cache entry does not keep an argument alive
        self.held.append(reference)
        return lambda tensors, rebuilt: reference()

    def _parts(self, value: Any) -> Maker:
        """Return the maker of an object that the program created, or that is only its parts."""
        cls = type(value)
        if is_array(value):
            return self._array(value, value)
        if cls is types.FunctionType:
            return self._function(value)
        if cls is types.MethodType:
            return _apply(types.MethodType, self.makers((value.__func__, value.__self__)))
        if is_method_of_container(value):
            return _apply(getattr, (self.maker(value.__self__), _constant(value.__name__)))
        if cls in VIEWS:
            container = self.maker(viewed(value))
            return lambda t, m: getattr(container(t, m), VIEWS[cls])()
        if cls is functools.partial:
            fn, args, keywords = self.makers((value.func, value.args, value.keywords))
            return lambda t, m: functools.partial(fn(t, m), *args(t, m), **keywords(t, m))
        by_rule = self.session.made_by(value) is not None
        if by_rule or reconstruction_of(value) is None or isinstance(value, type):
            raise UnsupportedProgram(
                f"{description(value)} is needed when the backward runs, and cannot be rebuilt",
                hint="Use tensors, constants and plain containers of them.",
            )
        self.shares = True
        self._state.rebuilt[id(value)] = (
            value,
            list(map(id, children(value))),
            self.session.locations(),
        )
        if cls in _FILLED or isinstance(value, tuple):
            return self._container(value)
        if self._is_late and not is_plain_object(value):
            self._state.late.add(id(value))
            number = self._state.number_of(value)
            return lambda tensors, rebuilt: rebuilt[number]
        return self._container(value) if plain_base(cls) in CONTAINERS else self._object(value)

    def _array(self, value: Any, obj: Any) -> Maker:
        """Return the maker of an array of NumPy: of a tensor's, the user's, or a copy of the program's."""
        arrays = self.session.state(Arrays)
        traced, tensor = arrays.of(value), arrays.proxy_of(value)
        if tensor is not None:
            make = self.maker(tensor)
            return lambda t, m: make(t, m).detach().numpy()
        if traced is None or traced.path is None:
            arrays.check_read(value)
            content = copied(value)
            return lambda t, m: copied(content)
        if traced.is_written:
            raise UnsupportedProgram(
                f"{traced.path.source}, to which the program has written, is needed as it was",
                hint="Pass a copy of the array.",
            )
        self.session.guard_identity(value)
        return _constant(obj)

    def _container(self, value: Any) -> Maker:
        cls, number = type(value), self._state.number_of(value)
        if isinstance(value, dict):
            keys, values = self.makers(value.keys()), self.makers(value.values())

            def make_dict(tensors: Sequence[Any], rebuilt: dict[int, Any]) -> Any:
                new = rebuilt[number] = cls()  # it may contain itself
                for key, item in zip(keys, values, strict=True):
                    dict.__setitem__(new, key(tensors, rebuilt), item(tensors, rebuilt))
                return new

            return make_dict
        items = self.makers(value)
        if cls is list:

            def make_list(tensors: Sequence[Any], rebuilt: dict[int, Any]) -> Any:
                new = rebuilt[number] = list[Any]()
                new.extend(item(tensors, rebuilt) for item in items)
                return new

            return make_list
        if isinstance(value, tuple) and cls is not tuple:
            return lambda t, m: tuple.__new__(cls, [i(t, m) for i in items])
        return lambda t, m: cls([i(t, m) for i in items])

    def _object(self, value: Any) -> Maker:
        cls, number = type(value), self._state.number_of(value)
        state = {name: self.maker(v) for name, v in state_of(value).items()}

        def make_object(tensors: Sequence[Any], rebuilt: dict[int, Any]) -> Any:
            new = rebuilt[number] = make_instance(cls, {})
            for name, maker in state.items():
                object.__setattr__(new, name, maker(tensors, rebuilt))
            return new

        return make_object

    def _function(self, fn: types.FunctionType) -> Maker:
        cells = [self._cell(c) for c in fn.__closure__ or ()]
        defaults, keywords = self.maker(fn.__defaults__), self.maker(fn.__kwdefaults__)
        code, variables, name = fn.__code__, fn.__globals__, fn.__name__  # without what its cells hold

        def make(tensors: Sequence[Any], rebuilt: dict[int, Any]) -> types.FunctionType:
            closure = tuple(c(tensors, rebuilt) for c in cells)
            new = types.FunctionType(code, variables, name, None, closure or None)
            new.__defaults__, new.__kwdefaults__ = defaults(tensors, rebuilt), keywords(tensors, rebuilt)
            return new

        return make

    def _cell(self, cell: types.CellType) -> Maker:
        """Return the maker of a variable: the user's cell, or a new one with the present content."""
        if id(cell) in self.session.variables.cell_paths:
            return _constant(cell)
        content, number = cell_content(cell), self._state.number_of(cell)
        self._state.cells[id(cell)] = cell, content, self.session.locations()
        self.shares = True
        inside = None if content is ABSENT else self.maker(content)

        def make(tensors: Sequence[Any], rebuilt: dict[int, Any]) -> Any:
            if number not in rebuilt:  # a function may be in its own variables
                rebuilt[number] = types.CellType()
                if inside is not None:
                    rebuilt[number].cell_contents = inside(tensors, rebuilt)
            return rebuilt[number]

        return make


def _constant(value: Any) -> Maker:
    return lambda tensors, rebuilt: value


def _apply(fn: Callable[..., Any], makers: Sequence[Maker]) -> Maker:
    return lambda tensors, rebuilt: fn(*[maker(tensors, rebuilt) for maker in makers])


def _once(number: int, maker: Maker, tensors: Sequence[Any], rebuilt: dict[int, Any]) -> Any:
    if number not in rebuilt:
        rebuilt[number] = maker(tensors, rebuilt)
    return rebuilt[number]
