"""The programs under every supported CPython that is on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("differential.py")


def find_python(version: str) -> str | None:
    """An executable of that CPython: this process, one in pyenv's versions, or one on PATH."""
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(root.glob(f"versions/{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    for candidate in [*map(str, candidates), *([on_path] if on_path else [])]:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_programs_agree_without_torch_and_pytest(version: str):
    python = find_python(version)
    if python is None:
        pytest.skip(f"no CPython {version} on PATH or in pyenv")
    # -I: neither the environment's paths nor the user's packages; the runner finds what it needs itself.
    done = subprocess.run(
        [python, "-I", str(RUNNER)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"CPython {version}." in done.stdout
    assert " 0 differ" in done.stdout
