"""Code objects as lists of (handler, argument) pairs, made once a code object.

``co_code`` is walked directly: ``dis`` objects cost over ten times as much. Instructions that do nothing here
(caches, prefixes, markers) are dropped, so an index into the list is not an offset into ``co_code``;
``Decoded.offsets`` translates.
"""

from __future__ import annotations

import enum
import opcode
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from thunder.interpreter.tracebacks import is_interpreter_code

if TYPE_CHECKING:
    from thunder.interpreter.frame import Frame

Handler: TypeAlias = "Callable[[Frame, list[Any], Any], int | None]"

_EXTENDED_ARG: Final = opcode.opmap["EXTENDED_ARG"]


class ExceptionEntry(NamedTuple):
    """A row of the exception table; instructions ``start <= index < end`` are protected."""

    start: int
    end: int
    target: int
    depth: int
    push_offset: bool


class Decoded:
    """A decoded code object."""

    __slots__ = (
        "argument_cells",
        "cell_names",
        "code",
        "exception_table",
        "first_free",
        "instructions",
        "is_native",
        "lines",
        "localsplus",
        "offsets",
        "stub",
    )

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.localsplus = localsplus_names(code)
        self.cell_names = frozenset(code.co_cellvars) | frozenset(code.co_freevars)
        self.first_free = len(self.localsplus) - len(code.co_freevars)
        self.instructions: list[tuple[Handler, Any]] = []
        self.offsets: list[int] = []  # in bytes
        self.exception_table: list[ExceptionEntry] = []
        self.lines: tuple[list[int], list[int]] | None = None
        self.stub: FrameType | None = None
        self.is_native = is_interpreter_code(code)  # the interpreter does not interpret itself

    def operation(self, index: int) -> str:
        """CPython's name of an instruction."""
        return opcode.opname[self.code.co_code[self.offsets[index]]]

    def line(self, index: int) -> int:
        """Return the line of an instruction, or of the code object if the instruction has none."""
        if self.lines is None:
            rows = [(start, line) for start, _, line in self.code.co_lines()]
            current = self.code.co_firstlineno
            starts, lines = [], []
            for start, line in rows:
                current = current if line is None else line
                starts.append(start)
                lines.append(current)
            self.lines = (starts, lines)
        starts, lines = self.lines
        at = bisect_right(starts, self.offsets[index]) - 1
        return lines[at] if at >= 0 else self.code.co_firstlineno


def localsplus_names(code: CodeType) -> tuple[str, ...]:
    """Return local variables, other cells, and free variables, in the order of a frame."""
    own = code.co_varnames
    return own + tuple(name for name in code.co_cellvars if name not in own) + code.co_freevars


_cache: dict[int, Decoded] = {}  # by identity; an entry holds its code object, so the identity stays taken


def decode(code: CodeType) -> Decoded:
    """The decoded form of ``code``, made at the first request."""
    decoded = _cache.get(id(code))
    if decoded is None:
        decoded = _cache[id(code)] = _decode(code)
    return decoded


class Reader:
    """The parts of a code object that the rule of an operation reads."""

    __slots__ = ("code", "constants", "following", "keyword_names", "names")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.constants = code.co_consts
        self.names = code.co_names
        self.following = 0  # where the next instruction begins, caches skipped, in code units
        self.keyword_names: tuple[str, ...] | None = None  # of a preceding KW_NAMES


class ArgumentKind(enum.Enum):
    """The kind of result that the rule of an operation returns."""

    ARGUMENT = enum.auto()  # the handler's argument
    JUMP = enum.auto()  # the target of a jump, in code units
    CHOICE = enum.auto()  # another handler, and its argument
    DROPPED = enum.auto()  # nothing: the operation has no effect here


class OpcodeRow(NamedTuple):
    """An operation of one CPython version: its handler, and the rule of its argument."""

    handler: Handler
    rule: Callable[[Reader, int], Any]
    kind: ArgumentKind = ArgumentKind.ARGUMENT


class VersionTable(NamedTuple):
    """The tables to read the bytecode of one CPython version with."""

    by_opcode: list[OpcodeRow | None]
    caches: list[int]  # inline cache entries after each opcode, in code units


def _decode(code: CodeType) -> Decoded:
    table = current_table()
    by_opcode, caches = table.by_opcode, table.caches
    decoded = Decoded(code)
    reader = Reader(code)
    instructions, offsets = decoded.instructions, decoded.offsets
    raw = code.co_code
    end = len(raw) // 2
    index_at = [0] * (end + 1)  # from code units to indices
    jumps: list[int] = []
    unit = extended = 0
    while unit < end:
        op, value = raw[2 * unit], raw[2 * unit + 1] | extended
        index_at[unit] = len(instructions)
        if op == _EXTENDED_ARG:
            extended = value << 8
            unit += 1
            continue
        extended = 0
        row = by_opcode[op]
        assert row is not None, (
            f"opcode {op} ({opcode.opname[op]}) is not in the table of {sys.version_info[:2]}"
        )
        reader.following = following = unit + 1 + caches[op]
        handler, rule, kind = row
        arg = rule(reader, value)
        if kind is not ArgumentKind.DROPPED:
            if kind is ArgumentKind.CHOICE:
                handler, arg = arg
            elif kind is ArgumentKind.JUMP:
                jumps.append(len(instructions))
            instructions.append((handler, arg))
            offsets.append(2 * unit)
        unit = following
    index_at[end] = len(instructions)
    for at in jumps:
        handler, target = instructions[at]
        instructions[at] = (handler, index_at[target])
    decoded.exception_table = [
        ExceptionEntry(index_at[start], index_at[stop], index_at[target], depth, push)
        for start, stop, target, depth, push in parse_exception_table(code.co_exceptiontable)
    ]
    return decoded


def parse_exception_table(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """Return rows (start, end, target, stack depth, push offset) in code units.

    The format is that of CPython's Objects/exception_handling_notes.txt.
    """
    numbers = iter(table)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(numbers)
            value = value << 6 | first & 63
        return value

    for first in numbers:
        start = number(first)
        length = number(next(numbers))
        target = number(next(numbers))
        depth_and_push = number(next(numbers))
        yield start, start + length, target, depth_and_push >> 1, bool(depth_and_push & 1)


_table: VersionTable | None = None


def current_table() -> VersionTable:
    """Return the table of the running version, which ``opcode_tables.py`` installs."""
    assert _table is not None, "thunder.interpreter.opcode_tables installs the table when it is imported"
    return _table


def install_table(rows: dict[str, OpcodeRow]) -> None:
    """Make ``rows`` the table that :func:`decode` reads."""
    global _table
    by_opcode: list[OpcodeRow | None] = [None] * 256
    caches = [0] * 256
    for name, row in rows.items():
        number = opcode.opmap[name]
        by_opcode[number] = row
        caches[number] = _cache_entries(name, number)
    _table = VersionTable(by_opcode, caches)


def _cache_entries(name: str, number: int) -> int:
    entries = opcode._inline_cache_entries  # type: ignore[attr-defined]  # a list up to 3.12, a dictionary by name from 3.13
    count: int = entries.get(name, 0) if isinstance(entries, dict) else entries[number]
    return count
