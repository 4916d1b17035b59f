"""The hook by which packages ship measurements: lock files of their kernels."""

from __future__ import annotations

import os
from collections.abc import Iterable

from thunder.plugins import hookspec

__all__ = ["thunder_lock_files"]


@hookspec
def thunder_lock_files() -> Iterable[str | os.PathLike[str]]:  # type: ignore[empty-body]
    """Return the paths of lock files with measurements of the package's kernels, on whichever devices.

    Called at each compile with `placement="estimated"`, and by `placement="measured"`, which does not measure
    again what a file has of this device and these versions.
    """
