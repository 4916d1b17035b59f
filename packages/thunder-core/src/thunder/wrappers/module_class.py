"""Classes of compiled modules: one for each class of modules, with the attributes of that class.

``type(compiled).size``     →   ``Net.size``
``type(compiled)(width=4)`` →   ``Net(width=4)``, which is not compiled
``{Net: f}[type(compiled)]`` →  ``f``

Python looks special methods up on the class, so a compiled module cannot be an instance of the user's class
itself. Methods of a compiled module run on the compiled module, and may ask for the class of ``self``.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

_own_attribute = type.__getattribute__


class ModuleClass(type):
    """The class of classes of compiled modules.

    A class that was made by :func:`class_for` reads, writes and deletes attributes of the user's class, is
    equal to it, and creates its instances. It does not keep the user's class alive.
    """

    def __getattribute__(cls, name: str) -> Any:
        user = user_class(cls)
        if user is None:
            return _own_attribute(cls, name)
        if name == "__signature__":  # else inspect would take that of __call__ below
            return inspect.signature(user)
        try:
            return getattr(user, name)
        except AttributeError:
            return _own_attribute(cls, name)  # an attribute that compiled modules add

    def __setattr__(cls, name: str, value: Any) -> None:
        user = user_class(cls)
        type.__setattr__(cls, name, value) if user is None else setattr(user, name, value)

    def __delattr__(cls, name: str) -> None:
        user = user_class(cls)
        type.__delattr__(cls, name) if user is None else delattr(user, name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        user = user_class(cls)
        return type.__call__(cls, *args, **kwargs) if user is None else user(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        user = user_class(cls)
        return type.__instancecheck__(cls, instance) if user is None else isinstance(instance, user)

    def __subclasscheck__(cls, subclass: type) -> bool:
        user = user_class(cls)
        return type.__subclasscheck__(cls, subclass) if user is None else issubclass(subclass, user)

    def __eq__(cls, other: object) -> bool:
        return _judged(cls) is _judged(other)

    def __hash__(cls) -> int:
        user = user_class(cls)
        return type.__hash__(cls) if user is None else hash(user)


def user_class(cls: ModuleClass) -> type | None:
    """Return the class of the user's modules, or None for the base class of compiled modules."""
    reference: Callable[[], type | None] | None = _own_attribute(cls, "_thunder_class")
    return None if reference is None else reference()


def _judged(cls: object) -> object:
    return (user_class(cls) or cls) if type(cls) is ModuleClass else cls


_classes: weakref.WeakKeyDictionary[type, ModuleClass] = weakref.WeakKeyDictionary()


def class_for(user: type, base: ModuleClass, namespace: dict[str, Any]) -> ModuleClass:
    """Return the class of compiled modules of a class, with these special methods."""
    cls = _classes.get(user)
    if cls is None or _own_attribute(cls, "_thunder_specials") != frozenset(namespace):
        names = {"__slots__": (), "__module__": user.__module__, "__qualname__": user.__qualname__}
        own = {"_thunder_class": weakref.ref(user), "_thunder_specials": frozenset(namespace)}
        cls = _classes[user] = ModuleClass(user.__name__, (base,), {**namespace, **names, **own})
    return cls
