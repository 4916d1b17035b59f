"""A forked process is as one that Python begins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from new_processes import run_python

PROGRAM = """
import json, os, sys
print(json.dumps([
    sys.argv, sys.path, dict(os.environ), os.getcwd(), __name__, sys.stdin.read(),
    vars(sys.modules["__main__"])["json"] is json,
    sorted(name for name in sys.modules if name.partition(".")[0] in ("thunder", "pytest", "pluggy")),
]))
print("to stderr", file=sys.stderr)
raise SystemExit(3)
"""


def as_begun(*arguments: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the same in a process that Python begins."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [("-c", PROGRAM, "a"), ("-m", "told", "a"), ("told.py", "a")], ids=len)
def test_a_fork_sees_what_a_new_process_sees(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(PROGRAM, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "x"), "y"]), "SOME": "thing"}
    new, fork = (
        as_begun(*arguments, cwd=tmp_path, env=env),
        run_python(*arguments, cwd=tmp_path, env=env),
    )
    assert (fork.returncode, fork.stderr) == (new.returncode, new.stderr) == (3, "to stderr\n")
    for mine, other in zip(json.loads(fork.stdout), json.loads(new.stdout), strict=True):
        assert mine == other


def test_an_exception_is_printed_and_is_a_failure() -> None:
    done = run_python("-c", "1 / 0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
        run_python("-c", "1 / 0", check=True)


def test_a_signal_is_a_negative_status_and_ends_no_other_process() -> None:
    assert run_python("-c", "import os; os.abort()").returncode < 0
    assert run_python("-c", "print(1)").stdout == "1\n"


def test_torch_is_there_and_what_an_earlier_fork_did_is_not() -> None:
    program = "import sys, torch; print(hasattr(torch, 'mark'), 'torch' in sys.modules); torch.mark = 1"
    assert [run_python("-c", program).stdout for _ in range(2)] == ["False True\n"] * 2


def test_warnings_are_filtered_as_the_arguments_say() -> None:
    program = "import warnings; warnings.warn('seen')"
    assert "seen" in run_python("-c", program).stderr
    assert run_python("-W", "ignore", "-c", program).stderr == ""


def test_a_variable_that_would_have_no_effect_is_an_error() -> None:
    with pytest.raises(ValueError, match="PYTHONHASHSEED has no effect in a fork"):
        run_python("-c", "", env={**os.environ, "PYTHONHASHSEED": "another"})
