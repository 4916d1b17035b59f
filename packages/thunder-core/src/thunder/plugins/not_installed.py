"""The error for documented names whose package is not installed.

    import thunder.distributed   →   PluginNotInstalledError: 'thunder.distributed' is part of
    'thunder-distributed', …

This is the one place in core that knows first-party distributions by name.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from types import FrameType, ModuleType
from typing import Final

from thunder.core.errors import PluginNotInstalledError
from thunder.plugins.markers import ENTRY_POINT_GROUP

__all__ = [
    "DOCUMENTED",
    "FIRST_PARTY",
    "NotInstalledFinder",
    "NothingElseFinder",
    "install_finders",
    "missing_attribute",
]

DOCUMENTED: Final[dict[str, str]] = {
    "thunder.distributed": "thunder-distributed",
    "thunder.dynamo": "thunder-inductor",
    "thunder.benchmarks": "thunder-benchmarks",
    "thunder.tests": "thunder-benchmarks",
    "thunder.executors.nvfuserex": "thunder-nvfuser",
    "thunder.executors.torch_compile": "thunder-inductor",
    "thunder.executors.transformer_engineex": "thunder-te",
    "thunder.executors.tritonex": "thunder-triton",
    "thunder.transforms.quantization": "thunder-bnb",
    "thunder.transforms.materialization": "thunder-transforms",
    "thunder.transforms.cudagraph": "thunder-transforms",
    "thunder.transforms.autocast": "thunder-transforms",
    "thunder.transforms.MaterializationTransform": "thunder-transforms",
    "thunder.transforms.CUDAGraphTransform": "thunder-transforms",
}
"""Documented path → the distribution that provides it."""

FIRST_PARTY: Final = frozenset(DOCUMENTED.values())


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
        # Named after the module, so that `from thunder import nope` says "cannot import name" as for any
        # package.
        raise ModuleNotFoundError(_nobody_provides(fullname), name=fullname)


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
    distribution = DOCUMENTED.get(path)
    text = _nobody_provides(path) if distribution is None else str(_error(path, distribution))
    return AttributeError(text, name=name)


def _nobody_provides(path: str) -> str:
    installed = ", ".join(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})) or "none"
    return (
        f"no installed plugin provides {path!r}.\n"
        f"  installed plugins:  {installed}\n"
        "Plugins are packages named thunder-<name>."
    )
