"""A decision: a question about data, and the answer that a trace is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder.base.errors import Location
from thunder.ops.prims.decision_checks import QUESTIONS

__all__ = ["Decision"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision of a program, in the order in which they are made.

    ``question`` is a key of ``QUESTIONS``, ``operands`` the text of what it is about, ``answer`` the value
    that the rest of the program depends on.
    """

    question: str
    operands: str
    answer: Any
    where: Location | None = None
    #: the place of a size that the computation can find in place of the decision (Note [Computed sizes])
    size_place: str | None = None

    def __post_init__(self) -> None:
        assert self.question in QUESTIONS, "a question has a function that answers it"

    @property
    def place(self) -> str:
        """The line that asks, such as ``decision at model.py:41``."""
        return "decision" if self.where is None else f"decision at {self.where.file}:{self.where.line}"

    @property
    def question_text(self) -> str:
        """The place and the question, such as ``decision at model.py:41: bool(mask)``."""
        return f"{self.place}: {self.question}({self.operands})"

    def __str__(self) -> str:
        return f"{self.question_text} is {self.answer!r}"
