"""What thunder-core holds, and that it needs no other package of this tree."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from architecture.layers import folder_of
from architecture.source import CORE, Module, modules_of_core
from new_processes import run_python

#: folder, or file directly under `thunder` → the most lines that it may have. A folder that reaches its limit
#: has a new subject: one that a package can have, by the hooks that any package uses, does not belong here.
MOST_LINES = {
    "__about__": 10,
    "__init__": 210,
    "__main__": 60,
    "authoring": 220,
    "autograd": 3_905,
    "base": 5_690,
    "batching": 400,
    "commands": 560,
    "compiler": 7_060,
    "core": 650,
    "examine": 370,
    "executor_base": 2_580,
    "executors": 200,
    "extend": 915,
    "frontend": 35_500,
    "interpreter": 7_325,
    "ir": 9_740,
    "ops": 9_380,
    "passes": 5_440,
    "plugins": 2_490,
    "polyfills": 450,
    "recipes": 400,
    "torch": 19_700,
    "transforms": 30,
    "wrappers": 1_950,
}


def lines_of_folders(core: dict[str, Module]) -> Counter[str]:
    lines: Counter[str] = Counter()
    for name, module in core.items():
        lines[folder_of(name)] += len(module.path.read_text(encoding="utf-8").splitlines())
    return lines


def test_core_has_these_folders_and_no_others() -> None:
    assert set(lines_of_folders(modules_of_core())) == set(MOST_LINES)


@pytest.mark.parametrize("folder", MOST_LINES)
def test_a_folder_stays_within_its_lines(folder: str) -> None:
    assert lines_of_folders(modules_of_core())[folder] <= MOST_LINES[folder]


PROGRAM = """
import sys
from pathlib import Path

core = Path(sys.argv[1])
sys.path[:] = [entry for entry in sys.path if Path(entry) == core or not Path(entry, "thunder").is_dir()]
import torch
import thunder
from thunder.__main__ import main

model = torch.nn.Linear(3, 2)
compiled = thunder.jit(model)
x = torch.randn(4, 3)
torch.testing.assert_close(compiled(x), model(x))
compiled(x).sum().backward()
assert model.weight.grad is not None
assert "linear" in str(thunder.explain(compiled))
assert main(["plugins"]) == 0
files = {name: str(getattr(module, "__file__", core)) for name, module in sys.modules.items()}
others = [name for name, file in files.items() if name.startswith("thunder.") and str(core) not in file]
others += [name for name in files if name.startswith("thunder_")]
assert others == [], others
for module, name in ((thunder, "testing"), (thunder, "distributed"), (thunder.core, "patterns")):
    assert not hasattr(module, name), name
try:
    from thunder.core.patterns import Pattern
except ImportError as error:
    assert "pip install thunder-transforms, which provides thunder.core.patterns" in str(error)
else:
    raise AssertionError("no package that is installed has it")
"""


def test_core_compiles_trains_and_explains_alone() -> None:
    """In a process in which no other package of this tree can be imported, and no plugin is looked for."""
    run = run_python("-c", PROGRAM, str(CORE), env=os.environ | {"THUNDER_PLUGIN_AUTOLOAD": "0"})
    assert (run.returncode, run.stderr) == (0, "")
    assert "torch" in run.stdout
