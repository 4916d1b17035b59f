"""`Transform`, and the two clean-up passes that transforms use: a documented path."""

from thunder.passes.cse import cse
from thunder.passes.dce import dce
from thunder.passes.transform import Transform

__all__ = ["Transform", "cse", "dce"]
