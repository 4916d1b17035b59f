"""Runs the tests of the folders beside it, each in a process: values in the interpreter, code for GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(("folder", "interpreted"), [("interpreted", "1"), ("compiled", "0")])
def test_the_tests_of_a_folder_pass(folder: str, interpreted: str, request: pytest.FixtureRequest):
    if "THUNDER_TRITON_TESTS" in os.environ:
        pytest.skip("this process runs the tests of a folder")
    variables = {"TRITON_INTERPRET": interpreted, "THUNDER_TRITON_TESTS": folder}
    sweep = ["--sweep"] if request.config.getoption("--sweep", default=False) else []
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            str(HERE / folder),
            *sweep,
        ],
        env=os.environ | variables,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
