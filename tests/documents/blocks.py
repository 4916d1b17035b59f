"""Reads the code blocks of a markdown document and runs them as a reader would."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from dataclasses import dataclass
from pathlib import Path

import workspace_plugins

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


#: what the tests disable: plugins, and executors of plugins
_DISABLED = "|".join((*workspace_plugins.NAMES, "transformer_engine", "fp8_reference"))


@dataclass(frozen=True)
class Example:
    """A `python` block, and what it prints by the `text` block that follows it, or None without one."""

    source: str
    output: str | None


def examples(document: Path) -> list[Example]:
    """The Python blocks of a document, in order."""
    blocks = FENCE.findall(document.read_text(encoding="utf-8"))
    return [
        Example(source, after if kind == "text" else None)
        for (language, source), (kind, after) in zip(blocks, [*blocks[1:], ("", "")], strict=False)
        if language == "python"
    ]


def run(document: Path) -> list[tuple[Example, str]]:
    """Runs the examples of a document one after the other in one namespace, and returns what each printed.

    Each block is a file `example.py`: a source line that a trace quotes is numbered within its own block.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    results = []
    for example in examples(document):
        linecache.cache["example.py"] = (
            len(example.source),
            None,
            example.source.splitlines(True),
            "example.py",
        )
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(example.source, "example.py", "exec"), namespace)
        results.append((example, printed.getvalue()))
    return results


def comparable(text: str) -> str:
    """The text without what differs from run to run or between environments, and without blanks at line ends.

    These are times, and the lines of a ledger on packages that the tests disable.
    """
    text = re.sub(r"\(took \d+ milliseconds\)", "(took N milliseconds)", text)
    text = re.sub(rf"^not in this compile: (?:{_DISABLED}):.*\n?", "", text, flags=re.MULTILINE)
    named = r"^(?:not in this compile|cannot be used here): .* \(why_not\(name\) has the reason\)\n?"
    text = re.sub(named, "", text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
