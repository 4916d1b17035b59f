"""The public path of what `thunder.autograd` has for the values that a forward saves for its backward."""

from functools import partial

from thunder.autograd.joint_program import BackwardPlanner, JointProgram
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors, set_saved_for_backward_tensors
from thunder.base.public_names import missing_name
from thunder.executor_base.region_modes import RegionMode

__all__ = [
    "BackwardPlanner",
    "JointProgram",
    "RegionMode",
    "get_saved_for_backward_tensors",
    "set_saved_for_backward_tensors",
]

__getattr__ = partial(missing_name, __name__)
