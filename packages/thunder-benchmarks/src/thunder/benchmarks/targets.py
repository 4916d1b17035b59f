"""Targets of measurements: a GPT and its backward."""

from thunder_benchmarks.gpt.selected import Config as LitGPTConfig
from thunder_benchmarks.targets import LitGPTBenchmark, backward_only

__all__ = ["LitGPTBenchmark", "LitGPTConfig", "backward_only"]
