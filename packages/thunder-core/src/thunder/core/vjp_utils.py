"""The tensors saved for the backward: the public path of `thunder.autograd.saved_tensors`."""

from functools import partial

from thunder.autograd.saved_tensors import get_saved_for_backward_tensors, set_saved_for_backward_tensors
from thunder.base.public_names import missing_name

__all__ = ["get_saved_for_backward_tensors", "set_saved_for_backward_tensors"]

__getattr__ = partial(missing_name, __name__)
