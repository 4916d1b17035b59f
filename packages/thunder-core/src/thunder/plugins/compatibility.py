"""Whether installed packages fit each other: the versions that they require, and the version of the hooks.

This is the one place that decides it. The manager asks before it imports a plugin, the finder of imports for
`thunder.x` and `thunder_x`, `python -m thunder doctor` for all packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Final, NamedTuple

from thunder.__about__ import __version__
from thunder.base.errors import IncompatiblePackage
from thunder.plugins.markers import HOOK_API_VERSION

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["CORE", "Misfit", "api_misfit", "package_misfit", "require_fit", "requirement_fault"]

CORE: Final = "thunder-core"
#: core, and packages named as plugins are; whether others fit is a matter of installers
_RELATED: Final = re.compile(r"\s*thunder[-_.]", re.IGNORECASE)

#: operators of a specifier (PEP 440) that an older version does not meet
_LOWER: Final = frozenset({">=", ">", "==", "===", "~="})


class Misfit(NamedTuple):
    """Why a package does not fit what is installed, and which of the two to upgrade."""

    reason: str
    remedy: str


def api_misfit(plugin: object, package: str | None = None) -> Misfit | None:
    """Return why a plugin's hook API version does not fit, or None.

    The first number must equal core's, the second must not be greater than core's.
    """
    api = getattr(plugin, "THUNDER_PLUGIN_API", (1, 0))
    if not (isinstance(api, tuple) and len(api) == 2 and all(type(n) is int for n in api)):
        reason = f"THUNDER_PLUGIN_API is {api!r}, and should be a pair of numbers such as {HOOK_API_VERSION}"
        return Misfit(reason, f"Correct {package or 'it'}")
    if api[0] == HOOK_API_VERSION[0] and api[1] <= HOOK_API_VERSION[1]:
        return None
    offered = ".".join(map(str, HOOK_API_VERSION))
    reason = f"wants hook API {api[0]}.{api[1]}, and {CORE} {__version__} has {offered}"
    upgraded = CORE if api > HOOK_API_VERSION else package
    return Misfit(reason, _upgrade(upgraded) if upgraded else "Change it for these hooks")


def package_misfit(
    name: str, requirements: Iterable[str], version_of: Callable[[str], str | None] | None = None
) -> Misfit | None:
    """Return why a package does not fit core or another package of thunder that it requires, or None.

    pip can leave such environments behind (`--no-deps`, editable installs), in which an old package would
    fail late. `version_of` returns the version of an installed distribution.
    """
    related = [text for text in requirements if _RELATED.match(text)]
    for required, of, version, is_old in _unmet(related, version_of or _installed_version):
        remedy = _upgrade(f"'{of}{required.specifier}'" if is_old else name)
        return Misfit(f"requires {of}{required.specifier}, and {of} {version} is installed", remedy)
    return None


def requirement_fault(
    requirements: Iterable[str], version: str = __version__, *, of: str = CORE
) -> str | None:
    """Return why a distribution's requirement of `of` is not met by `version`, or None."""
    for required, name, found, _ in _unmet(requirements, {of: version}.get):
        return f"requires {name}{required.specifier}, and {name} {found} is installed"
    return None


def require_fit(name: str) -> None:
    """Raise IncompatiblePackage if an installed distribution does not fit core, or a package it requires."""
    misfit = _misfit_of_installed(name)
    if misfit is not None:
        source = f"{name} {_installed_version(name)}"
        raise IncompatiblePackage(f"{source} {misfit.reason}.", hint=f"{misfit.remedy}.")


@cache  # the finder asks for each module of a package
def _misfit_of_installed(name: str) -> Misfit | None:
    try:
        requirements = distribution(name).requires or ()
    except PackageNotFoundError:  # it runs from a source tree
        return None
    return package_misfit(name, requirements)


def _installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None; core's is that of the module that runs."""
    if name == CORE:
        return __version__
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def _unmet(
    requirements: Iterable[str], version_of: Callable[[str], str | None]
) -> Iterator[tuple[Requirement, str, str, bool]]:
    """Yield each requirement that is not met, with name and version, and whether the version is too old.

    A requirement whose marker does not hold here (PEP 508) is ignored.
    """
    # Only plugins that are installed need it, and importing it takes longer than the rest of this package.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    for text in requirements:
        try:
            required = Requirement(text)
        except InvalidRequirement:  # metadata older than PEP 508, which installers refuse
            continue
        name = canonicalize_name(required.name)
        version = version_of(name)
        if version is None or required.specifier.contains(version, prereleases=True):
            continue
        if required.marker is None or required.marker.evaluate():
            bounds = [item.version for item in required.specifier if item.operator in _LOWER]
            is_old = any(Version(version) < Version(bound.removesuffix(".*")) for bound in bounds)
            yield required, name, version, is_old


def _upgrade(what: str) -> str:
    return f"Upgrade with: pip install --upgrade {what}"
