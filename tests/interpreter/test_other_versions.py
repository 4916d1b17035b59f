"""The programs under every supported CPython that is on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interpreter.differential import SOURCE
from thunder.base.python_versions import SUPPORTED

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


REFUSED = (
    r"ImportError: thunder interprets the byte code of CPython 3\.11, 3\.12, 3\.13 and 3\.14{}; this is {}\."
)
VERSIONS = [f"{major}.{minor}" for major, minor in SUPPORTED]

IMPORT = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
import thunder
"""

#: what CPython 3.15 has at import that 3.14 does not
LATER = """
import opcode, sys
sys.version_info = type("version_info", (tuple,), {"major": 3, "minor": 15})((3, 15, 0, "final", 0))
opcode.opmap["TRACE_RECORD"] = 255
"""

OTHER_IMPLEMENTATION = """
import sys
sys.implementation.name = "pypy"
"""


FREE_THREADED = """
import sysconfig
build = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else build(name)
"""


def assert_refused(python: str, program: str, found: str, lock: str = "") -> None:
    """The import ends with one sentence, before torch or a table is imported."""
    done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    *frames, sentence = done.stderr.splitlines()
    assert re.fullmatch(REFUSED.format(lock, found), sentence), done.stderr
    files = {line.split('"')[1] for line in frames if line.startswith("  File ")}
    assert files == {"<string>", str(SOURCE / "thunder" / "__init__.py")}


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.15"])
def test_import_on_a_version_that_is_not_supported_says_so(version: str):
    python = find_python(version)
    if python is None:
        pytest.skip(f"no CPython {version} on PATH or in pyenv")
    assert_refused(python, IMPORT, f"CPython {re.escape(version)}")


def test_import_on_a_later_version_says_so():
    assert_refused(sys.executable, LATER + IMPORT, r"CPython 3\.15")


def test_import_on_a_free_threaded_build_says_so():
    version = rf"{sys.version_info[0]}\.{sys.version_info[1]}"
    found = rf"a free-threaded CPython {version}"
    assert_refused(sys.executable, FREE_THREADED + IMPORT, found, " with the global interpreter lock")


def test_import_on_another_implementation_says_so():
    version = rf"{sys.version_info[0]}\.{sys.version_info[1]}"
    assert_refused(sys.executable, OTHER_IMPLEMENTATION + IMPORT, f"pypy {version}")


def test_the_interpreter_alone_says_so():
    """Without ``thunder/__init__``, which asks first."""
    program = (
        LATER
        + f"""
package = sys.modules["thunder"] = type(sys)("thunder")
package.__path__ = [{str(SOURCE / "thunder")!r}]
import thunder.interpreter
"""
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)
    assert re.fullmatch(REFUSED.format("", r"CPython 3\.15"), done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("version", VERSIONS)
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
    assert "absent" not in done.stdout


PAGE = SOURCE.parents[2] / "docs/from_scratch.md"

#: programs with each operation that the page's interpreter has, and with a jump of each kind
PROGRAMS = """
import math


def both_ways(x, n):
    if n > 2:
        y = x + n
    else:
        y = x - n
    while y < 40:
        y = y + 7
    return y


def constants(x, n):
    if x != 2:
        return None
    return n


def method_of_module(x, n):
    y = math.fsum
    return math.sqrt(x * x) + math.pow(x, n)


def nested(x, n):
    z = both_ways(x, n)
    return constants(z, both_ways(z, x))


used = set()
for fn in (both_ways, constants, method_of_module, nested):
    used |= {name for name, _ in decode(fn.__code__)[0]}
    for args in ((1, 2), (2, 3), (5, 1), (1.5, 4)):
        assert interpret(fn, args, Policy()) == fn(*args), (fn, args)
assert HANDLERS.keys() - used <= {"POP_JUMP_IF_TRUE", "JUMP_FORWARD", "JUMP_BACKWARD"}, HANDLERS.keys() - used
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_interpreter_of_the_page_from_scratch_agrees(version: str):
    """The blocks of its first step, and programs that it does not show."""
    python = find_python(version)
    if python is None:
        pytest.skip(f"no CPython {version} on PATH or in pyenv")
    step = PAGE.read_text(encoding="utf-8").partition("## 2. Record")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", step, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    program = "\n".join([*blocks, PROGRAMS])
    done = subprocess.run(
        [python, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
