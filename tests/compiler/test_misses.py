"""What calls that miss become: entries, reasons and runs by Python are as they are recorded."""

import pytest

from compiler.miss_programs import PROGRAMS, RECORD, describe
from sweeping import one_in


def _recorded() -> dict[str, list[str]]:
    programs: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in RECORD.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            lines = programs.setdefault(line, [])
        else:
            lines.append(line)
    return programs


@pytest.mark.parametrize("name", one_in(3, list(PROGRAMS)))
def test_a_program_misses_as_recorded(name: str):
    assert list(describe(name)) == _recorded()[name]


def test_each_program_is_recorded():
    assert list(_recorded()) == list(PROGRAMS)
