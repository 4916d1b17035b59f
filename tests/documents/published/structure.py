"""The structure of printed output: what two prints of one program share, whoever printed them.

In a trace these are the arguments and their types, the statements with operators, arguments and types of
results, and their decompositions; names of values count by where they appear, numbers of a text do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

#: `  # a = op(b)  # a: "cpu f32[2]"`, with or without the first `#`, the results, and the types
STATEMENT = re.compile(r"^( +)(?:# )?(?:(.+?) = )?([\w.]+)\((.*)\)(?:  # (.*?))? *$")
#: a line of the user's program, quoted above a statement
QUOTED = re.compile(r"^ *# (?:/.*|<.*)?[\w./<>-]+:\d+: ")
#: arguments that are not printed by everyone: where the default of torch is None, 1 is meant
UNIMPORTANT = re.compile(r", alpha=(?:None|1)\b")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Statement:
    """A call of a trace: its depth in the decomposition, and the other parts as text."""

    depth: int
    results: str
    operator: str
    arguments: str
    types: str


@dataclass(frozen=True)
class Printed:
    """A printed trace: the function's name, arguments and their types, statements, and deleted values."""

    name: str
    arguments: str
    types: tuple[str, ...]
    statements: tuple[Statement, ...]
    deleted: tuple[frozenset[str], ...]
    returned: str


def printed(text: str) -> Printed:
    """Return the structure of a printed trace; a text may end before the trace does.

    A value is named after the place at which it is computed, so that the names in the text do not count.
    """
    head = re.search(r"^def (\w+)\((.*)\):", text, re.MULTILINE)
    assert head is not None, f"no function in {text[:200]!r}"
    lines = [UNIMPORTANT.sub("", line.rstrip()) for line in text[head.end() :].splitlines()]
    lines = [line for line in lines if line and not QUOTED.match(line)]
    lines = [_named_by_place(lines)(line) for line in lines]
    calls = [match for line in lines if (match := STATEMENT.match(line))]
    return Printed(
        head[1],
        head[2],
        tuple(line.strip() for line in lines if re.match(r'  # [\w.]+: "', line)),
        tuple(Statement(len(m[1]) // 2, m[2] or "", m[3], m[4], m[5] or "") for m in calls),
        tuple(frozenset(re.findall(r"\w+", line[6:])) for line in lines if line.startswith("  del ")),
        next((line[9:] for line in lines if line.startswith("  return ")), ""),
    )


def _named_by_place(lines: list[str]) -> Callable[[str], str]:
    """Return a function that renames each value that a trace computes to `value0`, `value1`, …"""
    names: dict[str, str] = {}
    for line in lines:
        call = STATEMENT.match(line)
        for name in re.findall(r"\b[a-zA-Z]\w*", call[2] or "") if call else ():
            names.setdefault(name, f"value{len(names)}")
    return lambda line: re.sub(r"[a-zA-Z_][\w.]*", lambda word: names.get(word[0], word[0]), line)


def wording(text: str) -> str:
    """Return the words of a text, with `#` for each number."""
    return re.sub(r"\[ +", "[", " ".join(NUMBER.sub("#", text).split()))
