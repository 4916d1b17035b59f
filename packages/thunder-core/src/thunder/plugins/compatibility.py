"""Checks that an installed plugin fits this core: hook API version and requirements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from thunder.__about__ import __version__
from thunder.plugins.markers import HOOK_API_VERSION

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["api_fault", "requirement_fault"]

CORE = "thunder-core"


def api_fault(plugin: object) -> str | None:
    """Return why a plugin's hook API version does not fit, or None.

    The first number must equal core's, the second must not be greater than core's.
    """
    api = getattr(plugin, "THUNDER_PLUGIN_API", (1, 0))
    if not (isinstance(api, tuple) and len(api) == 2 and all(type(n) is int for n in api)):
        return f"THUNDER_PLUGIN_API is {api!r}, and should be a pair of numbers such as {HOOK_API_VERSION}"
    if api[0] != HOOK_API_VERSION[0] or api[1] > HOOK_API_VERSION[1]:
        offered = ".".join(map(str, HOOK_API_VERSION))
        return f"wants hook API {api[0]}.{api[1]}, and {CORE} {__version__} has {offered}"
    return None


def requirement_fault(
    requirements: Iterable[str], version: str = __version__, *, of: str = CORE
) -> str | None:
    """Return why a distribution's requirement of `of` is not met by `version`, or None.

    pip can leave such environments behind, in which an old plugin would fail late. A requirement whose marker
    does not hold here (PEP 508) is ignored.
    """
    for text in requirements:
        requirement = _parsed(text, of)
        if requirement is not None and not requirement.specifier.contains(version, prereleases=True):
            return f"requires {of}{requirement.specifier}, and {of} {version} is installed"
    return None


def _parsed(text: str, name: str) -> Requirement | None:
    """Return the requirement if it is of the distribution `name` and holds in this environment."""
    # Only plugins that are installed need it, and importing it takes longer than the rest of this package.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        requirement = Requirement(text)
    except InvalidRequirement:  # metadata older than PEP 508, which installers refuse
        return None
    if canonicalize_name(requirement.name) != name:
        return None
    return requirement if requirement.marker is None or requirement.marker.evaluate() else None
