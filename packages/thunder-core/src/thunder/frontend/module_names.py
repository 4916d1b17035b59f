"""The names of a program's modules: `layers.3.attention`, `model.layers.3`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CellType
from typing import Any

import torch

from thunder.base.provenance import ABSENT, MEMBER_DICTS, STEPS, Path, cell_content, lookup_type
from thunder.frontend.value_names import parameter_names

#: the attributes through which a bound method and a `functools.partial` reach what they call
_CALLED = frozenset({"__self__", "func"})


def module_of_method(frame: Any) -> torch.nn.Module | None:
    """Return the module whose method runs in an interpreted frame, or None."""
    receiver = frame.fast[0] if frame.code.co_argcount else None
    if type(receiver) is CellType:  # a function inside of the method uses it
        receiver = cell_content(receiver)
    if not issubclass(type(receiver), torch.nn.Module):  # runs nothing of the receiver's class
        return None
    # a function of a module may be a hook: the module that calls it is outside
    return None if lookup_type(type(receiver), frame.code.co_name) is ABSENT else receiver


class ModuleNames:
    """Names the modules of one program.

    The name of a part of the compiled module is that of `named_modules()`: `layers.3.attention`, and "" for
    the module itself. Any other module has the name by which the program reaches it: `model.layers.3`, where
    `model` is a parameter, a variable or a global of the program.
    """

    def __init__(self, fn: Callable[..., Any] | None, path_of: Callable[[Any], Path | None]) -> None:
        self._fn, self._path_of = fn, path_of
        self._known: dict[Path, str] = {}

    def running(self, frames: Sequence[Any]) -> str:
        """Return the name of the module whose method runs innermost, or "".

        A module that the program itself has made has no name: that of the one around it is returned.
        """
        for frame in reversed(frames):
            receiver = module_of_method(frame)
            path = None if receiver is None else self._path_of(receiver)
            if path is not None:
                return self.name(path)
        return ""

    def name(self, path: Path) -> str:
        """Return the name of the object that a path leads to."""
        name = self._known.get(path)
        if name is None:
            name = self._known[path] = self._name(path)
        return name

    def forget(self) -> None:
        """Release the paths, which hold objects of the program."""
        self._known.clear()

    @functools.cached_property
    def _parameters(self) -> list[str]:
        return [] if self._fn is None else parameter_names(self._fn)

    def _name(self, path: Path) -> str:
        key, parent = path.key, path.parent
        if self._is_called(path) and isinstance(path.fetch({}), torch.nn.Module):
            return ""
        if parent is None:
            return str(key)
        if parent.parent is None and parent.root_object is ABSENT:  # an argument
            if parent.key == "args" and path.kind == "index" and key < len(self._parameters):
                return str(self._parameters[key])
            return str(key) if parent.key == "kwargs" else path.source
        if key == "__self__" and self._is_called(path):
            return "self"
        if parent.kind == "instance" and parent.key in MEMBER_DICTS and parent.parent is not None:
            return f"{self.name(parent.parent)}.{key}".removeprefix(".")
        return STEPS[path.kind].source(self.name(parent), key).removeprefix(".")

    def _is_called(self, path: Path) -> bool:
        """Return whether a path leads to the compiled callable, or to what it calls."""
        if path.parent is None:
            return path.root_object is self._fn
        return path.key in _CALLED and self._is_called(path.parent)
