"""The order in which rewrite rules are applied."""

from __future__ import annotations

from collections.abc import Sequence

from thunder.core.errors import RegistrationError
from thunder.plugins import PrecedenceCycle, in_precedence
from thunder_transforms.rewriting.rewrite_rules import RewriteRule

__all__ = ["ordered"]


def ordered(rules: Sequence[RewriteRule]) -> list[RewriteRule]:
    """Return the rules in the order of their `before=` and `after=`, otherwise as they are.

    Raises RegistrationError for two rules of one name, and for a cycle.
    """
    by_name: dict[str, RewriteRule] = {}
    for rule in rules:
        other = by_name.setdefault(rule.name, rule)
        if other is not rule:
            raise RegistrationError(
                f"two rewrite rules are named {rule.name!r}",
                found={"first": other.origin, "second": rule.origin},
                hint="Names are unique; a package's begin with its own: rewrite(…, name='acme.rms_norm').",
            )
    names = list(by_name)
    try:
        order = in_precedence(
            names, {n: by_name[n].before for n in names}, {n: by_name[n].after for n in names}
        )
    except PrecedenceCycle as cycle:
        raise RegistrationError(
            f"the order of rewrite rules is a cycle: {cycle}",
            found={name: f"{_constraints(by_name[name])}, {by_name[name].origin}" for name in cycle.names},
            hint="Leave out one of these before= and after=.",
        ) from None
    return [by_name[name] for name in order]


def _constraints(rule: RewriteRule) -> str:
    pairs = ("before", rule.before), ("after", rule.after)
    return ", ".join(f"{key}={list(names)}" for key, names in pairs if names)
