"""The catalogue of misuse, M1 to M81: where each case is tested, or which package it waits for."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

_ERRORS = "frontend/test_errors.py"
_UNSUPPORTED = "frontend/test_unsupported.py"
_CALLING = "errors/test_calling.py"
_PROGRAMS = "errors/test_programs.py"
_EXTENDING = "errors/test_extending.py"

#: case → the files whose tests bear its number, the first one judging what the catalogue says of the message
TESTED: Mapping[int, tuple[str, ...]] = {
    **dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 8), (_ERRORS,)),
    9: (_CALLING,),
    10: (_ERRORS, "extend/test_registry.py"),
    **dict.fromkeys((11, 12), (_ERRORS,)),
    13: (_ERRORS, "base/test_options.py"),
    **dict.fromkeys((14, 15, 16, 17), (_ERRORS,)),
    18: ("frontend/test_nested.py",),
    19: ("frontend/test_arguments.py",),
    20: (_CALLING,),
    21: ("frontend/test_compiled_callables.py",),
    **dict.fromkeys((22, 23, 24), (_ERRORS,)),
    25: (_CALLING, "plugins/test_contributions.py"),
    26: (_CALLING,),
    **dict.fromkeys((27, 28, 29, 30), (_UNSUPPORTED,)),
    31: (_UNSUPPORTED,),
    **dict.fromkeys((32, 33, 34, 35, 36, 37), (_UNSUPPORTED,)),
    38: (_PROGRAMS,),
    39: (_UNSUPPORTED,),
    **dict.fromkeys((40, 41), (_PROGRAMS,)),
    **dict.fromkeys((42, 43), (_UNSUPPORTED,)),
    **dict.fromkeys((44, 45, 46), (_PROGRAMS,)),
    47: (_PROGRAMS, _UNSUPPORTED),
    **dict.fromkeys((48, 49), (_UNSUPPORTED,)),
    **dict.fromkeys((50, 51), ("frontend/test_modes.py",)),
    52: (_ERRORS, _EXTENDING, "extend/test_operators.py"),
    53: (_ERRORS, "extend/test_operators.py"),
    54: ("extend/test_operators.py", "extend/test_registry.py", _EXTENDING),
    **dict.fromkeys((55, 56), (_EXTENDING, "extend/test_operators.py")),
    57: (_EXTENDING,),
    58: (_EXTENDING, "extend/test_operators.py"),
    **dict.fromkeys((59, 60, 61, 62, 63, 64, 65, 66), (_EXTENDING,)),
    67: (_EXTENDING, "extend/test_fusion.py"),
    68: (_CALLING,),
    69: (_EXTENDING,),
    **dict.fromkeys((70, 71), ("frontend/test_overrides.py",)),
    **dict.fromkeys((72, 74), (_CALLING,)),
    76: ("plugins/test_not_installed.py",),
}

#: case → the package that it is about, whose tests it will be among
AWAITED: Mapping[int, str] = {
    73: "thunder-transforms",
    75: "thunder-bnb",
    **dict.fromkeys((77, 78, 79, 80, 81), "thunder-distributed"),
}


def numbers_in(file: Path) -> set[int]:
    """The cases that the tests of a file are about, by the names of test functions and the keys of tables."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names.add(node.name.removeprefix("test_"))
        if isinstance(node, ast.Dict):
            names.update(
                k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)
            )
    found = (re.match(r"[mM](\d+)(?![0-9a-zA-Z])", name.replace("_", "-")) for name in names)
    return {int(match[1]) for match in found if match is not None}
