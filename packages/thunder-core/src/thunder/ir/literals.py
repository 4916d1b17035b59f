"""Python values in the text of a trace, and the names that the text needs for them.

A value prints as a literal if Python has one, else as a call of its type (dataclasses, namedtuples), else as
a name that is bound in the context of the text. ``FORMS`` has the writing and the reading of each type.
"""

from __future__ import annotations

import dataclasses
import enum
import keyword
import math
import re
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch

from thunder.base import devices, dtypes
from thunder.base.pytree import is_unflatten, registered_node
from thunder.base.tags import OpenTag
from thunder.ir.object_names import Constant, Expression, identifier, numbered, readable_name
from thunder.ir.proxies import Proxy, TensorProxy

#: short names of modules in the text → how they are imported
MODULES = {
    "ltorch": "import thunder.torch as ltorch",
    "prims": "import thunder.core.prims as prims",
    "dtypes": "import thunder.core.dtypes as dtypes",
    "devices": "import thunder.core.devices as devices",
    "Tensor": "from torch import Tensor",
}


class Names:
    """The modules that a text imports, and the objects that it refers to by name.

    Objects are numbered in the order of their first occurrence, so that the text does not depend on what was
    printed before. `taken` are the names of the program's own values, which no object gets.
    """

    def __init__(
        self,
        taken: frozenset[str] | set[str] = frozenset(),
        names: dict[int, str] | None = None,
        *,
        for_reading: bool = False,
    ) -> None:
        #: whether the text is read again: then a value has another text than one that prints alike
        self.for_reading = for_reading
        self.modules: set[str] = set()
        self.objects: dict[str, Any] = {}
        self.targets: dict[str, Any] = {}
        self.unread: frozenset[str] | set[str] = frozenset()
        self._taken = taken
        self._names: dict[int, str] = dict(names or {})
        self._numbered = len(self._names)

    def module(self, short: str, text: str) -> str:
        """Note that the text uses a module; return the text."""
        self.modules.add(short)
        return text

    def path(self, dotted: str, target: Any = None) -> str:
        """Note that the text uses a public path, such as `torch.Tensor.to`; return its text.

        `target` is the function that the path means, if it has to be that one.
        """
        if target is not None:
            self.targets[dotted] = target
        owner, _, name = dotted.rpartition(".")
        if owner == "torch.Tensor":
            return self.module("Tensor", f"Tensor.{name}")
        while owner not in sys.modules and "." in owner:  # `torch.ops.aten` is an attribute, not a module
            owner = owner.rpartition(".")[0]
        return self.module(owner, dotted)

    def obj(self, name: str, value: Any) -> str:
        """Bind an object under `name`, or a variation of it if that is taken; return the name."""
        is_plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
        base = name if is_plain else identifier(name)
        free, n = base, 0
        while free in self._taken or self.objects.get(free, value) is not value:
            free, n = f"{base}_{n}", n + 1
        self.objects[free] = value
        return free

    def bind(self, name: str, value: Any) -> None:
        """Bind an object under the name that lines of Python have for it."""
        bound = self.objects.setdefault(name, value)
        assert bound is value, f"two objects are called {name}"

    def for_comments(self) -> Names:
        """Return the same names for text that does not run, and so neither imports nor binds."""
        return Names(self._taken, self._names)

    def fresh(self, value: Any, kind: str) -> str:
        """Return the name `_<kind>_<n>` of an object without literal form; one name per object."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = numbered(kind, self._numbered)
            self._numbered += 1
        return self.obj(name, value)


def _float(x: float) -> str:
    if math.isnan(x):
        return "float('NaN')"
    if math.isinf(x):
        return "float('inf')" if x > 0 else "-float('inf')"
    return repr(x)


def _items(x: Any, names: Names) -> str:
    return ", ".join([value_text(v, names) for v in x])


def _tuple(x: tuple[Any, ...], names: Names) -> str:
    return f"({_items(x, names)}{',' if len(x) == 1 else ''})"


def _dict(x: dict[Any, Any], names: Names) -> str:
    return "{" + ", ".join([f"{value_text(k, names)}: {value_text(v, names)}" for k, v in x.items()]) + "}"


def _set(x: Any, names: Names) -> str:
    inner = ", ".join(sorted(value_text(v, names) for v in x))  # the order of a set differs between processes
    return f"{{{inner}}}" if inner else "set()"


def _ordered_dict(x: OrderedDict[Any, Any], names: Names) -> str:
    return f"{names.obj('OrderedDict', OrderedDict)}({_dict(x, names)})"


def _defaultdict(x: defaultdict[Any, Any], names: Names) -> str:
    factory = value_text(x.default_factory, names)
    return f"{names.obj('defaultdict', defaultdict)}({factory}, {_dict(x, names)})"


def _deque(x: deque[Any], names: Names) -> str:
    return f"{names.obj('deque', deque)}([{_items(x, names)}], {x.maxlen})"


def _expression(x: Expression, names: Names) -> str:
    if names.for_reading:
        objects = None if x.objects is None else {name: Constant(o) for name, o in x.objects.items()}
        return f"Expression({_items((x.text, x.values, objects), names)})"
    for name, value in (x.objects or {}).items():
        names.obj(name, value)
    return x.text


def _constant(x: Constant, names: Names) -> str:
    name = names.obj(readable_name(x.value), x.value)
    return f"Constant({name})" if names.for_reading else name


def _read_expression(text: str, values: tuple[Any, ...], objects: dict[str, Constant] | None) -> Expression:
    named = None if objects is None else {name: o.value for name, o in objects.items()}
    return Expression(text, values, None if named is None else MappingProxyType(named))


def _slice(x: slice, names: Names) -> str:
    return f"slice({_items((x.start, x.stop, x.step), names)})"


def _plain(x: Any, names: Names) -> str:
    return repr(x)


@dataclass(frozen=True)
class Form:
    """How values of a type are written; where that is a call, its callee, and what it returns when read."""

    write: Callable[[Any, Names], str]
    callee: str = ""
    read: Callable[..., Any] | None = None


#: exact type → its form; other values are printed by structure, or as a name bound in the context
FORMS: Final[dict[type, Form]] = {
    type(None): Form(_plain),
    bool: Form(_plain),
    int: Form(_plain),
    float: Form(lambda x, names: _float(x), "float", float),
    complex: Form(lambda x, names: f"complex({_float(x.real)}, {_float(x.imag)})", "complex", complex),
    str: Form(_plain),
    bytes: Form(_plain),
    type(...): Form(lambda x, names: "..."),
    slice: Form(_slice, "slice", slice),
    range: Form(_plain, "range", range),
    tuple: Form(_tuple),
    list: Form(lambda x, names: f"[{_items(x, names)}]"),
    dict: Form(_dict),
    OrderedDict: Form(_ordered_dict, "OrderedDict", OrderedDict),
    defaultdict: Form(_defaultdict, "defaultdict", defaultdict),
    deque: Form(_deque, "deque", deque),
    set: Form(_set, "set", set),
    frozenset: Form(lambda x, names: f"frozenset({_set(x, names) if x else ''})", "frozenset", frozenset),
    torch.Size: Form(lambda x, names: f"torch.Size({list(x)!r})", "torch.Size", torch.Size),
    torch.dtype: Form(_plain),
    torch.layout: Form(_plain),
    torch.memory_format: Form(_plain),
    torch.device: Form(lambda x, names: f'torch.device("{x}")', "torch.device", torch.device),
    Constant: Form(_constant, "Constant", Constant),
    Expression: Form(_expression, "Expression", _read_expression),
    dtypes.dtype: Form(lambda x, names: names.module("dtypes", f"dtypes.{x.name}")),
    devices.Device: Form(
        lambda x, names: names.module("devices", f'devices.Device("{x.device_str()}")'),
        "devices.Device",
        devices.Device,
    ),
}

#: callee → what a call of it is
READERS: Final = {form.callee: form.read for form in FORMS.values() if form.read is not None}


def value_text(x: Any, names: Names) -> str:
    """Return the text of a value in a statement."""
    if isinstance(x, TensorProxy):
        return x.name
    if isinstance(x, Proxy):
        names.modules.update(x.modules)
        return x.name
    form = FORMS.get(type(x))
    return form.write(x, names) if form is not None else _structured(x, names)


def named_value(path: str) -> Any:
    """Return the value that has a dotted path as its text: a dtype, a layout, a tag; raise LookupError."""
    module, _, name = path.rpartition(".")
    if module == "torch":
        value = getattr(torch, name, None)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return value
    if module == "dtypes":
        return next(d for d in dtypes.all_dtypes if d.name == name) if name in _DTYPES else _refuse(path)
    tags = kinds_of_tags()
    if module in tags and name in tags[module].members:
        return tags[module].members[name]
    return _refuse(path)


def kinds_of_tags() -> dict[str, type[OpenTag]]:
    """Return the classes of tags, by name."""
    return {kind.__name__: kind for kind in OpenTag.__subclasses__()}


_DTYPES: Final = frozenset(d.name for d in dtypes.all_dtypes)


def _refuse(path: str) -> Any:
    raise LookupError(path)


def rebuilds(callee: Any) -> Callable[..., Any] | None:
    """Return the function that a call of an object in a text is: the constructor of a container, or None."""
    if isinstance(callee, type):
        is_named = issubclass(callee, tuple) and hasattr(callee, "_fields")
        return callee if is_named or _is_plain_dataclass(callee) else None
    return callee if is_unflatten(callee) else None


def _is_plain_dataclass(cls: type) -> bool:
    # a field that `__init__` does not take cannot be written, and `__post_init__` would change the others
    return dataclasses.is_dataclass(cls) and (
        all(f.init for f in dataclasses.fields(cls)) and not hasattr(cls, "__post_init__")
    )


def _structured(x: Any, names: Names) -> str:
    """Return the text of a value without literal: a call of its type, else a bound name."""
    if names.for_reading and isinstance(x, OpenTag) and type(x).members.get(x.name) is x:
        return repr(x)
    if names.for_reading and isinstance(x, OpenTag) and x.arguments:
        return f"{type(x).__name__}({_items(x.arguments, names)})"
    if isinstance(x, enum.Enum):
        return names.fresh(x, re.sub(r"\W", "_", f"{type(x).__name__}_{x.name}"))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return f"{_constructor(x, names)}({_fields(x, x._fields, names)})"
    if (
        isinstance(x, tuple) and type(x).__module__ == "torch.return_types"
    ):  # a type of C without names of fields
        return f"{names.path(f'torch.return_types.{type(x).__name__}')}([{_items(x, names)}])"
    if _is_plain_dataclass(type(x)):
        return f"{_constructor(x, names)}({_fields(x, [f.name for f in dataclasses.fields(x)], names)})"
    node = registered_node(type(x))
    if node is not None:
        children, context = node[0](x)
        rebuild = names.obj(f"rebuild_{_path_name(type(x))}", node[1])
        return f"{rebuild}({value_text(context, names)}, [{_items(children, names)}])"
    if isinstance(x, type):
        return names.obj(x.__name__, x)
    return names.fresh(x, type(x).__name__)


def _constructor(x: Any, names: Names) -> str:
    return names.obj(_path_name(type(x)), type(x))


def _path_name(cls: type) -> str:
    return f"{cls.__module__}_{cls.__qualname__}".replace(".<locals>.", "_").replace(".", "_")


def _fields(x: Any, fields: Any, names: Names) -> str:
    return ", ".join([f"{f}={value_text(getattr(x, f), names)}" for f in fields])
