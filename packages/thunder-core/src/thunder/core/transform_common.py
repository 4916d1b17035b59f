"""`Transform`, and the two clean-up passes that transforms use: a documented path."""

from thunder.core.passes.cse import cse
from thunder.core.passes.dce import dce
from thunder.core.transform import Transform

__all__ = ["Transform", "cse", "dce"]
