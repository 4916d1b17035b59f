"""`Transform`, and the two clean-up passes that transforms use: a documented path."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.passes.cse import cse
from thunder.passes.dce import dce
from thunder.passes.transform import Transform

__all__ = ["Transform", "cse", "dce"]

__getattr__ = partial(missing_name, __name__)
