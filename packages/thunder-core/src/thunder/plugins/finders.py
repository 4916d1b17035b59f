"""The errors for names under `thunder` that no installed distribution provides.

    import thunder.acme
    PluginNotInstalledError: 'thunder.acme' is part of 'thunder-acme', which is not installed.
    Install it with: pip install thunder-acme

Two finders of the import system raise them: the first on `sys.meta_path` for documented paths, the last for
modules that no other finder finds.
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

__all__ = ["NotFoundFinder", "NotInstalledFinder", "install_finders", "missing_attribute"]

TRANSFORMS: Final = "thunder.transforms"


def _error(path: str, distribution: str) -> PluginNotInstalledError:
    return PluginNotInstalledError(
        f"{path!r} is part of {distribution!r}, which is not installed.",
        distribution=distribution,
        hint=f"Install it with: pip install {distribution}",
    )


class NotInstalledFinder:
    """First on `sys.meta_path`: raises the error for documented paths, and leaves all others alone.

    It is first, because a directory that an uninstalled package left behind would otherwise be imported as an
    empty namespace package.
    """

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a documented module.

        Raises PluginNotInstalledError if its distribution is not installed.
        """
        distribution = DOCUMENTED.get(fullname)
        if distribution is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            return spec
        if _is_find_spec_query():
            return None
        raise _error(fullname, distribution)


class NotFoundFinder:
    """Last on `sys.meta_path`: raises the error for a module of thunder that no finder found."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for modules outside thunder; raise ModuleNotFoundError for others."""
        if not fullname.startswith("thunder.") or _is_find_spec_query():
            return None
        # Without name=: importlib replaces an error that is named after the module, and `from thunder import
        # nope` would say no more than "cannot import name".
        raise ModuleNotFoundError(_not_provided_message(fullname))


def _is_find_spec_query() -> bool:
    """Return whether the caller is `importlib.util.find_spec`, which must get None and not an error.

    The frames above are the finder, importlib's loop over finders, and the caller of that loop.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return frame is not None and frame.f_globals.get("__name__") == "importlib.util"


def install_finders() -> None:
    """Install the two finders; a second call has no effect."""
    if NotInstalledFinder not in sys.meta_path:
        sys.meta_path.insert(0, NotInstalledFinder)
    if NotFoundFinder not in sys.meta_path:
        sys.meta_path.append(NotFoundFinder)


def missing_attribute(module: str, name: str) -> AttributeError:
    """Return the AttributeError for `module.name`, to be raised at the end of a module's `__getattr__`."""
    path = f"{module}.{name}"
    if name.startswith("__"):  # looked up by Python's own tools; no plugin need be loaded
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    distribution = DOCUMENTED.get(path)
    text = _not_provided_message(path) if distribution is None else str(_error(path, distribution))
    return AttributeError(text, name=name)


def _not_provided_message(path: str) -> str:
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
