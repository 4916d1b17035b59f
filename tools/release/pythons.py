"""Prints the CPythons that thunder-core lists, as JSON: `["3.11", "3.12", …]`, for the matrix of a workflow.

python -m tools.release.pythons
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

__all__ = ["pythons"]

ROOT = Path(__file__).resolve().parents[2]


def pythons(root: Path = ROOT) -> list[str]:
    """Return the versions of CPython among the classifiers of thunder-core."""
    project = root / "packages" / "thunder-core" / "pyproject.toml"
    classifiers = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["classifiers"]
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in classifiers]
    return [match[1] for match in found if match]


if __name__ == "__main__":
    print(json.dumps(pythons()))
