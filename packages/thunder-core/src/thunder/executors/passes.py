"""Passes that transforms call: a documented path to the modules that define them."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.passes.del_last_used import del_last_used
from thunder.passes.execution import transform_for_execution

__all__ = ["del_last_used", "transform_for_execution"]

__getattr__ = partial(missing_name, __name__)
