"""The packages of new executors and transforms: `python -m thunder new-executor`, `new-transform`.

A written package does not depend on this module.
"""

from __future__ import annotations

from thunder.authoring.package import NewPackage, new_executor, new_transform

__all__ = ["NewPackage", "new_executor", "new_transform"]
