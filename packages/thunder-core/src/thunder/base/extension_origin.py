"""Where an extension comes from, so that an error names the package to upgrade or the module to correct."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.metadata import Distribution, distribution, entry_points, packages_distributions
from typing import Final

__all__ = ["ENTRY_POINT_GROUP", "module_of", "origin_of"]

ENTRY_POINT_GROUP: Final = "thunder.plugins"


def origin_of(what: object) -> str:
    """Where a function, a class, an object or a module (by its name) comes from, in words:
    `"thunder-acme 0.3.1, thunder_acme.kernels"`, or `"module notebook"` if no distribution installed it.
    """
    module = module_of(what)
    found = _distribution_of(module)
    return f"module {module}" if found is None else f"{found}, {module}"


def module_of(what: object) -> str:
    """The name of the module that a function, a class or an object comes from."""
    while isinstance(what, partial):
        what = what.func
    module = what if isinstance(what, str) else getattr(what, "__module__", None)
    return module if isinstance(module, str) else type(what).__module__


@lru_cache(maxsize=128)
def _distribution_of(module: str) -> str | None:
    """Name and version of the distribution that a module belongs to."""
    top = module.partition(".")[0]
    # What is installed in place, for development, lists its entry points and not its modules.
    plugins = [
        e.dist for e in entry_points(group=ENTRY_POINT_GROUP) if e.value.split(":")[0].split(".")[0] == top
    ]
    owners = [d for d in plugins if d is not None] + [
        distribution(n) for n in packages_distributions().get(top, ())
    ]
    found = next((d for d in owners if _has(d, module)), owners[0] if owners else None)
    return None if found is None else f"{found.name} {found.version}"


def _has(found: Distribution, module: str) -> bool:
    """Whether a distribution brings a module: several may have a part of one package."""
    stem = module.replace(".", "/")
    return any(str(file) in (f"{stem}.py", f"{stem}/__init__.py") for file in found.files or ())
