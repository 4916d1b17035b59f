"""Rewrite rules of one compile, and the order of all rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar

from thunder.base.errors import InvalidArgument, RegistrationError
from thunder.base.precedence import PrecedenceCycle, in_precedence
from thunder.ir.rewrite_rules import RewriteRule
from thunder.passes.transform import Transform
from thunder.plugins.contributions import rewrite_rules
from thunder.plugins.manager import PluginManager

__all__ = ["Rewrites", "ordered", "rules_of"]


class Rewrites(Transform):
    """A transform that applies rewrite rules: `thunder.jit(model, transforms=Rewrites(rewrite(a, b)))`."""

    stateless: ClassVar[bool] = True

    def __init__(self, *rules: RewriteRule) -> None:
        for rule in rules:
            if not isinstance(rule, RewriteRule):
                raise InvalidArgument(
                    f"Rewrites takes rules, and got {rule!r}",
                    hint="rewrite(pattern, replacement) returns one.",
                )
        self.rules = rules


def rules_of(
    manager: PluginManager, transforms: Iterable[Transform], executors: Collection[str]
) -> list[RewriteRule]:
    """Return the rules of a compile in the order in which they are applied.

    Those of its transforms come first, then those of plugins, except where rules say before or after which
    others they are applied. Rules for executors that the compile does not have are left out. Raises
    RegistrationError for two rules of one name, or a cycle.
    """
    own = [rule for transform in transforms if isinstance(transform, Rewrites) for rule in transform.rules]
    rules = dict.fromkeys((*own, *rewrite_rules(manager, executors)))
    return ordered([rule for rule in rules if set(rule.executors) <= set(executors)])


def ordered(rules: Sequence[RewriteRule]) -> list[RewriteRule]:
    """Return the rules in the order of their `before=` and `after=`, otherwise as they are."""
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
    return ", ".join(f"{key}={list(value)}" for key, value in _pairs(rule) if value)


def _pairs(rule: RewriteRule) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("before", rule.before), ("after", rule.after)
