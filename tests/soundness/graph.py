"""The slots of an object: each place in it that a program can read and a test can look at or change.

Object facts (what is there) and the mutator (what else could be there) both walk the world through this one
module, so that whatever is compared is also changed, and the other way round.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

LEAVES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    slice,
    range,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    types.BuiltinFunctionType,
)

#: What a call of a module reads from the module's own dictionary. The rest is torch's book-keeping for
#: backward and state dicts, which no forward reads.
MODULE_STATE = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "training")
MODULE_BOOKKEEPING = frozenset(vars(torch.nn.Module())) - frozenset(MODULE_STATE)


@dataclass(frozen=True)
class Slot:
    """One place; `label` continues the owner's path: `[0]`, `['k']`, `.scale`."""

    label: str
    value: object
    assign: Callable[[object], None]
    remove: Callable[[], None] | None = None


def is_leaf(value: object) -> bool:
    """Whether `value` has no places of its own: numbers, strings, dtypes, sets, built-in functions."""
    return isinstance(value, (*LEAVES, set, frozenset)) and not isinstance(value, torch.Tensor)


def is_private_namespace(namespace: dict) -> bool:
    """Whether a function's globals were made for it alone, and are not those of an imported module."""
    return not any(namespace is getattr(module, "__dict__", None) for module in list(sys.modules.values()))


def is_local(function_or_class: object) -> bool:
    """Whether a factory made it, so that each world has one of its own."""
    return "<locals>" in getattr(function_or_class, "__qualname__", "")


def is_compilers(value: object) -> bool:
    """Whether the compiler made `value` for itself; in its wrapper of a module stands the user's module."""
    return type(value).__module__.partition(".")[0] == "thunder" and not isinstance(value, torch.Tensor)


def slots(owner: object, replace: Callable[[object], None]) -> Iterator[Slot]:
    """The slots of `owner`, in an order that depends on its content only.

    `replace(new)` puts another object where `owner` stands; slots of immutable owners (tuples) use it.
    """
    for test, rule in RULES:
        if test(owner):
            yield from rule(owner, replace)
            return


def _sequence(owner, replace):
    for i, value in enumerate(owner):
        yield Slot(
            f"[{i}]", value, functools.partial(owner.__setitem__, i), functools.partial(owner.__delitem__, i)
        )


def _tuple(owner, replace):
    make = owner._make if hasattr(owner, "_make") else type(owner)
    for i, value in enumerate(owner):

        def assign(new, i=i):
            replace(make((*owner[:i], new, *owner[i + 1 :])))

        yield Slot(f"[{i}]", value, assign)


def _mapping(owner, replace):
    if isinstance(owner, collections.defaultdict):
        yield Slot(
            ".default_factory", owner.default_factory, functools.partial(setattr, owner, "default_factory")
        )
    for key, value in list(owner.items()):
        yield Slot(
            f"[{key!r}]",
            value,
            functools.partial(owner.__setitem__, key),
            functools.partial(owner.__delitem__, key),
        )


def _mapping_proxy(owner, replace):
    """A read-only mapping; to change it is to replace it."""
    for key, value in owner.items():
        yield Slot(f"[{key!r}]", value, lambda new, key=key: replace({**owner, key: new}))


def _function(owner, replace):
    for name, cell in zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # a name of the enclosing function that is not bound yet
            continue
        yield Slot(f".<{name}>", value, functools.partial(setattr, cell, "cell_contents"))
    if owner.__defaults__:
        yield Slot(".__defaults__", owner.__defaults__, functools.partial(setattr, owner, "__defaults__"))
    if owner.__kwdefaults__:
        yield Slot(
            ".__kwdefaults__", owner.__kwdefaults__, functools.partial(setattr, owner, "__kwdefaults__")
        )
    if is_private_namespace(owner.__globals__):
        for slot in _mapping(owner.__globals__, replace):
            if not isinstance(slot.value, types.ModuleType) and not slot.label.startswith("['__"):
                yield Slot(f".globals(){slot.label}", slot.value, slot.assign, slot.remove)
    yield from _attributes(owner, replace)


def _method(owner, replace):
    yield Slot(".__self__", owner.__self__, lambda new: replace(types.MethodType(owner.__func__, new)))
    yield Slot(".__func__", owner.__func__, lambda new: replace(types.MethodType(new, owner.__self__)))


def _partial(owner, replace):
    yield Slot(
        ".func", owner.func, lambda new: replace(functools.partial(new, *owner.args, **owner.keywords))
    )
    yield Slot(
        ".args", owner.args, lambda new: replace(functools.partial(owner.func, *new, **owner.keywords))
    )
    yield Slot(
        ".keywords", owner.keywords, lambda new: replace(functools.partial(owner.func, *owner.args, **new))
    )


def _module(owner, replace):
    state = vars(owner)
    for name in MODULE_STATE:
        if isinstance(state.get(name), dict):
            for i, slot in enumerate(_mapping(state[name], replace)):  # hooks are numbered over the process
                label = f".{name}[{i}]" if name.endswith("hooks") else f".{slot.label[2:-2]}"
                yield Slot(label, slot.value, slot.assign, slot.remove)
    for name, value in list(state.items()):
        if name not in MODULE_BOOKKEEPING and (name == "training" or name not in MODULE_STATE):
            shadows = any(
                name in state.get(members, ()) for members in ("_parameters", "_buffers", "_modules")
            )
            yield Slot(
                f".__dict__[{name!r}]" if shadows else f".{name}",
                value,
                functools.partial(state.__setitem__, name),
                functools.partial(state.pop, name),
            )
    yield from _own_class(owner)


def _class(owner, replace):
    yield Slot(".__name__", owner.__name__, functools.partial(_rename, owner))
    for name, value in list(vars(owner).items()):
        if not name.startswith("__") and not isinstance(
            value, (types.MemberDescriptorType, types.GetSetDescriptorType)
        ):
            yield Slot(
                f".{name}",
                value,
                functools.partial(setattr, owner, name),
                functools.partial(delattr, owner, name),
            )


def _rename(owner, name):
    if isinstance(name, str):  # Python takes no other name
        owner.__name__ = name


def _wrapped(owner, replace):
    if isinstance(owner, torch.nn.Module):
        yield Slot("._model", owner._model, functools.partial(setattr, owner, "_model"))


def _attributes(owner, replace):
    """Ordinary attributes. `object.__setattr__` reaches those of frozen dataclasses too."""
    slotted = [
        name
        for cls in type(owner).__mro__
        for name in getattr(cls, "__slots__", ())
        if not name.startswith("__")
    ]
    for name in [*getattr(owner, "__dict__", {}), *slotted]:
        if hasattr(owner, name):
            yield Slot(
                f".{name}",
                getattr(owner, name),
                functools.partial(object.__setattr__, owner, name),
                functools.partial(object.__delattr__, owner, name),
            )
    yield from _own_class(owner)


def _own_class(owner):
    if is_local(type(owner)):
        yield Slot(".__class__", type(owner), functools.partial(setattr, owner, "__class__"))


def _nothing(owner, replace):
    return ()


RULES: tuple[tuple[Callable[[object], bool], Callable], ...] = (
    (is_leaf, _nothing),
    (is_compilers, _wrapped),
    (lambda x: isinstance(x, list), _sequence),
    (lambda x: isinstance(x, tuple), _tuple),
    (lambda x: isinstance(x, dict), _mapping),
    (lambda x: isinstance(x, types.MappingProxyType), _mapping_proxy),
    (lambda x: isinstance(x, types.FunctionType), _function),
    (lambda x: isinstance(x, types.MethodType), _method),
    (lambda x: isinstance(x, functools.partial), _partial),
    (lambda x: isinstance(x, torch.nn.Module), _module),
    (lambda x: isinstance(x, (types.ModuleType, property, staticmethod, classmethod)), _nothing),
    (lambda x: isinstance(x, type), lambda x, replace: _class(x, replace) if is_local(x) else ()),
    (lambda x: True, _attributes),
)


def walk(root: Slot) -> Iterator[tuple[str, Slot]]:
    """Every slot reachable from `root`, depth first, with its path. An object is entered once."""
    entered: set[int] = set()
    stack = [(root.label, root)]
    while stack:
        path, slot = stack.pop()
        yield path, slot
        if is_leaf(slot.value) or id(slot.value) in entered:
            continue
        entered.add(id(slot.value))
        stack.extend(reversed([(path + child.label, child) for child in slots(slot.value, slot.assign)]))
