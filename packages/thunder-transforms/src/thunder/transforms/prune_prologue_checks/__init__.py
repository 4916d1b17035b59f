"""Prologues with fewer checks: the documented path of `thunder_transforms.prune_checks`."""

from thunder_transforms.prune_checks import PrunePrologueChecks

__all__ = ["PrunePrologueChecks"]
