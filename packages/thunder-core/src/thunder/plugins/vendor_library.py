"""A vendor's library that a package calls, and that is not installed with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import ExecutorUnavailable
from thunder.plugins.planned_device import is_device_assumed
from thunder.plugins.specs import Unavailable, load_target

__all__ = ["VendorLibrary"]


@dataclass(frozen=True)
class VendorLibrary:
    """A library that a package needs to run, and not to be imported.

    Attributes:
        name: its name in errors.
        missing: returns why it cannot be used here, with what to do about it, or None.
        install: returns the command that installs it.
    """

    name: str
    missing: Callable[[], str | None]
    install: Callable[[], str]

    def module(self, path: str) -> Any:
        """Import and return a module of the library.

        Raises ExecutorUnavailable, with the command that installs it, if it is missing or cannot be imported.
        """
        reason = self.missing()
        if reason is not None:
            raise ExecutorUnavailable(f"{self.name} cannot be used here", hint=reason)
        try:
            return load_target(path)
        except (ImportError, OSError, RuntimeError) as error:
            raise ExecutorUnavailable(
                f"{path} cannot be imported: {error}", hint=f"Install it again: {self.install()}"
            ) from error

    def executor(self, target: str) -> Any:
        """Return the executor at `"module:attribute"`, or an Unavailable that says why it cannot be used.

        A plan for a CUDA device runs nothing: it needs the package and not the library.
        """
        reason = self.missing()
        if reason is not None and not is_device_assumed("cuda"):
            return Unavailable(reason, lacks_device=True)
        return load_target(target)
