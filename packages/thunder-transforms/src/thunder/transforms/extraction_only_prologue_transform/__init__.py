"""Prologues that only fetch: the documented path of `thunder_transforms.extraction_only`."""

from thunder_transforms.extraction_only import ExtractionOnlyPrologueTransform

__all__ = ["ExtractionOnlyPrologueTransform"]
