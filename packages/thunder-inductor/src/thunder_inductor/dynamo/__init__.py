"""Thunder as a backend of `torch.compile`."""

from .fx_function import ThunderFXFunction, thunderfx
from .part_info import PartInfo
from .split_reasons import SplitReason, SplitReasonType
from .thunder_compiler import SubgraphInfo, ThunderCompiler, thunder_backend

__all__ = [
    "PartInfo",
    "SplitReason",
    "SplitReasonType",
    "SubgraphInfo",
    "ThunderCompiler",
    "ThunderFXFunction",
    "thunder_backend",
    "thunderfx",
]
