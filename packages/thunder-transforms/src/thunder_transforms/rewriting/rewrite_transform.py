"""The stage that rewrites a program by rules, and the transform that brings rules to one compile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Final

from thunder.core.errors import InvalidArgument
from thunder.core.interpreter import make_opaque
from thunder.core.trace import TraceCtx
from thunder.core.transform import Transform
from thunder.plugins import get_manager
from thunder_transforms.rewriting.package_rules import package_rules
from thunder_transforms.rewriting.replacement import apply_rewrites
from thunder_transforms.rewriting.rewrite_rules import RewriteRule
from thunder_transforms.rewriting.rule_order import ordered

__all__ = ["Rewrites", "add_stage"]

STAGE: Final = "rewrite"


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

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage, which applies the rules of all transforms and packages."""
        add_stage(pipeline)


def add_stage(pipeline: Any) -> None:
    """Add the stage that applies the rules of a compile, unless the pipeline has it.

    A program is rewritten before it is differentiated: its gradient is that of the replacements.
    """
    if STAGE not in pipeline.names():
        pipeline.add(STAGE, _rewritten, before="autograd")


@make_opaque  # no call in it needs torch's form of a dtype: those of replacements are interpreted in `record`
def _rewritten(trace: TraceCtx, context: Any) -> TraceCtx:
    rules = _rules_of(context.transforms, {executor.name for executor in context.executors})
    rewritten, rewritings = apply_rewrites(trace, rules)
    for rewriting in rewritings:
        context.note(rewriting)
    return rewritten


def _rules_of(transforms: Iterable[Transform], executors: Collection[str]) -> list[RewriteRule]:
    """Return the rules of a compile in the order in which they are applied.

    Those of its transforms come first, then those of packages, except where rules say before or after which
    others they are applied. Rules for executors that the compile does not have are left out.
    """
    own = [rule for transform in transforms if isinstance(transform, Rewrites) for rule in transform.rules]
    rules = dict.fromkeys((*own, *package_rules(get_manager(), executors)))
    return ordered([rule for rule in rules if set(rule.executors) <= set(executors)])
