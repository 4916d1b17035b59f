"""Autocast as a function: the documented path of `thunder_transforms.autocast_function`."""

from thunder_transforms.autocast_function import autocast

__all__ = ["autocast"]
