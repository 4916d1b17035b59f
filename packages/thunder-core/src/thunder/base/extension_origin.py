"""The origin of an extension, for errors: the package to upgrade or the module to correct."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.metadata import Distribution, distribution, entry_points, packages_distributions
from typing import Final

__all__ = ["ENTRY_POINT_GROUP", "is_of_core", "module_of", "origin_of"]

ENTRY_POINT_GROUP: Final = "thunder.plugins"


def origin_of(what: object) -> str:
    """Return the origin of a function, class, object or module (by name), in words.

    `"thunder-acme 0.3.1, thunder_acme.kernels"`, or `"module notebook"` if no distribution contains it.
    """
    module = module_of(what)
    owner = _distribution_of(module)
    return f"module {module}" if owner is None else f"{owner}, {module}"


def module_of(what: object) -> str:
    """Return the name of the module that defines a function, a class or an object's type."""
    while isinstance(what, partial):
        what = what.func
    module = what if isinstance(what, str) else getattr(what, "__module__", None)
    return module if isinstance(module, str) else type(what).__module__


def is_of_core(what: object) -> bool:
    """Return whether a function, class, object or module (by name) is a part of thunder-core."""
    return module_of(what).startswith("thunder.")


@lru_cache(maxsize=128)
def _distribution_of(module: str) -> str | None:
    """Return the name and version of the distribution that contains a module, or None."""
    top = module.partition(".")[0]
    # An editable installation lists its entry points, and not its modules.
    plugins = [
        e.dist for e in entry_points(group=ENTRY_POINT_GROUP) if e.value.split(":")[0].split(".")[0] == top
    ]
    owners = [d for d in plugins if d is not None] + [
        distribution(n) for n in packages_distributions().get(top, ())
    ]
    owner = next((d for d in owners if _has(d, module)), owners[0] if owners else None)
    return None if owner is None else f"{owner.name} {owner.version}"


def _has(owner: Distribution, module: str) -> bool:
    """Return whether a distribution contains a module: several may share one package."""
    stem = module.replace(".", "/")
    return any(str(file) in (f"{stem}.py", f"{stem}/__init__.py") for file in owner.files or ())
