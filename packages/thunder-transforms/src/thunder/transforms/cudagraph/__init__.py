"""CUDA graphs: the documented path of `thunder_transforms.cuda_graphs`."""

from thunder_transforms.cuda_graphs import CUDAGraphTransform

__all__ = ["CUDAGraphTransform"]
