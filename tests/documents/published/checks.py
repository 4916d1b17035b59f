"""What a cell of a published document shows, against what it prints here: a check for each kind of output."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from documents.published.structure import Printed, Statement, printed, wording

__all__ = ["CHECKS"]

#: (what is shown, what is printed, the text of the last value) → what differs, empty if nothing does
Check = Callable[[str, str, str], str]


def _different(name: str, shown: object, found: object) -> str:
    return "" if shown == found else f"{name}: shown {shown!r}, found {found!r}"


def same_text(shown: str, output: str, value: str) -> str:
    """The text, but for blanks."""
    return _different("text", " ".join(shown.split()), " ".join((output + value).split()))


def same_words(shown: str, output: str, value: str) -> str:
    """The text, but for blanks, numbers, addresses and units of time."""
    shown, found = (
        re.sub(r"0x\w+|\b[mu]s\b", "#", text) for text in (shown, f"{output} {value}")
    )  # before numbers, which are parts of addresses
    return _different("words", wording(shown), wording(found))


def same_trace(shown: str, output: str, value: str) -> str:
    """The whole trace, after the words that are printed before it."""
    words, _, trace = shown.partition("# Constructed by")
    return _different("words", wording(words), wording(output)) or _same_part(
        printed(trace), printed(value), {*Printed.__annotations__}
    )


def same_beginning(shown: str, output: str, value: str) -> str:
    """Arguments, their types and the first statements, of which the last is shown in part."""
    begun, found = printed(shown), printed(value)
    count = len(begun.statements) - 1
    cut = [replace(trace, statements=trace.statements[:count]) for trace in (begun, found)]
    return _same_part(*cut, {"name", "arguments", "types", "statements"})


def _same_part(shown: Printed, found: Printed, names: set[str]) -> str:
    parts = [_different(name, getattr(shown, name), getattr(found, name)) for name in sorted(names)]
    return "\n".join(part for part in parts if part)


def same_embedding(shown: str, output: str, value: str) -> str:
    """As many inputs, whose names the document does not have, and the first operator of a Llama."""
    inputs = re.findall(r"^  t\d+, \\$", shown, re.MULTILINE)
    found = printed(value)
    (embedding,) = (s for s in found.statements if s.operator == "torch.nn.functional.embedding")
    first = printed(shown).statements[0]
    return (
        _different("inputs", len(inputs), len(found.arguments.split(", ")))
        or _different("operator", first.operator, embedding.operator)
        or _different("constants", _constants(first), _constants(embedding))
        or _different("types", _type(first), _type(embedding))
    )


def same_backward(shown: str, output: str, value: str) -> str:
    """The operators but for those that clear lists, their whole numbers and types, and the result."""
    texts = [printed(text) for text in (shown, value)]
    (ours, theirs) = (
        [
            (
                s.operator,
                len(s.arguments.split(", ")),
                [a for a in s.arguments.split(", ") if a.isdigit()],
                _type(s),
            )
            for s in text.statements
            if not s.operator.startswith("clear_")
        ]
        for text in texts
    )
    return _different("statements", ours, theirs) or _same_part(*texts, {"name", "arguments", "returned"})


def same_calls(shown: str, output: str, value: str) -> str:
    """The lines of a list that are calls: operator, number of results, and constants."""
    return _different("calls", *(_operators(text) for text in (shown, value)))


def _operators(text: str) -> list[tuple[str, ...]]:
    return re.findall(r"\(\w+, (\(_, _, _\))\) = (\w+)\(\w+, (t_\w+), ([\w.-]+)\)", text)


def _constants(statement: Statement) -> list[str]:
    return [a for a in statement.arguments.split(", ") if not re.fullmatch(r"(?!None|True|False)[a-z]\w*", a)]


def _type(statement: Statement) -> str:
    return statement.types.partition(": ")[2]


def names_its_executor(shown: str, output: str, value: str) -> str:
    """The name of the executor, within its class."""
    return _different("executor", f"thunder.extend.OperatorExecutor({shown.strip()!r})", value)


def same_file(shown: str, output: str, value: str) -> str:
    """The name of the file that is written, which was there before where the document was made."""
    return _different("file", shown.split()[1:], output.split()[1:])


def newer_model(shown: str, output: str, value: str) -> str:
    """The modules, of which litgpt has renamed one and added others that do nothing."""
    added = re.sub(r"^ +\(\w+\): Identity\(\)\n", "", value, flags=re.MULTILINE)
    return same_text(shown, "", added.replace("(qkv): Linear", "(attn): Linear"))


def offloaded_after_the_last_use(shown: str, output: str, value: str) -> str:
    """Each tensor is copied as it is shown, deleted right after it, and not used later."""
    copy = re.compile(r'^ *offloaded_(\w+) = offload_to_cpu\(\1\) +# offloaded_\1: "cpu \w+\[[\d, ]+\]"$')
    return _moved(
        shown, value, copy, lambda name, before, after: f"del {name}" != after[0].strip()
    ) or _moved(shown, value, copy, lambda name, before, after: _uses(name, after[1:-1]))


def loaded_before_the_first_use(shown: str, output: str, value: str) -> str:
    """Each tensor is copied back as it is shown, and not used earlier."""
    load = re.compile(
        r"""^ *(\w+) = load_to_gpu\(offloaded_\1, '\w+(?::0)?'\) +# \1: "\w+(?::0)? \w+\[[\d, ]+\]"$"""
    )
    return _moved(shown, value, load, lambda name, before, after: _uses(name, before))


def _moved(
    shown: str, value: str, pattern: re.Pattern[str], wrong: Callable[[str, list[str], list[str]], Any]
) -> str:
    lines = value.splitlines()
    found = [(i, m[1]) for i, line in enumerate(lines) if (m := pattern.match(line))]
    expected = [m[1] for line in shown.splitlines() if (m := pattern.match(re.sub(r" +# ", "  # ", line)))]
    bad = [name for i, name in found if wrong(name, lines[:i], lines[i + 1 :])]
    bad += [n for i, n in found if lines[i - 1].strip() != "# Created by CPU Offloading Transform"]
    return (
        "" if len(found) > len(expected) > 0 and not bad else f"{len(found)} tensors are moved, wrong: {bad}"
    )


def _uses(name: str, lines: list[str]) -> bool:
    calls = [line.partition("#")[0] for line in lines if "return" not in line and not line.startswith("def ")]
    return any(
        re.search(rf"[(\s]{name}[,)]", re.sub(r" = cotangents.*| = C\d.*", "", call)) for call in calls
    )


CHECKS: Final[dict[tuple[str, str], Check]] = {
    ("000", "2"): same_text,
    ("000", "4"): same_text,
    ("000", "5"): same_words,
    ("000", "6"): same_beginning,
    ("000", "7"): newer_model,
    ("000", "8"): same_words,
    ("000", "9"): same_embedding,
    ("000", "10"): same_words,
    ("000", "11"): same_words,
    ("000", "14"): same_file,
    ("000", "16"): names_its_executor,
    ("000", "19"): same_trace,
    ("000", "23"): same_trace,
    ("000", "24"): same_words,
    ("000", "25"): same_calls,
    ("000", "27"): same_words,
    ("000", "29"): same_backward,
    ("001", "plain"): same_trace,
    ("001", "the quantised trace"): same_trace,
    ("003", "13"): same_words,
    ("003", "the forward"): offloaded_after_the_last_use,
    ("003", "the backward"): loaded_before_the_first_use,
    ("003", "14"): same_words,
    ("003", "15"): same_words,
    ("003", "16"): same_words,
}
"""The check of each cell that shows something."""
