"""Tests of whether a source file belongs to thunder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["PACKAGE_DIRECTORY", "is_package_file", "package_folder"]

PACKAGE_DIRECTORY: Final = os.path.join(Path(__file__).parents[1], "")
"""The directory of the package ``thunder``, with the separator at its end."""


def package_folder(name: str) -> str:
    """Return the directory of one folder of the package, with the separator at its end."""
    return os.path.join(PACKAGE_DIRECTORY, name, "")


def is_package_file(file: str) -> bool:
    """Return whether ``file`` is a source file of thunder, or code that thunder generated.

    Generated code has file names that begin with ``<thunder.``.
    """
    return file.startswith((PACKAGE_DIRECTORY, "<thunder."))
