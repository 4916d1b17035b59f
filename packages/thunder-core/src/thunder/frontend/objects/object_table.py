"""The table of the objects that a program reached from the inputs of a call.

Values are never wrapped. Each object that was reached from an input has an entry, found by identity; the
entry holds the object, so that its id is not used again. To adopt a value is to note where it came from, to
add the facts that the trace now depends on, and to return what the traced program sees: the leaf itself, a
proxy for a tensor, a shadow for a container, else the object itself.
"""

from __future__ import annotations

import array
import functools
import threading
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from thunder.base.devices import to_torch_device
from thunder.base.errors import UnsupportedProgram
from thunder.base.iterator_parts import GETTERS
from thunder.base.provenance import (
    ABSENT,
    Path,
    comes_with_arguments,
    content_of,
    lookup_slot,
    outer_metadata,
    plain_tensor,
    proxied,
)
from thunder.frontend.facts import TensorFacts
from thunder.frontend.free_sizes import FreeSizes
from thunder.frontend.host_draws.host_generators import is_numpy_generator
from thunder.frontend.natives.libraries import is_numpy_function, is_numpy_scalar, is_of_pydantic
from thunder.frontend.objects.class_kinds import (
    IDENTITY_TYPES,
    LEAVES,
    LOCKS,
    OPAQUE,
    extended_container,
    has_python_key,
    is_container,
    is_foreign,
    is_plain,
    is_read_plainly,
    plain_base,
)
from thunder.frontend.objects.container_keys import adopt_dict_key, adopt_keys, refuse_moved_keys
from thunder.frontend.objects.entry_table import EntryTable
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.reached_iterators import adopt_getter, adopt_iterator
from thunder.frontend.objects.shadow_copies import SEQUENCES, Shadow, views_whole
from thunder.frontend.objects.tensor_classes import overrides_torch
from thunder.frontend.objects.unmodelled_tensors import is_modelled, refuse_without_data
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import has_symbols
from thunder.ops import prims
from thunder.ops.prims import Check
from thunder.wrappers.module_class import ModuleClass
from thunder.wrappers.overrides import Overrides, has_other_form
from thunder.wrappers.thunder_module import ThunderModule, dispatcher_of, get_thunder_module

_PROCESS_GROUP: type | None = getattr(torch.distributed, "ProcessGroup", None)


class ObjectTable(EntryTable):
    """The objects of one acquisition, and the facts about them.

    Args:
        make_input: makes the proxy of a tensor, or of a generator of random numbers, that is reached by a
        path; a third argument is the tensor whose metadata it has, if that is another one.
        inputs: the list to which it appends the proxy and its path.
    """

    def __init__(self, make_input: Callable[..., Any], inputs: list[tuple[Any, Path]]) -> None:
        super().__init__()
        self.make_input, self.inputs = make_input, inputs
        #: the path of the tensor that overrides one of a module, by the id of that one
        self.overridden: dict[int, Path] = {}
        self.own_form: set[Path] = set()  # of overriding tensors that are traced as they are
        #: whether the proxy of an overriding tensor of another shape or dtype has the original's metadata
        self.keeps_original_metadata = False
        #: compiled modules that were reached, by the id of the module that each wraps
        self.compiled: dict[int, ThunderModule] = {}
        self.reached_again: set[int] = set()  # ids of objects that the program reached by several paths
        self.referents: set[int] = set()  # ids of objects that the program reached by weak references
        self.python_keyed: dict[int, Any] = {}  # dicts and sets with keys whose methods are Python, by id
        #: lists and deques that are unread, and items of containers that cannot be adopted, by id: the
        #: program may pass these on
        self.unread: dict[int, ObjectEntry] = {}
        #: whether the program has tensors that only opaque calls take
        self.has_unmodelled = False
        #: tensors that are not of torch's own classes, with their classes, by id of the proxy
        self.tensor_classes: dict[int, tuple[TensorProxy, type]] = {}
        #: the attributes of those that the program made, by id of the proxy
        self.tensor_attributes: dict[int, dict[str, Any]] = {}
        #: returns what the program sees of an object whose type has a rule for that, else NotImplemented
        self.adopt_by_rule: Callable[[Any, Path], Any] = lambda raw, path: NotImplemented
        #: returns what the program sees of an iterator without parts, or None
        self.adopt_unread_iterator: Callable[[Any, Path], Any] = lambda raw, path: None
        #: returns a function as native code calls it
        self.callback: Callable[[Any], Any] = lambda fn: fn
        #: called when the program has a tensor whose class overrides torch's functions
        self.note_overriding_tensor: Callable[[], None] = lambda: None
        #: whether a number is a symbol, see Note [Symbolic sizes]
        self.is_symbol: Callable[[Any, Path], bool] = lambda number, path: False
        #: whether sizes or strides of a tensor are symbols
        self.has_free_sizes: Callable[[torch.Tensor, Path], bool] = lambda t, path: False
        self._numbers: dict[tuple[Any, ...], Any] = {}  # by the place

    def replace_input(self, proxy: TensorProxy, by: TensorProxy) -> None:
        """Let another proxy be the input that the computation receives."""
        index = next(i for i, (p, _) in enumerate(self.inputs) if p is proxy or p is by)
        self.inputs[index] = by, self.inputs[index][1]

    # -- adoption --------------------------------------------------------------------------------------------

    def adopt(self, raw: Any, path: Path) -> Any:
        """Return what the traced program sees of ``raw``, which was read at ``path``.

        Raises UnsupportedProgram for opaque objects.
        """
        t = type(raw)
        if t is slice and not is_plain(raw):
            return self._adopt_slice(raw, path)
        if t in LEAVES or is_numpy_scalar(raw) or plain_base(t) in LEAVES:
            if t in (int, float) and self.is_symbol(raw, path):
                return self.adopt_number(raw, path)
            self.note(_LEAF_CHECKS.get(t, prims.check_literal_like), path, raw)
            if t not in LEAVES and id(raw) not in self.entries:  # it may have attributes
                self.track(raw, path, raw)
            return raw
        instead = self.overridden.get(id(raw))
        original = None
        if instead is not None and path.parent is not instead.parent and not comes_with_arguments(path):
            # the overriding tensor replaces this one, not a later one
            self.note(prims.check_same_object, path, raw)
            path, original = instead, None if instead in self.own_form else raw
            raw = path.fetch({})
        entry = self.entries.get(id(raw))
        if entry is None and (own := self.path_in_module(raw, path)) is not None:
            self.adopt(raw, own)
            entry = self.entries.get(id(raw))
        if entry is not None:
            if entry.path is not path:
                self.reached_again.add(id(raw))
            if entry.path is not path and not isinstance(raw, IDENTITY_TYPES):
                self.note(prims.check_same_object, path, entry.path)
            elif isinstance(raw, IDENTITY_TYPES) and path.parent is not None:
                self.note(prims.check_same_object, path, raw)
            return entry.value
        if t in weakref.ProxyTypes:  # before all questions that it would hand on
            raise UnsupportedProgram(
                f"{path.source} is a weakref.proxy, which cannot be told from the object that it stands for",
                hint="Use weakref.ref, and call it.",
            )
        if isinstance(raw, torch.Tensor):
            return self._adopt_tensor(raw, path, original)
        if type(raw) is torch.Generator:
            return self._adopt_generator(raw, path)
        if type(t) is ModuleClass:
            return self.adopt_compiled(raw, path)
        if (adopted := self.adopt_by_rule(raw, path)) is not NotImplemented:
            return adopted
        if isinstance(raw, IDENTITY_TYPES) or _is_known_by_identity(raw):
            if path.parent is not None or path.root_object is ABSENT:
                self.note(prims.check_same_object, path, raw)
            if isinstance(raw, torch.nn.Module):  # its class may be swapped: ``m.__class__ = C``
                self.note(prims.check_type, path, t)
            self.track(raw, path, raw)
            return raw
        return self._adopt_object(raw, path)

    def adopt_number(self, raw: float, path: Path) -> Any:
        """Adopt a number that is a symbol, see Note [Sizes that vary]."""
        place = path.place
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = self.make_input(raw, path)
        self.note(prims.check_type, path, type(raw))
        return number

    def _adopt_tensor(
        self, raw: torch.Tensor, path: Path, original: torch.Tensor | None = None
    ) -> TensorProxy:
        if not is_modelled(raw):
            return self._adopt_unmodelled(raw, path)
        if overrides_torch(type(raw)):
            return self._adopt_overriding(raw, path)
        if original is not None and not (self.keeps_original_metadata and has_other_form(raw, original)):
            original = None
        proxy: TensorProxy = self.make_input(raw, path, original)
        strides = proxy.strides or ()
        free = FreeSizes(proxy.shape, strides) if has_symbols((*proxy.shape, *strides)) else None
        self.note(prims.check_tensor, path, TensorFacts.of(raw, to_torch_device(proxy.device), free))
        self.track(raw, path, proxy)
        return proxy

    def _adopt_unmodelled(self, raw: torch.Tensor, path: Path) -> TensorProxy:
        """Adopt a tensor that only opaque calls take, see Note [Unmodelled tensors]."""
        refuse_without_data(raw, path)
        proxy: TensorProxy = self.make_input(raw, path)
        self.note(prims.check_type, path, type(raw))
        outer = path.step("outer", "outer")
        self.note(prims.check_literal_like, outer, outer_metadata(raw))
        self.track(raw, path, proxy)
        self.has_unmodelled = True
        return proxy

    def _adopt_overriding(self, raw: torch.Tensor, path: Path) -> TensorProxy:
        """Adopt a tensor whose class overrides torch's functions; the trace has it as a plain tensor."""
        self.note(prims.check_type, path, type(raw))
        plain, plain_path = plain_tensor(raw), path.step("plain", "plain")
        proxy: TensorProxy = self.make_input(plain, plain_path)
        with torch._C.DisableTorchFunctionSubclass():
            proxy.declared_leaf = raw.is_leaf
        self.note(prims.check_tensor, plain_path, TensorFacts.of(plain, to_torch_device(proxy.device)))
        self.track(raw, path, proxy)
        self.tensor_classes[id(proxy)] = proxy, type(raw)
        self.note_overriding_tensor()
        return proxy

    def adopt_compiled(self, raw: ThunderModule, path: Path) -> torch.nn.Module:
        """Return the module that a compiled module was made of, with its overrides."""
        if path.parent is not None or path.root_object is ABSENT:
            self.note(prims.check_same_object, path, raw)
        overrides, module = dispatcher_of(raw).overrides, get_thunder_module(raw)
        self.apply_overrides(overrides)
        self.compiled[id(module)] = raw
        adopted: torch.nn.Module = self.adopt(module, self.object_root(module, path.source))
        self.entries[id(raw)] = self.entries[id(module)]
        return adopted

    def apply_overrides(self, overrides: Overrides | None) -> None:
        """Replace overridden tensors by the overriding ones in every later read.

        Raises InvalidArgument where the module holds another tensor than the one that was overridden.
        """
        if overrides is None:  # what is compiled is not a module
            return
        overrides.refuse_replaced()
        count = len(overrides.tensors)  # names are only ever added
        if count:
            self.note(prims.check_len, overrides.path, count)
        else:
            self.note(prims.check_empty, overrides.path)
        paths = overrides.paths()
        self.overridden.update(paths)
        self.own_form.update(path for path in paths.values() if path.key in overrides.own_form)

    def _adopt_generator(self, raw: torch.Generator, path: Path) -> torch.Generator:
        """Adopt a generator, whose state no fact is about: each call draws from its own."""
        if path.parent is not None:
            self.note(prims.check_type, path, torch.Generator)
            self.note(prims.check_literal_like, path.step("attribute", "device"), raw.device)
        self.track(raw, path, raw)
        return raw

    def _adopt_process_group(self, raw: Any, path: Path) -> Any:
        """Adopt a process group, of which the name is a fact, and what a program asks of it."""
        if path.parent is not None:
            self.note(prims.check_type, path, type(raw))
            self.note(prims.check_literal_like, path.step("attribute", "group_name"), str(raw.group_name))
        self.track(raw, path, raw)
        return raw

    def _adopt_object(self, raw: Any, path: Path) -> Any:
        t = type(raw)
        if _PROCESS_GROUP is not None and issubclass(t, _PROCESS_GROUP):
            return self._adopt_process_group(raw, path)
        if isinstance(raw, OPAQUE) or (hasattr(t, "__next__") and is_foreign(t)):
            return adopt_iterator(self, raw, path)
        if path.parent is not None:
            self.note(prims.check_type, path, t)
        if is_container(t):  # its attributes are read one by one, as those of any object
            return self.adopt_container(raw, path)
        if t is frozenset:
            self.note(prims.check_set, path, adopt_keys(self, raw, path))
            return raw
        if issubclass(t, tuple):
            return self._adopt_tuple(raw, path)
        if t is bytearray or t is array.array or (t is memoryview and views_whole(raw)):
            return self._adopt_bytes(raw, path)
        if t is types.MethodType:
            return self._adopt_method(raw, path)
        if t is functools.partial:
            return self._adopt_partial(raw, path)
        if t in GETTERS:
            return adopt_getter(self, raw, path)
        if t is types.MappingProxyType:
            view = types.MappingProxyType(self.adopt(proxied(raw), path.step("proxied", "proxied")))
            self.track(raw, path, view)
            return view
        if path.kind == "typeattr" and is_foreign(
            t
        ):  # a descriptor implemented in C: what matters is which it is
            self.note(prims.check_same_object, path, raw)
            self.track(raw, path, raw)
            return raw
        if t in LOCKS or (issubclass(t, weakref.ref) and not is_foreign(t, weakref.ref)):
            self.track(raw, path, raw)  # what it points to is read when it is called
            return raw
        if issubclass(t, list | dict | set | frozenset | str | bytes | int | float | bytearray) or is_foreign(
            t
        ):
            raise UnsupportedProgram(
                f"{path.source} is {_a(t.__qualname__)}, whose content thunder cannot read and guard",
                hint="Pass tensors, arrays of numbers, numbers, strings, plain containers, dataclasses or "
                "objects of Python classes; or mark the function that reads it by "
                "thunder.opaque.",
            )
        entry = self.track(raw, path, raw)
        if issubclass(t, threading.local):  # what it holds in this thread
            entry.own = self.adopt(raw.__dict__, path.step("attribute", "__dict__"))
        return raw

    def adopt_container(self, raw: Any, path: Path) -> Any:
        """Return the shadow of a container, with facts about its length or keys, and its items adopted.

        A list or deque is left unread, see Note [Unread lists].
        """
        shadow = Shadow.of(raw, path)
        entry = self.track(raw, path, shadow.copy)
        self.shadows.append(shadow)
        if lookup_slot(raw, "__dict__") is raw:  # its attributes are its items
            object.__setattr__(shadow.copy, "__dict__", shadow.copy)
            entry.own = shadow.copy
            self.note(prims.check_same_object, path.step("slot", "__dict__"), path)
        for base, names in _PARTS.items():
            for name in names if isinstance(raw, base) else ():
                part, place = getattr(raw, name), path.step("attribute", name)
                if type(part) is int:  # native code goes by it, so that it is no symbol
                    self.note(prims.check_number_type_and_value, place, part)
                else:
                    self.adopt(part, place)
        content = content_of(raw)
        if extended_container(type(raw)) and not is_read_plainly(type(raw)):
            path = path.step("content", "content")
        if isinstance(content, dict):
            keys = tuple(content)
            self.note(prims.check_keys, path, tuple(adopt_dict_key(self, key, path) for key in keys))
            seen = (self.entries[id(k)].value if isinstance(k, torch.Tensor) else k for k in keys)
            items = (self.adopt_item(item, path.step("key", k)) for k, item in content.items())
            shadow.fill(zip(seen, items, strict=True))
            overlay = self.item_overlays.pop(id(raw), None)
            if overlay is not None:
                shadow.copy.update(overlay.writes)
        elif isinstance(shadow.copy, set):
            self.note(prims.check_set, path, adopt_keys(self, content, path))
            shadow.fill(content)
        elif type(raw) in SEQUENCES:
            shadow.fill_unread()
            self.unread[id(shadow.copy)] = entry
            entry.reader = functools.partial(self._read_items, shadow, entry)
        else:
            self.note(prims.check_len, path, len(content))
            shadow.fill([self.adopt_item(v, path.step("index", i)) for i, v in enumerate(content)])
        if isinstance(shadow.copy, dict | set) and any(map(has_python_key, content)):
            refuse_moved_keys(raw, path.source)
            self.python_keyed[id(shadow.copy)] = shadow.copy
        return shadow.copy

    def _read_items(self, shadow: Shadow, entry: ObjectEntry) -> None:
        """Add the items of a list or deque to its shadow, and the facts about them."""
        path, raw = shadow.path, shadow.original
        self.note(prims.check_len, path, len(raw))
        items = [self.adopt_item(v, path.step("index", i)) for i, v in enumerate(raw)]
        if self.unread.pop(id(shadow.copy), None) is not None:  # else one of them is an iterator over it
            entry.reader = None
            shadow.read(items)

    def read_items(self, value: Any) -> None:
        """Read the items of a list or deque, if it is unread."""
        entry = self.unread.get(id(value))
        if entry is not None and type(value) in SEQUENCES and entry.reader is not None:
            entry.reader()

    def adopt_item(self, raw: Any, path: Path) -> Any:
        """Return what the program sees of an item, which a program that does not look into it may have.

        An item whose content cannot be guarded refuses no program that passes it on, tests its type or its
        identity, or never reads it: its entry has the refusal of every other use.
        """
        try:
            return self.adopt(raw, path)
        except UnsupportedProgram as error:
            if type(raw) in weakref.ProxyTypes:
                raise
            self.shadows = [shadow for shadow in self.shadows if shadow.original is not raw]
            self.note(prims.check_type, path, type(raw))
            entry = self.unread[id(raw)] = self.track(raw, path, raw)
            entry.refusal = error
            return raw

    def _adopt_tuple(self, raw: tuple[Any, ...], path: Path) -> Any:
        t = type(raw)
        if t is tuple and raw and all(map(is_plain, raw)):
            self.note(prims.check_literal_like, path, raw)
            return raw
        self.note(prims.check_len, path, tuple.__len__(raw))
        items = [self.adopt_item(v, path.step("index", i)) for i, v in enumerate(tuple.__iter__(raw))]
        value = raw
        if any(a is not b for a, b in zip(items, tuple.__iter__(raw), strict=True)):
            value = t(items) if is_foreign(t, tuple) else tuple.__new__(t, items)
        if value != () or t is not tuple:  # the empty tuple is one object in the whole process
            self.track(raw, path, value)
        return value

    def _adopt_slice(self, raw: slice, path: Path) -> Any:
        """Adopt a slice whose bounds are objects or tensors, which C code reads when it is used."""
        entry = self.entries.get(id(raw))
        if entry is None:
            self.note(prims.check_type, path, slice)
            names = ("start", "stop", "step")
            bounds = [self.adopt(getattr(raw, name), path.step("attribute", name)) for name in names]
            entry = self.track(raw, path, slice(*bounds))
        elif entry.path is not path:
            self.note(prims.check_same_object, path, entry.path)
        return entry.value

    def _adopt_bytes(self, raw: Any, path: Path) -> Any:
        """Adopt a bytearray or an array, whose bytes are a fact, or a view of all bytes of an object."""
        if type(raw) is memoryview:
            for name in ("readonly", "format", "shape", "strides"):
                self.note(prims.check_literal_like, path.step("attribute", name), getattr(raw, name))
            view = memoryview(self.adopt(raw.obj, path.step("attribute", "obj")))
            view = view.toreadonly() if raw.readonly else view
            self.track(raw, path, view)
            return view
        shadow = Shadow.of(raw, path)
        if type(raw) is array.array:
            self.note(prims.check_literal_like, path.step("attribute", "typecode"), raw.typecode)
            self.note(prims.check_state, path.step("attribute", "tobytes"), raw.tobytes())
        else:
            self.note(prims.check_literal_like, path, bytearray(raw))
        self.track(raw, path, shadow.copy)
        self.shadows.append(shadow)
        return shadow.copy

    def _adopt_method(self, raw: types.MethodType, path: Path) -> types.MethodType:
        method = types.MethodType(
            self.adopt(raw.__func__, path.step("attribute", "__func__")),
            self.adopt(raw.__self__, path.step("attribute", "__self__")),
        )
        self.track(raw, path, method)
        return method

    def _adopt_partial(self, raw: functools.partial[Any], path: Path) -> Any:
        func = self.adopt(raw.func, path.step("attribute", "func"))
        args = self.adopt(raw.args, path.step("attribute", "args"))
        keywords = self.adopt(raw.keywords, path.step("attribute", "keywords"))
        value = functools.partial(func, *args, **keywords)
        if raw.__reduce__()[2][3] is not None:
            vars(value)  # a partial of one that has a __dict__ has it as its func: the two are not merged
        self.track(raw, path, value)
        return value

    def forget(self) -> None:
        """Release the user's objects, when the program has been traced."""
        self.entries.clear()
        self.shadows.clear()
        self.counts.clear()
        self.item_overlays.clear()
        self.python_keyed.clear()
        self.unread.clear()


#: types of functions that Cython and f2py make
_FUNCTIONS_IN_C = frozenset({"cython_function_or_method", "fused_cython_function", "fortran"})


def _is_known_by_identity(raw: Any) -> bool:
    return (
        is_numpy_function(raw)
        or is_numpy_generator(raw)
        or is_of_pydantic(raw)
        or type(raw).__name__ in _FUNCTIONS_IN_C
    )


def describe(value: Any) -> str:
    """Return an object in words."""
    return f"an object of type {type(value).__qualname__}"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


#: what a container has beside its items
_PARTS: dict[type, tuple[str, ...]] = {deque: ("maxlen",), defaultdict: ("default_factory",)}
_LEAF_CHECKS: dict[type, Check] = {
    int: prims.check_number_type_and_value,
    str: prims.check_string_value,
    slice: prims.check_slice_value,
    bool: prims.check_same_object,
    type(None): prims.check_same_object,
    type(...): prims.check_same_object,
    torch.dtype: prims.check_same_object,
}
