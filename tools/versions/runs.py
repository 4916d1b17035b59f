"""Runs of test folders, and the file that keeps them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDED: Final = ROOT / "tests" / "documents" / "version_runs.json"

#: the suites of small models, beside the folders of tests: with thunder-inductor, and without any package
FAMILIES: Final = "families"
FAMILIES_ALONE: Final = "families, thunder-core alone"
#: the suite of test files that are in no folder
FILES: Final = "tests/test_*.py"


@dataclass(frozen=True, order=True)
class Installed:
    """What a suite ran on."""

    torch: str
    transformers: str
    python: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of a suite: counts of tests, and the first line of what each failure says."""

    suite: str
    on: Installed
    date: str
    commit: str
    seconds: int
    passed: int
    skipped: int
    failures: dict[str, str] = field(default_factory=dict)


def installed() -> Installed:
    """Return the versions of this environment; a torch's build (`+cpu`) does not count."""

    def of(name: str) -> str:
        try:
            return version(name).partition("+")[0]
        except PackageNotFoundError:
            return "absent"

    return Installed(torch=of("torch"), transformers=of("transformers"), python=platform.python_version())


def commit() -> str:
    """Return the last commit that changed a package, with `+` where one has changes since."""
    last = _git("log", "-1", "--format=%h", "--abbrev=8", "--", "packages")
    return last + ("+" if _git("status", "--porcelain", "--", "packages") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def suites() -> list[str]:
    """Return the folders of tests, and the files beside them."""
    folders = {path.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/**/test_*.py")}
    return [*(f"tests/{name}" for name in sorted(folders)), FILES]


def run_of(suite: str, options: Sequence[str], limit: float) -> Run:
    """Run a folder of tests in a process of its own, for `limit` seconds at most."""
    paths = [str(path) for path in sorted(ROOT.glob(suite))]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        ended = _pytest([*paths, f"--junitxml={report}", *options], limit)
        counts = counted(report) if report.exists() else (0, 0, {})
    passed, skipped, failures = counts
    if ended:
        failures = {**failures, suite: ended}
    return Run(
        suite=suite,
        on=installed(),
        date=datetime.date.today().isoformat(),
        commit=commit(),
        seconds=round(time.monotonic() - started),
        passed=passed,
        skipped=skipped,
        failures=failures,
    )


def _pytest(arguments: Sequence[str], limit: float) -> str | None:
    """Return why a run of pytest has no result, or None; its output goes to this process's."""
    environment = {"OMP_NUM_THREADS": "1", "THUNDER_PLUGIN_STRICT": "1", **os.environ}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as process:
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"the run was ended after {limit:.0f} s"
    if status < 0:
        return f"the process ended by {signal.Signals(-status).name}"
    return None if status in (0, 1) else f"pytest ended with status {status}"


def counted(report: Path) -> tuple[int, int, dict[str, str]]:
    """Return how many tests passed, how many were skipped, and what the failed ones say, in a line.

    An expected failure counts as skipped, as in the report itself.
    """
    passed = skipped = 0
    failures: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{_file_of(case.get('classname', ''))}::{case.get('name')}"
        failed = case.find("failure") if case.find("failure") is not None else case.find("error")
        if failed is not None:
            failures[name] = _first_line(failed)
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, failures


def _file_of(module: str) -> str:
    """Return the file of the module that a test is in, with the class of the test if it has one."""
    parts = module.split(".")
    for number in range(len(parts), 0, -1):
        file = "/".join(parts[:number]) + ".py"
        if (ROOT / file).exists():
            return "::".join([file, *parts[number:]])
    return module.replace(".", "/")


def _first_line(failed: ElementTree.Element) -> str:
    """Return what a failure says, in a line; for one of an import, the error at the end of its text."""
    message = (failed.get("message") or "").strip()
    if message in ("collection failure", ""):
        message = (
            [line[1:].strip() for line in (failed.text or "").splitlines() if line.startswith("E ")] or [""]
        )[-1]
    return message.partition("\n")[0][:200]


def recorded() -> list[Run]:
    """Return the runs that are kept."""
    if not RECORDED.exists():
        return []
    entries = json.loads(RECORDED.read_text(encoding="utf-8"))
    return [Run(**{**entry, "on": Installed(**entry["on"])}) for entry in entries]


def keep(run: Run) -> None:
    """Keep a run in place of the one before it of the same suite and versions."""
    others = [kept for kept in recorded() if (kept.suite, kept.on) != (run.suite, run.on)]
    runs = sorted([*others, run], key=lambda kept: (kept.on, kept.suite))
    text = json.dumps([asdict(kept) for kept in runs], indent=1, sort_keys=True)
    RECORDED.write_text(text + "\n", encoding="utf-8")


def families(names: Sequence[str]) -> Run:
    """Compile small models of transformers' families, and compare them with eager.

    `THUNDER_DISABLE_PLUGINS=inductor` leaves thunder-inductor out, and takes a tenth of the time.
    """
    from tools import transformer_families

    alone = "inductor" in os.environ.get("THUNDER_DISABLE_PLUGINS", "").split(",")
    started = time.monotonic()
    failures = {
        f"{family} {call}": answer
        for family, call, answer in transformer_families.answers(names)
        if not answer.startswith("right")
    }
    asked = len(names or transformer_families.FAMILIES) * len(transformer_families.CALLS)
    return Run(
        suite=FAMILIES_ALONE if alone else FAMILIES,
        on=installed(),
        date=datetime.date.today().isoformat(),
        commit=commit(),
        seconds=round(time.monotonic() - started),
        passed=asked - len(failures),
        skipped=0,
        failures=failures,
    )


def by_suite(runs: Sequence[Run]) -> Iterator[tuple[str, dict[Installed, Run]]]:
    """Yield each suite with its runs, one of each environment."""
    for suite in sorted({run.suite for run in runs}):
        yield suite, {run.on: run for run in runs if run.suite == suite}
