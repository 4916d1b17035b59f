"""Reports of a run have the CPU time of each test, and the tool adds it up."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from new_processes import run_python

TOOL = Path(__file__).parents[1] / "tools" / "time_table.py"

TESTS = """
import time

class TestKind:
    def test_busy(self):
        start = time.process_time()
        while time.process_time() - start < 0.3:
            pass

def test_idle():
    time.sleep(0.3)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run of two tests with the hooks of this folder."""
    folder = tmp_path_factory.mktemp("times") / "some"
    folder.mkdir()
    (folder / "test_two.py").write_text(TESTS, encoding="utf-8")
    hooks = "from conftest_of_all import pytest_runtest_makereport, pytest_runtest_protocol"
    (folder / "conftest.py").write_text(hooks, encoding="utf-8")
    (folder / "conftest_of_all.py").symlink_to(Path(__file__).with_name("conftest.py"))
    path = folder.parent / "report.xml"
    done = run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder.parent),
        "-c", "/dev/null", f"--junitxml={path}", str(folder), cwd=Path(__file__).parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def test_a_test_has_the_time_that_it_computes(report: Path) -> None:
    times = {name: seconds for _, name, seconds in runpy.run_path(str(TOOL))["times"](report)}
    assert 0.3 <= times["test_busy"] < 0.6
    assert times["test_idle"] < 0.1


def test_the_table_adds_up_folders_files_and_tests(report: Path) -> None:
    rows = runpy.run_path(str(TOOL))["table"](report, most=1).splitlines()
    assert rows[0].endswith(" seconds of CPU in all")
    named = [row.split()[1] for row in rows[1:] if row]
    assert named == ["some/test_two", "some/test_two", "some/test_two::test_busy"]
