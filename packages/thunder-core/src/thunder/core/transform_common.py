"""`Transform`, and what transforms use: notes, and two clean-up passes. A documented path."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.passes.cse import cse
from thunder.passes.dce import dce
from thunder.passes.notes import Note
from thunder.passes.transform import Transform

__all__ = ["Note", "Transform", "cse", "dce"]

__getattr__ = partial(missing_name, __name__)
