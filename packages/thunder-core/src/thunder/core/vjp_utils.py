"""The tensors saved for the backward: the public path of `thunder.autograd.saved_tensors`."""

from thunder.autograd.saved_tensors import get_saved_for_backward_tensors, set_saved_for_backward_tensors

__all__ = ["get_saved_for_backward_tensors", "set_saved_for_backward_tensors"]
