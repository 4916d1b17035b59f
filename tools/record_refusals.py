"""Records the refusals that tests allow, in ``tests/recorded_refusals.json``.

    python tools/record_refusals.py             all tests that allow refusals (some minutes)
    python tools/record_refusals.py -k index    those of them that pytest selects; other records stay

A test fails that refuses a sample which is not recorded, or takes one that is recorded as refused. Look at
the difference in the file before it is committed: each line that is added is a program that no longer runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from recorded_refusals import Recorder, load, save  # noqa: E402  (of the folder that is now on the path)


def test_files() -> list[str]:
    """Return the files of tests that may refuse samples or cases."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").glob("*/test_*.py"))}
    return [str(p) for p, text in texts.items() if "refusals_as_recorded" in text or "may_refuse=" in text]


def main(arguments: list[str]) -> int:
    """Run the tests and record what they refuse; return pytest's exit code.

    Records of tests that did not run, or failed, stay as they are.
    """
    with Recorder() as recorder:
        code = int(pytest.main([*test_files(), "-q", "-p", "no:xdist", *arguments]))
    kept = load() if arguments or code else {}
    subjects = kept.keys() | recorder.recorded.keys()
    save({s: {**kept.get(s, {}), **recorder.recorded.get(s, {})} for s in subjects})
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
