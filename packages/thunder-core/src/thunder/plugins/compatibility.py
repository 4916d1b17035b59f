"""Whether a plugin fits this core: the version of its hooks, and what its distribution requires."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

from thunder.__about__ import __version__
from thunder.plugins.markers import HOOK_API_VERSION

__all__ = ["api_fault", "requirement_fault"]

CORE = "thunder-core"


def api_fault(plugin: object) -> str | None:
    """Why the plugin's hooks do not fit, or None: the first number must match, the second be no greater than
    core's.
    """
    wanted = getattr(plugin, "THUNDER_PLUGIN_API", (1, 0))
    if not (isinstance(wanted, tuple) and len(wanted) == 2 and all(type(n) is int for n in wanted)):
        return f"THUNDER_PLUGIN_API is {wanted!r}, and should be a pair of numbers such as {HOOK_API_VERSION}"
    if wanted[0] != HOOK_API_VERSION[0] or wanted[1] > HOOK_API_VERSION[1]:
        found = ".".join(map(str, HOOK_API_VERSION))
        return f"wants hook API {wanted[0]}.{wanted[1]}, and {CORE} {__version__} has {found}"
    return None


def requirement_fault(
    requirements: Iterable[str], version: str = __version__, *, of: str = CORE
) -> str | None:
    """Why a distribution's requirement of another one (of core, if not said) is not met, or None.

    pip lets such environments come about, and an old plugin would fail somewhere in the middle.
    """
    for requirement in requirements:
        # "thunder-core<0.2,>=0.1", with brackets in old metadata; a marker (after ";") restricts it to some
        # environments
        match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\[[^]]*\])?\s*\(?([^;()]*)\)?\s*(;.*)?", requirement)
        if match is None or match[3] or re.sub(r"[-_.]+", "-", match[1]).lower() != of:
            continue
        if not all(_satisfies(version, clause.strip()) for clause in match[2].split(",") if clause.strip()):
            return f"requires {of}{match[2].strip()}, and {of} {version} is installed"
    return None


def _satisfies(version: str, clause: str) -> bool:
    """One clause of a version specifier (PEP 440), compared by release numbers; others count as met."""
    match = re.fullmatch(r"(===|==|~=|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?.*", clause)
    if match is None:
        return True
    operator, wanted, star = match[1], _release(match[2]), match[3]
    order = _compare(_release(version), wanted)
    prefix = _release(version)[: len(wanted)] == wanted
    match operator:
        case "==" | "===":
            return prefix if star else order == 0
        case "!=":
            return not prefix if star else order != 0
        case "~=":
            return order >= 0 and _release(version)[: len(wanted) - 1] == wanted[:-1]
        case "<":
            return order < 0
        case "<=":
            return order <= 0
        case ">":
            return order > 0
        case _:
            return order >= 0


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(n) for n in match[1].split(".")) if match is not None else ()


def _compare(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for x, y in zip_longest(a, b, fillvalue=0):
        if x != y:
            return -1 if x < y else 1
    return 0
