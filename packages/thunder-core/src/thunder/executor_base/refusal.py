"""The reason why an executor does not run a call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["DEFINE_WITH_LIKE", "Refusal", "sentence"]

#: the hint where an operator is refused by the executor that defines it
DEFINE_WITH_LIKE: Final = (
    "Define the operator with like=, a function written with torch: it computes the calls that are refused."
)


class Refusal:
    """The reason why an executor does not run a call; falsy.

    `code` is a short word for programs, `message` a sentence for readers, `facts` the values that decided.
    """

    __slots__ = ("code", "facts", "message")

    def __init__(self, code: str, message: str, **facts: object) -> None:
        self.code = code
        self.message = message
        self.facts: Mapping[str, object] = MappingProxyType(facts)

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Refusal):
            return NotImplemented
        return (self.code, self.message, self.facts) == (other.code, other.message, other.facts)

    def __hash__(self) -> int:
        return hash((self.code, self.message))

    def __str__(self) -> str:
        return sentence(self.message, self.facts)

    def __repr__(self) -> str:
        facts = "".join(f", {name}={value!r}" for name, value in self.facts.items())
        return f"Refusal({self.code!r}, {self.message!r}{facts})"


def sentence(message: str, facts: Mapping[str, object]) -> str:
    """Return a reason as a sentence: `"takes widths that 8 divides (width=3)"`."""
    text = ", ".join(f"{name}={value!s}" for name, value in facts.items())
    return f"{message} ({text})" if text else message
