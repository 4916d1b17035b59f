"""Makes the package of a new executor: `python -m thunder new-executor NAME`.

What it writes is a package like any other: nothing in it depends on this module.
"""

from __future__ import annotations

from thunder.authoring.package import NewPackage, new_executor

__all__ = ["NewPackage", "new_executor"]
