"""The errors for names under `thunder` that nothing installed provides.

    import thunder.acme
    PluginNotInstalledError: 'thunder.acme' is part of 'thunder-acme', which is not installed.
    Install it with: pip install thunder-acme

Two finders of the import system raise them. The first knows the documented paths, the last hears of what
nobody found.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Final

from thunder.base.errors import PluginNotInstalledError, did_you_mean
from thunder.plugins.contributions import transform_names
from thunder.plugins.manager import get_manager
from thunder.plugins.not_installed import DOCUMENTED

__all__ = ["NotInstalledFinder", "NothingElseFinder", "install_finders", "missing_attribute"]

TRANSFORMS: Final = "thunder.transforms"


def _error(path: str, distribution: str) -> PluginNotInstalledError:
    return PluginNotInstalledError(
        f"{path!r} is part of {distribution!r}, which is not installed.",
        distribution=distribution,
        hint=f"Install it with: pip install {distribution}",
    )


class NotInstalledFinder:
    """Stands first on `sys.meta_path` and looks at the documented paths only; all others pass.

    It comes first, because a directory that an uninstalled package left behind would otherwise be imported as
    an empty namespace package.
    """

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a documented module, or PluginNotInstalledError if its package is absent."""
        distribution = DOCUMENTED.get(fullname)
        if distribution is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            return spec
        if _is_a_question():
            return None
        raise _error(fullname, distribution)


class NothingElseFinder:
    """Stands last on `sys.meta_path`: a module of thunder that is asked of it, nobody has."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for modules outside thunder; else ModuleNotFoundError with the installed plugins."""
        if not fullname.startswith("thunder.") or _is_a_question():
            return None
        # Without a name: importlib takes an error named after the module for its own, and `from thunder
        # import nope` would say no more than "cannot import name".
        raise ModuleNotFoundError(_nobody_provides(fullname))


def _is_a_question() -> bool:
    """Whether `importlib.util.find_spec` asks, whose answer is None and no error.

    The frames above: the finder, importlib's loop over finders, whoever started the loop.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return frame is not None and frame.f_globals.get("__name__") == "importlib.util"


def install_finders() -> None:
    """Puts the two finders in their places; a second call has no effect."""
    if NotInstalledFinder not in sys.meta_path:
        sys.meta_path.insert(0, NotInstalledFinder)
    if NothingElseFinder not in sys.meta_path:
        sys.meta_path.append(NothingElseFinder)


def missing_attribute(module: str, name: str) -> AttributeError:
    """The error for `module.name`, to be raised at the end of a module's `__getattr__`.

    An AttributeError it must be, since `hasattr` takes no other for an answer.
    """
    path = f"{module}.{name}"
    if name.startswith("__"):  # a question of Python's own tools, for which no plugin need be loaded
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    distribution = DOCUMENTED.get(path)
    text = _nobody_provides(path) if distribution is None else str(_error(path, distribution))
    return AttributeError(text, name=name)


def _nobody_provides(path: str) -> str:
    manager = get_manager()
    package, _, name = path.rpartition(".")
    lines = [f"no installed plugin provides {path!r}."]
    if package == TRANSFORMS:
        names = transform_names(manager)
        lines[0] += did_you_mean(name, names)
        lines.append(f"  registered transforms:  {', '.join(names) or 'none'}")
    lines.append(f"  installed plugins:  {', '.join(info.name for info in manager.list_plugins())}")
    lines.append("Plugins are packages named thunder-<name>.")
    return "\n".join(lines)
