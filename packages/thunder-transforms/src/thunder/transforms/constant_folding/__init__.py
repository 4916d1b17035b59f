"""Constant folding: the documented path of `thunder_transforms.constant_calls`."""

from thunder_transforms.constant_calls import ConstantFolding

__all__ = ["ConstantFolding"]
