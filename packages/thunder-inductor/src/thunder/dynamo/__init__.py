"""Thunder as a backend of `torch.compile`."""

from thunder_inductor.dynamo import (
    PartInfo,
    SplitReason,
    SplitReasonType,
    SubgraphInfo,
    ThunderCompiler,
    ThunderFXFunction,
    thunder_backend,
    thunderfx,
)

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
