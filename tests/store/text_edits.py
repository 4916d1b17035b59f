"""Edits of what a program prints, as a user makes them: statements are moved, renamed, replaced, deleted.

Each edit is a function of a text and of random numbers, which returns the edited text, or None where the
text has no place for it. Those of `LEGAL` leave what is computed; those of `ILLEGAL` do not, or are no
program.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

Edit = Callable[[str, random.Random], str | None]
_NAME = re.compile(r"[^\W\d]\w*")
_FLOAT = re.compile(r'  (\w+) = [^\n]*  # \1: "[^"]*\b(?:f32|f64)\[[^"]*"')


@dataclass
class Statement:
    """A statement with the comments above and the decomposition below it."""

    lines: list[str]

    @property
    def line(self) -> str:
        """The line that is the statement."""
        return next(line for line in self.lines if not line.lstrip().startswith("#") and line.strip())

    @property
    def code(self) -> str:
        """The statement without comments."""
        return self.line.partition("  #")[0].strip()

    @property
    def targets(self) -> set[str]:
        """The names that it binds."""
        left, equals, _ = self.code.partition(" = ")
        return set(_NAME.findall(left)) - {"_"} if equals else set()

    @property
    def reads(self) -> set[str]:
        """The names on its right-hand side."""
        return set(_NAME.findall(re.sub(r"'[^']*'", "", self.code.partition(" = ")[2] or self.code)))

    def with_code(self, code: str) -> Statement:
        """Return the statement with other code, without its decomposition and its types."""
        return Statement([f"  {code}"])


def parts(text: str) -> tuple[list[str], list[Statement]]:
    """Return the lines up to the inputs, and the statements; blocks are left out, which stages make again."""
    lines, is_inside = list[str](), False
    for line in text.split("\n"):
        is_inside = line == "  with below_autograd():" or (is_inside and line[:4].strip() == "")
        if line != "  with below_autograd():":
            lines.append(line[2:] if is_inside else line)
    first = next(i for i, line in enumerate(lines) if line.startswith("def ")) + 1
    while lines[first].startswith("  # ") and '"' in lines[first] and ': "' in lines[first]:
        first += 1
    statements: list[Statement] = []
    above: list[str] = []
    for line in lines[first:]:
        is_code = bool(line.strip()) and not line.lstrip().startswith("#")
        if is_code:
            statements.append(Statement([*above, line]))
            above = []
        elif statements and (re.match(" {4,}#", line) or (not above and re.match(r"  # \w+: \"", line))):
            statements[-1].lines.append(line)
        else:
            above.append(line)
    return lines[:first], statements


def joined(head: list[str], statements: list[Statement]) -> str:
    """Return a text."""
    return "\n".join([*head, *(line for s in statements for line in s.lines)])


def _writes(s: Statement) -> bool:
    return bool(s.targets & s.reads) or "_in_place" in s.code or "copy_" in s.code or not s.targets


def _random(s: Statement) -> bool:
    return any(word in "\n".join(s.lines) for word in ("dropout", "uniform", "bernoulli", "randn", "rand"))


def _depend(a: Statement, b: Statement) -> bool:
    shared = a.targets & (b.reads | b.targets) or b.targets & a.reads
    written = (_writes(a) or _writes(b)) and bool((a.reads | a.targets) & (b.reads | b.targets))
    return bool(shared) or written or (_writes(a) and _writes(b)) or (_random(a) and _random(b))


# -- legal ---------------------------------------------------------------------------------------------------


def reorder(text: str, rng: random.Random) -> str | None:
    """Swap neighbours that do not depend on each other, as often as there are statements."""
    head, body = parts(text)
    swapped = False
    for _ in range(2 * len(body)):
        i = rng.randrange(max(len(body) - 2, 1))
        if i + 2 < len(body) and not _depend(body[i], body[i + 1]):
            body[i], body[i + 1] = body[i + 1], body[i]
            swapped = True
    return joined(head, body) if swapped else None


def rename(text: str, rng: random.Random) -> str | None:
    """Rename a value wherever it stands."""
    head, body = parts(text)
    names = sorted({n for s in body for n in s.targets if not s.targets & s.reads})
    names = [n for n in names if not any(re.search(rf"\b{n}\b", line) for line in head)]
    if not names:
        return None
    name = rng.choice(names)
    for s in body:
        s.lines = [
            line if re.match(r"  # .*:\d+:", line) else re.sub(rf"\b{name}\b", f"own_{name}", line)
            for line in s.lines
        ]
    return joined(head, body)


def add_dead(text: str, rng: random.Random) -> str | None:
    """Compute a value that nothing reads."""
    head, body = parts(text)
    places = [i for i, s in enumerate(body) if _FLOAT.match(s.line)]
    if not places:
        return None
    i = rng.choice(places)
    body.insert(i + 1, Statement([f"  dead_value = ltorch.sin({next(iter(body[i].targets))})"]))
    return joined(head, body)


def pass_on(text: str, rng: random.Random) -> str | None:
    """Multiply a value by one before it is read."""
    head, body = parts(text)
    places = [
        i
        for i, s in enumerate(body)
        if _FLOAT.match(s.line) and not _writes(s) and "=" in s.code and i + 1 < len(body)
    ]
    if not places:
        return None
    i = rng.choice(places)
    (name,) = body[i].targets
    for s in body[i + 1 :]:
        s.lines = [
            line if re.match(r"  # .*:\d+:", line) else re.sub(rf"\b{name}\b(?! =)", f"{name}_once", line)
            for line in s.lines
        ]
    body.insert(i + 1, Statement([f"  {name}_once = ltorch.mul({name}, 1)"]))
    return joined(head, body)


#: an operator that is written otherwise: pattern of the code → what it is replaced by
_EQUAL: Final = (
    (r"(\w+) = ltorch.mul\((\w+), 2\)", r"\1 = ltorch.add(\2, \2)"),
    (r"(\w+) = ltorch.add\((\w+), (\w+), alpha=1\)", r"\1 = ltorch.add(\3, \2)"),
    (r"(\w+) = ltorch.relu\((\w+)(?:, False)?\)", r"\1 = ltorch.clamp(\2, min=0)"),
    (r"(\w+) = ltorch.mul\(([a-z]\w*), ([a-z]\w*)\)", r"\1 = ltorch.mul(\3, \2)"),
    (r"(\w+) = ltorch.sub\((\w+), ([a-z]\w*), alpha=1\)", r"\1 = ltorch.add(\2, \3, alpha=-1)"),
)


def replace_equal(text: str, rng: random.Random) -> str | None:
    """Replace a call by an equal one."""
    head, body = parts(text)
    found = [
        (i, re.sub(pattern, by, s.code))
        for i, s in enumerate(body)
        for pattern, by in _EQUAL
        if re.fullmatch(pattern, s.code)
    ]
    if not found:
        return None
    i, code = rng.choice(found)
    body[i] = body[i].with_code(code)
    return joined(head, body)


def delete_dead(text: str, rng: random.Random) -> str | None:
    """Delete a statement whose results nothing reads."""
    head, body = parts(text)
    for i, s in enumerate(body[:-1]):
        read = {n for other in body for n in other.reads}
        if s.targets and not s.targets & read and not _writes(s) and not _random(s):
            return joined(head, body[:i] + body[i + 1 :])
    return None


LEGAL: Final[Mapping[str, Edit]] = {
    "reorder": reorder,
    "rename": rename,
    "add a dead statement": add_dead,
    "pass a value on": pass_on,
    "replace by an equal call": replace_equal,
    "delete a dead statement": delete_dead,
}

# -- illegal -------------------------------------------------------------------------------------------------


def other_type(text: str, rng: random.Random) -> str | None:
    """Say another shape of a result."""
    lines = text.split("\n")
    places = [i for i, line in enumerate(lines) if re.match(r'  \w+ = .*# \w+: "\w+ \w+\[\d', line)]
    if not places:
        return None
    i = rng.choice(places)
    lines[i] = re.sub(r'(# \w+: "\w+ \w+\[)(\d)', r"\g<1>9\2", lines[i])
    return "\n".join(lines)


def missing(text: str, rng: random.Random) -> str | None:
    """Delete a statement whose result is read."""
    head, body = parts(text)
    places = [
        i
        for i, s in enumerate(body)
        if s.targets - s.reads and s.targets & {n for other in body[i + 1 :] for n in other.reads}
    ]
    if not places:
        return None
    del body[rng.choice(places)]
    return joined(head, body)


def early(text: str, rng: random.Random) -> str | None:
    """Move a statement before one whose result it reads."""
    head, body = parts(text)
    places = [
        (i, j)
        for j, s in enumerate(body[:-1])
        for i, other in enumerate(body[:j])
        if s.reads & (other.targets - other.reads) and not _writes(s)
    ]
    if not places:
        return None
    i, j = rng.choice(places)
    body.insert(i, body.pop(j))
    return joined(head, body)


def dropped(text: str, rng: random.Random) -> str | None:
    """Return a result less."""
    head, body = parts(text)
    last = body[-1]
    found = re.fullmatch(r"return \((\w+), (.*)\)", last.code)
    if found is None:
        return None
    body[-1] = last.with_code(f"return ({found[2]},)")
    return joined(head, body)


def returned_other(text: str, rng: random.Random) -> str | None:
    """Return another value."""
    head, body = parts(text)
    values = sorted({n for s in body[:-1] for n in s.targets} - body[-1].reads)
    found = re.fullmatch(r"return (\w+)", body[-1].code)
    if not values or found is None:
        return None
    body[-1] = body[-1].with_code(f"return {rng.choice(values)}")
    return joined(head, body)


def other_argument(text: str, rng: random.Random) -> str | None:
    """Call an operator on another value of the program."""
    head, body = parts(text)
    known = [n for line in head for n in re.findall(r'^  # (\w+): "', line)]
    places = []
    for i, s in enumerate(body[:-1]):
        right = s.code.partition("(")[2]
        operands = [n for n in dict.fromkeys(_NAME.findall(right)) if n in known]
        places += [(i, n, other) for n in operands for other in known if other != n]
        known += sorted(s.targets)
    if not places:
        return None
    i, name, other = rng.choice(places)
    left, paren, right = body[i].code.partition("(")
    right = re.sub(rf"\b{name}\b", other, right)
    body[i] = body[i].with_code(left + paren + right)
    return joined(head, body)


def other_constant(text: str, rng: random.Random) -> str | None:
    """Change a number of a call."""
    head, body = parts(text)
    places = [
        i
        for i, s in enumerate(body[:-1])
        if re.search(r"(?<![\w.\[])(\d+)(?![\w.\]])", s.code.partition("(")[2])
    ]
    if not places:
        return None
    i = rng.choice(places)
    left, paren, right = body[i].code.partition("(")
    body[i] = body[i].with_code(
        left + paren + re.sub(r"(?<![\w.\[])(\d+)(?![\w.\]])", lambda m: str(int(m[1]) + 1), right, count=1)
    )
    return joined(head, body)


def other_operator(text: str, rng: random.Random) -> str | None:
    """Call another operator, and leave the lines below."""
    pairs = {
        "sin": "cos",
        "mul": "add",
        "add": "mul",
        "tanh": "sigmoid",
        "relu": "tanh",
        "exp": "sin",
        "sum": "mean",
    }
    lines = text.split("\n")
    found = [
        (i, name)
        for i, line in enumerate(lines)
        for name in pairs
        if re.match(rf"  \w+ = (?:ltorch|torch)\.{name}\(", line)
    ]
    if not found:
        return None
    i, name = rng.choice(found)
    lines[i] = lines[i].replace(f"torch.{name}(", f"torch.{pairs[name]}(", 1).replace(", alpha=1", "")
    return "\n".join(lines)


def moved_write(text: str, rng: random.Random) -> str | None:
    """Move a write across what reads the same memory."""
    head, body = parts(text)
    places = [
        i
        for i, (a, b) in enumerate(pairwise(body[:-1]))
        if (_writes(a) or _writes(b)) and (a.reads | a.targets) & (b.reads | b.targets)
    ]
    if not places:
        return None
    i = rng.choice(places)
    body[i], body[i + 1] = body[i + 1], body[i]
    return joined(head, body)


def deleted_write(text: str, rng: random.Random) -> str | None:
    """Delete a write."""
    head, body = parts(text)
    places = [i for i, s in enumerate(body[:-1]) if _writes(s)]
    if not places:
        return None
    del body[rng.choice(places)]
    return joined(head, body)


ILLEGAL: Final[Mapping[str, Edit]] = {
    "another type": other_type,
    "a missing value": missing,
    "a use before the definition": early,
    "a dropped result": dropped,
    "another result": returned_other,
    "another argument": other_argument,
    "another constant": other_constant,
    "another operator": other_operator,
    "a moved write": moved_write,
    "a deleted write": deleted_write,
}
#: of these a program may compute the same, such as with a result that is not read
MAY_COMPUTE_THE_SAME: Final = frozenset(
    {
        "another argument",
        "another constant",
        "another operator",
        "a moved write",
        "another result",
        "a deleted write",
    }
)
