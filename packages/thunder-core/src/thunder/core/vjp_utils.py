"""The public path of `thunder.autograd`: joint programs, and the values that a forward saves."""

from functools import partial

from thunder.autograd.joint_program import BackwardPlanner, JointProgram
from thunder.autograd.joint_trace import differentiable_outputs, differentiate, joint_trace
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors, set_saved_for_backward_tensors
from thunder.base.public_names import missing_name
from thunder.executor_base.region_modes import RegionMode

__all__ = [
    "BackwardPlanner",
    "JointProgram",
    "RegionMode",
    "differentiable_outputs",
    "differentiate",
    "get_saved_for_backward_tensors",
    "joint_trace",
    "set_saved_for_backward_tensors",
]

__getattr__ = partial(missing_name, __name__)
