"""The declared place of an operator in autocast: ``autocast=`` of a registration."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from thunder.base.errors import RegistrationError, did_you_mean

#: what autocast does with the floating-point arguments of an operator, apart from float64
AutocastWord = Literal["inherit", "lower", "fp32", "promote"]
#: ``autocast=`` of a registration; None: nothing
AutocastDeclaration = AutocastWord | None

#: the default: what autocast does with the functions that the operator replaces, or is defined like
INHERIT: Final = "inherit"

_WORDS: Final = get_args(AutocastWord)


def check_autocast(operator_id: str, declaration: Any) -> None:
    """Raise RegistrationError for a word that is not a declaration."""
    if declaration is None or (isinstance(declaration, str) and declaration in _WORDS):
        return
    raise RegistrationError(
        f"operator {operator_id!r} has autocast={declaration!r}.{did_you_mean(str(declaration), _WORDS)}",
        found={"allowed": f"{', '.join(map(repr, _WORDS))}, None"},
        hint="'lower' casts to autocast's dtype, 'fp32' to float32, 'promote' to the widest dtype among the "
        "arguments; None casts nothing; 'inherit' does what autocast does with the replaced function.",
    )
