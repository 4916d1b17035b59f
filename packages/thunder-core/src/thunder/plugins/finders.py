"""The errors for names under `thunder` that no installed distribution provides.

    import thunder.dynamo
    PluginNotInstalledError: no installed package provides 'thunder.dynamo'.
    Install a package that provides thunder.dynamo: a backend of torch.compile.

Two finders of the import system raise them: the first on `sys.meta_path` for documented paths, and for
packages that do not fit this core; the last for modules that no other finder finds. The last one also makes
the modules of the table of names (`thunder.base.public_names`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any, Final

from thunder.base.errors import PluginNotInstalledError, did_you_mean
from thunder.base.public_names import (
    Alias,
    declared_names,
    declares_module,
    missing_name,
    name_reason,
    where_it_is,
)
from thunder.plugins.compatibility import require_fit
from thunder.plugins.contributions import transform_names
from thunder.plugins.manager import get_manager
from thunder.plugins.not_installed import DOCUMENTED, names_hint, not_installed_hint

__all__ = ["NotFoundFinder", "NotInstalledFinder", "install_finders", "missing_attribute"]

TRANSFORMS: Final = "thunder.transforms"


def _error(path: str) -> PluginNotInstalledError:
    return PluginNotInstalledError(
        f"no installed package provides {path!r}.",
        distribution=DOCUMENTED[path].distribution or f"a package that provides {path}",
        hint=not_installed_hint(path),
    )


class NotInstalledFinder:
    """First on `sys.meta_path`: raises the errors for paths of packages, and leaves all others alone.

    It is first, because a directory that an uninstalled package left behind would otherwise be imported as an
    empty namespace package.
    """

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a documented module.

        Raises PluginNotInstalledError if its distribution is not installed, IncompatiblePackage if that does
        not fit this core; so for modules `thunder_x` of a distribution `thunder-x`.
        """
        package = fullname.partition(".")[0]
        if package.startswith("thunder_") and not _is_find_spec_query():
            require_fit(package.replace("_", "-"))
        if fullname not in DOCUMENTED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            distribution = DOCUMENTED[fullname].distribution
            if distribution is not None and not _is_find_spec_query():
                require_fit(distribution)
            return spec
        if _is_find_spec_query():
            return None
        raise _error(fullname)


class NotFoundFinder:
    """Last on `sys.meta_path`: makes modules of the table of names, and raises the error for others."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of the table of names, and None for modules outside thunder.

        Raises ModuleNotFoundError for others.
        """
        if not fullname.startswith("thunder."):
            return None
        if declares_module(fullname):
            return ModuleSpec(fullname, _LoaderOfNames(), is_package=True)
        if _is_find_spec_query():
            return None
        # Without name=: importlib replaces an error that is named after the module, and `from thunder import
        # nope` would say no more than "cannot import name".
        package, _, name = fullname.rpartition(".")
        if name.startswith("_"):  # `__import__(module, fromlist=["_"])` asks for the module itself
            return None
        text = name_reason(package, name) or _not_provided_message(fullname, where_it_is(package, name))
        raise ModuleNotFoundError(text)


class _LoaderOfNames(Loader):
    """Makes a module whose names are in the table alone."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: an ordinary module is made."""

    def exec_module(self, module: ModuleType) -> None:
        """Let the module look its names up in the table."""
        path = module.__name__
        module.__doc__ = "Names that a package adds."
        names = declared_names(path)
        module.__all__ = [name for name, meaning in names.items() if isinstance(meaning, Alias)]  # type: ignore[attr-defined]
        module.__getattr__ = partial(missing_name, path)  # type: ignore[method-assign]


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


def missing_attribute(module: str, name: str) -> Any:
    """Return the declared meaning of `module.name`, as the end of a module's `__getattr__`.

    Raises AttributeError for a name without one, with what to install, where the name is, or the plugins.
    """
    return missing_name(module, name, _absent_text)


def _absent_text(path: str) -> str:
    if path in DOCUMENTED:
        return str(_error(path))
    return _not_provided_message(path, where_it_is(*path.rsplit(".", 1)))


def _not_provided_message(path: str, place: str = "") -> str:
    manager = get_manager()
    package, _, name = path.rpartition(".")
    lines = [f"no installed plugin provides {path!r}.{place}"]
    if package == TRANSFORMS:
        names = transform_names(manager)
        lines[0] += did_you_mean(name, names)
        lines.append(f"  registered transforms:  {', '.join(names) or 'none'}")
    lines.append(f"  installed plugins:  {', '.join(info.name for info in manager.list_plugins())}")
    lines.append(names_hint(info.name for info in manager.loaded()))
    return "\n".join(lines)
