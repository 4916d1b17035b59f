"""The text of an edited program: its functions, and the traces that they are."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from thunder.core.entries import CacheEntry, Symbol, ThunderError, TraceCtx, operator_name, with_parts
from thunder.core.trace import dump, load
from thunder_store.edited.refusals import EditedProgramError, not_editable, of_text

__all__ = ["BACKWARD", "Definition", "definitions_of", "loaded", "read_text", "sources_of"]

#: the name of a backward in a text
BACKWARD: Final = "backward_fn"
_DEFINITION: Final = re.compile(r"def ([^\W\d]\w*)\((.*)\):")
_TYPE: Final = re.compile(r'  # ([^\W\d]\w*): "([^"]*)"')
#: what the return of a forward that saves values has, and that of no other program
_SAVES: Final = re.compile(r"  return \{.*'flat_args':")


@dataclass(frozen=True)
class Definition:
    """One function of a text; in ``text`` the lines of others are empty, so that numbers are the file's."""

    name: str
    parameters: tuple[str, ...]
    #: the types that comments give to values, by name
    types: Mapping[str, str]
    #: whether it is a forward that saves values for a backward
    saves: bool
    text: str

    @property
    def is_backward(self) -> bool:
        """Whether it is a backward: it has the name of one."""
        return self.name == BACKWARD


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file; raise EditedProgramError where there is none."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EditedProgramError(
            f"{os.fspath(path)} cannot be read",
            found={"error": error},
            hint="Write str(thunder.last_traces(compiled)[0]) to it, and edit that.",
        ) from error


def definitions_of(text: str, path: str) -> list[Definition]:
    """Return the functions of a text; raise EditedProgramError for one that has none, or one twice."""
    lines = text.split("\n")
    found = [_definition(lines, start, end) for start, end in _parts(lines)]
    names = [("backward" if d.is_backward else "computation") for d in found]
    if not found or len(set(names)) != len(names):
        raise EditedProgramError(
            f"{path} has not one computation, one backward, or both",
            found={"functions": ", ".join(d.name for d in found) or "none"},
            hint="A file has what thunder prints of one program: def computation(…):, def backward_fn(…):.",
        )
    return found


def _parts(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line and the end of each function, with the lines above it."""
    start, has_definition = 0, False
    for number, line in enumerate(lines):
        begins = bool(line.strip()) and not line.startswith(" ")
        if begins and has_definition:
            yield start, number
            start, has_definition = number, False
        has_definition |= line.startswith("def ")
    if has_definition:
        yield start, len(lines)


def _definition(lines: Sequence[str], start: int, end: int) -> Definition:
    own = lines[start:end]
    head = next((m for line in own if (m := _DEFINITION.fullmatch(line.rstrip())) is not None), None)
    name, parameters = ("", "") if head is None else head.groups()
    return Definition(
        name,
        tuple(p for p in parameters.split(", ") if p),
        {m[1]: m[2] for line in own if (m := _TYPE.match(line)) is not None},
        any(_SAVES.match(line) for line in own),
        "\n".join([*[""] * start, *own]),
    )


def sources_of(trace: TraceCtx) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the texts of a trace, what it prints and what `dump` writes, and the objects that each names."""
    printed, written = trace.python_ctx(), dump(trace)
    symbols = {name: value for name, value in written.constants.items() if isinstance(value, Symbol)}
    yield str(trace), {**written.constants, **printed, **symbols}
    yield written.text, {**printed, **written.constants}


def loaded(definition: Definition, entry: CacheEntry, path: str) -> TraceCtx:
    """Return the trace of a function, with the objects that the traces of an entry name.

    Two texts may name other objects alike: those of the text with most of the function's lines are meant.

    Raises EditedProgramError, with line, column and what was expected.
    """
    traces = entry.backward_traces if definition.is_backward else entry.computation_traces
    for trace in (traces[0], traces[-1]):
        _check_names(trace)
    sources = [source for trace in (traces[0], traces[-1]) for source in sources_of(trace)]
    lines = set(definition.text.split("\n"))
    sources.sort(key=lambda source: len(lines.intersection(source[0].split("\n"))))
    constants = {name: value for _, named in sources for name, value in named.items()}
    try:
        return load(definition.text, constants)
    except ThunderError as error:
        raise of_text(error, path) from error


def _check_names(trace: TraceCtx) -> None:
    """Raise EditedProgramError for a trace that prints an operator of its own by the name of another one."""
    by_name: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for bsym in with_parts(trace.bound_symbols):
        by_name[bsym.sym.name].setdefault(bsym.sym.id, bsym.sym)
    for name, symbols in by_name.items():
        if len(symbols) == 1:
            continue
        registered = [operator_name(symbol) for symbol in symbols.values()]
        printed = [name if known is None else known.callee for known in registered]
        if None in registered and printed.count(name) > 1:
            raise not_editable(f"two of its operators are printed as {name}")
