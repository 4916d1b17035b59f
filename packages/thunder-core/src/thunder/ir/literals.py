"""Python values in the text of a trace, and the names that the text needs for them.

A value prints as a literal if Python has one, else as a call of its type (dataclasses, namedtuples), else as
a name that is bound in the context of the text.
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
from typing import Any

import torch

from thunder.base import devices, dtypes
from thunder.base.pytree import registered_node
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
        self, taken: frozenset[str] | set[str] = frozenset(), names: dict[int, str] | None = None
    ) -> None:
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
    for name, value in (x.objects or {}).items():
        names.obj(name, value)
    return x.text


def _slice(x: slice, names: Names) -> str:
    return f"slice({_items((x.start, x.stop, x.step), names)})"


def _plain(x: Any, names: Names) -> str:
    return repr(x)


#: exact type → text; other values are printed by structure, or as a name bound in the context
_LITERALS: dict[type, Callable[[Any, Names], str]] = {
    type(None): _plain,
    bool: _plain,
    int: _plain,
    float: lambda x, names: _float(x),
    complex: lambda x, names: f"complex({_float(x.real)}, {_float(x.imag)})",
    str: _plain,
    bytes: _plain,
    type(...): lambda x, names: "...",
    slice: _slice,
    range: _plain,
    tuple: _tuple,
    list: lambda x, names: f"[{_items(x, names)}]",
    dict: _dict,
    OrderedDict: _ordered_dict,
    defaultdict: _defaultdict,
    deque: _deque,
    set: _set,
    frozenset: lambda x, names: f"frozenset({_set(x, names) if x else ''})",
    torch.Size: lambda x, names: f"torch.Size({list(x)!r})",
    torch.dtype: _plain,
    torch.layout: _plain,
    torch.memory_format: _plain,
    torch.device: lambda x, names: f'torch.device("{x}")',
    Constant: lambda x, names: names.obj(readable_name(x.value), x.value),
    Expression: _expression,
    dtypes.dtype: lambda x, names: names.module("dtypes", f"dtypes.{x.name}"),
    devices.Device: lambda x, names: names.module("devices", f'devices.Device("{x.device_str()}")'),
}


def value_text(x: Any, names: Names) -> str:
    """Return the text of a value in a statement."""
    if isinstance(x, TensorProxy):
        return x.name
    if isinstance(x, Proxy):
        names.modules.update(x.modules)
        return x.name
    printer = _LITERALS.get(type(x))
    return printer(x, names) if printer is not None else _structured(x, names)


def _structured(x: Any, names: Names) -> str:
    """Return the text of a value without literal: a call of its type, else a bound name."""
    if isinstance(x, enum.Enum):
        return names.fresh(x, re.sub(r"\W", "_", f"{type(x).__name__}_{x.name}"))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return f"{_constructor(x, names)}({_fields(x, x._fields, names)})"
    if (
        isinstance(x, tuple) and type(x).__module__ == "torch.return_types"
    ):  # a type of C without names of fields
        return f"{names.path(f'torch.return_types.{type(x).__name__}')}([{_items(x, names)}])"
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = dataclasses.fields(x)
        # a field that `__init__` does not take cannot be written, and `__post_init__` would change the others
        if all(f.init for f in fields) and not hasattr(x, "__post_init__"):
            return f"{_constructor(x, names)}({_fields(x, [f.name for f in fields], names)})"
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
