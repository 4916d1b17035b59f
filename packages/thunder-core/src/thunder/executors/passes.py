"""Passes that transforms and the makers of single programs call: a documented path to their modules."""

from functools import partial

from thunder.base.public_names import missing_name
from thunder.passes.claim import claim
from thunder.passes.del_last_used import del_last_used
from thunder.passes.execution import transform_for_execution
from thunder.passes.fallback_claim import claim_rest
from thunder.passes.fuse import fuse
from thunder.passes.placement import Placement, is_executable

__all__ = [
    "Placement",
    "claim",
    "claim_rest",
    "del_last_used",
    "fuse",
    "is_executable",
    "transform_for_execution",
]

__getattr__ = partial(missing_name, __name__)
