"""The transform that gives tensors on the meta device memory and values."""

from thunder_transforms.materialization import MaterializationTransform

__all__ = ["MaterializationTransform"]
