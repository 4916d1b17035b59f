"""The first compile of a usual program imports nothing that takes long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_first_compiles_of_usual_programs_import_no_compiler_of_torch() -> None:
    program = Path(__file__).with_name("first_imports.py")
    env = {**os.environ, "THUNDER_PLUGIN_AUTOLOAD": "0"}
    process = subprocess.run(
        [sys.executable, str(program)], env=env, capture_output=True, text=True, check=True
    )
    answer = json.loads(process.stdout)
    assert answer["before"] == []
    assert len(answer["by"]) > 100
    assert {name: modules for name, modules in answer["by"].items() if modules} == {}
