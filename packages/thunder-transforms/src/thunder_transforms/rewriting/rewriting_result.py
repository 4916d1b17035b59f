"""The result of a rule at one place of a program: a replacement, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder.core.errors import Location
from thunder.core.transform_common import Note
from thunder.extend import Refusal
from thunder_transforms.rewriting.rewrite_rules import RewriteRule

__all__ = ["Rewriting"]


@dataclass(frozen=True, kw_only=True)
class Rewriting(Note):
    """One place where a rule replaced `outputs`, or left them for the reason `refusal`.

    `statements` counts the statements that compute them, without casts. `source` is the user's line.
    """

    rewrite: RewriteRule
    outputs: tuple[str, ...]
    statements: int
    source: Location | None
    refusal: Refusal | None = None

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.rewrite.name

    @property
    def origin(self) -> str:
        """The package and the module of the rule, in words."""
        return self.rewrite.origin

    @property
    def is_applied(self) -> bool:
        """Whether the rule replaced the statements."""
        return self.refusal is None

    def facts(self) -> Mapping[str, Any]:
        """Return the fields, with the rule by its name, as JSON has them."""
        refusal = self.refusal
        return {
            "rule": self.rule,
            "origin": self.origin,
            "outputs": self.outputs,
            "statements": self.statements,
            "source": self.source._asdict() if self.source is not None else None,
            "refusal": None if refusal is None else {"code": refusal.code, "message": str(refusal)},
        }

    def __str__(self) -> str:
        place = f" at {self.source}" if self.source is not None else ""
        calls = "1 call" if self.statements == 1 else f"{self.statements} calls"
        what = f"{', '.join(self.outputs)} ({calls}{place}) by rule {self.rule} of {self.origin}"
        return f"rewritten: {what}" if self.refusal is None else f"not rewritten: {what}: {self.refusal}"
