"""The package of a new executor: `python -m thunder new-executor NAME`.

The written package does not depend on this module.
"""

from __future__ import annotations

from thunder.authoring.package import NewPackage, new_executor

__all__ = ["NewPackage", "new_executor"]
