"""Each program gives under the interpreter what it gives under CPython."""

from __future__ import annotations

import pytest

from interpreter.differential import differences
from interpreter.programs.registry import Program, load_programs

PROGRAMS = load_programs()


def test_there_are_programs_of_every_family():
    assert len(PROGRAMS) >= 300
    assert len({program.family for program in PROGRAMS}) >= 20


def test_names_of_programs_are_unique():
    names = [program.name for program in PROGRAMS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_behaves_as_under_cpython(program: Program):
    assert differences(program) == []
