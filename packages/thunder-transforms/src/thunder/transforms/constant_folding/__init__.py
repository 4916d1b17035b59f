"""Constant folding: the documented path of `thunder_transforms.constant_folding`."""

from thunder_transforms.constant_folding import ConstantFolding

__all__ = ["ConstantFolding"]
