"""The tables of operations are complete, and decoding is right about jumps, lines and exception tables."""

from __future__ import annotations

import argparse
import ast
import asyncio
import dataclasses
import dis
import enum
import inspect
import opcode
import re
import subprocess
import sys
import types
import typing

import pytest

from interpreter.differential import SOURCE
from thunder.base.python_versions import SUPPORTED
from thunder.interpreter import decode, interpret
from thunder.interpreter.handlers import control
from thunder.interpreter.opcode_tables import TABLE, TABLES

MODULES = [argparse, ast, asyncio.tasks, dataclasses, enum, inspect, re, typing]


def code_objects(module: types.ModuleType) -> list[types.CodeType]:
    """Every code object in the source of a module."""
    with open(module.__file__, encoding="utf-8") as file:
        found = [compile(file.read(), module.__file__, "exec")]
    for code in found:
        found += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return found


def test_every_operation_of_the_running_version_is_in_its_table():
    in_code = {
        name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")
    }
    assert in_code - set(TABLE) == set()
    assert set(TABLE) - in_code == set(), "the table names operations that this version lacks"


def test_there_is_a_table_for_each_supported_version():
    assert list(TABLES) == list(SUPPORTED) == [(3, 11), (3, 12), (3, 13), (3, 14)]


def test_operators_that_a_later_version_numbers_do_not_change_the_tables():
    later = ", ".join(map(repr, [*opcode._nb_ops, ("NB_SUBSCR", "[]")]))
    program = f"""
import opcode, sys
sys.path[:0] = {[str(SOURCE)]!r}
sys.modules |= {{name: type(sys)(name) for name in ("thunder",)}}
sys.modules["thunder"].__path__ = [{str(SOURCE / "thunder")!r}]
opcode._nb_ops = [{later}]
from thunder.interpreter import interpret
print(interpret(lambda a, b: (a + b, a[0]))([1], [2]))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("([1, 2], 1)\n", "")


def test_an_operation_that_exists_at_run_time_only_is_refused():
    with pytest.raises(AssertionError, match="no code object contains"):
        control.NEVER_IN_CODE(None, [], None)


def test_no_specialised_or_instrumented_operation_is_in_code_that_has_run():
    def hot(n):
        total = 0
        for i in range(n):
            total += [i, n][i % 2]
        return total

    for _ in range(100):
        hot(50)
    events = []
    sys.settrace(lambda frame, event, arg: events.append(event) or None)
    try:
        hot(5)
    finally:
        sys.settrace(None)
    assert events
    raw = hot.__code__.co_code
    names = {opcode.opname[raw[i]] for i in range(0, len(raw), 2)}
    assert names <= set(TABLE) | {"CACHE"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_jumps_are_those_that_dis_shows(module: types.ModuleType):
    compared = 0
    for code in code_objects(module):
        decoded = decode.decode(code)
        at = {offset: index for index, offset in enumerate(decoded.offsets)}
        for instruction in dis.get_instructions(code):
            row = TABLE[instruction.opname]
            if row.kind is not decode.ArgumentKind.JUMP or instruction.opname == "FOR_ITER":
                continue
            _, target = decoded.instructions[at[instruction.offset]]
            # An operation that is dropped stands for the next one that is not.
            expected = min(offset for offset in decoded.offsets if offset >= instruction.argval)
            assert decoded.offsets[target] == expected, (code, instruction)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_lines_are_those_of_the_code_object(module: types.ModuleType):
    for code in code_objects(module):
        decoded = decode.decode(code)
        lines = {}
        for start, end, line in code.co_lines():
            lines.update(dict.fromkeys(range(start, end, 2), line))
        for index, offset in enumerate(decoded.offsets):
            if lines[offset] is not None:
                assert decoded.line(index) == lines[offset]


def test_exception_table_is_the_one_that_dis_parses():
    for code in code_objects(dataclasses) + code_objects(asyncio.tasks):
        ours = [
            (2 * a, 2 * b, 2 * t, d, push)
            for a, b, t, d, push in decode.parse_exception_table(code.co_exceptiontable)
        ]
        theirs = [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]
        assert ours == theirs


def test_code_is_decoded_once():
    def f():
        return 1

    assert decode.decode(f.__code__) is decode.decode(f.__code__)


def test_code_that_is_being_measured_by_a_profiler_is_interpreted_alike():
    def f(n):
        return [i * 2 for i in range(n) if i]

    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        result = interpret(f)(4)
    finally:
        sys.setprofile(None)
    assert result == [2, 4, 6]
    assert seen
