"""Why an edited program is not used: it is wrong, or it was written for another entry."""

from __future__ import annotations

import re
from typing import Final

from thunder.core.entries import BoundSymbol, ThunderError
from thunder.core.errors import TraceTextError, UserError

__all__ = [
    "EditedProgramError",
    "EditedProgramWarning",
    "OtherSignature",
    "not_editable",
    "of_text",
    "refusal",
]


class EditedProgramError(UserError, ValueError):
    """An edited program is wrong: its text, its metadata, or what it computes."""


class EditedProgramWarning(UserWarning):
    """A program was compiled for which an edited one was given that is for other inputs."""


class OtherSignature(Exception):
    """An edited program is for other inputs than those of an entry; the text says in what they differ."""


def refusal(asked: str, text: str, statement: str | BoundSymbol, **found: object) -> EditedProgramError:
    """Return the error for a statement of a text, with its line: a call, or how the line begins."""
    hint = "docs/edited_programs.md says what may be edited."
    return EditedProgramError(asked, found={"line": _place(text, statement), **found}, hint=hint)


def not_editable(reason: str) -> EditedProgramError:
    """Return the error for a program of which no text can be edited."""
    return EditedProgramError(
        f"the program cannot be edited: {reason}",
        hint="docs/edited_programs.md has the list; dynamic_sizes and cache= are options of thunder.jit.",
    )


_NAME: Final = re.compile(r"[^\W\d]\w*")


def _place(text: str, statement: str | BoundSymbol) -> str:
    """Return the number and the text of the line of a statement; that of the function without one."""
    lines = [(n, line.strip()) for n, line in enumerate(text.split("\n"), 1)]
    lines = [(n, line) for n, line in lines if line and not line.startswith("#")]
    if isinstance(statement, str):
        begins = [(n, line) for n, line in lines if line.startswith(statement.strip())]
    else:
        results = {p.name for p in statement.flat_proxy_outs}
        bound = [(n, line, _NAME.findall(line.partition(" = ")[0])) for n, line in lines if " = " in line]
        begins = [(n, line) for n, line, names in bound if results.intersection(names)]
        call = statement.line.strip().partition("  #")[0]
        begins = [(n, line) for n, line in begins or lines if line.startswith(call)] or begins
    number, line = next(iter(begins), next((p for p in lines if p[1].startswith("def ")), (1, "")))
    return f"{number}   {line[:120]}"


def of_text(error: ThunderError, path: str) -> EditedProgramError:
    """Return the error for a text that is not that of a program."""
    if not isinstance(error, TraceTextError):
        return EditedProgramError(f"{path}: {error.asked}", found=error.found, hint=error.hint)
    return EditedProgramError(f"{path} is not the text of a program\n{error}")
