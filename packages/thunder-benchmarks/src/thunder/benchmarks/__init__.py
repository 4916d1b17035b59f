"""Benchmarks of thunder: GPTs and their parts, each with its inputs."""

from thunder_benchmarks.gpt.nanogpt_model import GPTConfig as NanoGPTConfig
from thunder_benchmarks.gpt.selected import Config as LitGPTConfig
from thunder_benchmarks.part_targets import (
    Benchmark,
    LitGPTSDPABenchmark,
    LitGPTSwigluBenchmark,
    LlamaMLPBenchmark,
    NanoGPTBenchmark,
    NanoGPTBlockBenchmark,
    NanoGPTCrossEntropyBenchmark,
    NanoGPTCSABenchmark,
    NanoGPTGeLUBenchmark,
    NanoGPTLayerNormBenchmark,
    NanoGPTMLPBenchmark,
)
from thunder_benchmarks.targets import LitGPTBenchmark

__all__ = [
    "Benchmark",
    "LitGPTBenchmark",
    "LitGPTConfig",
    "LitGPTSDPABenchmark",
    "LitGPTSwigluBenchmark",
    "LlamaMLPBenchmark",
    "NanoGPTBenchmark",
    "NanoGPTBlockBenchmark",
    "NanoGPTCSABenchmark",
    "NanoGPTConfig",
    "NanoGPTCrossEntropyBenchmark",
    "NanoGPTGeLUBenchmark",
    "NanoGPTLayerNormBenchmark",
    "NanoGPTMLPBenchmark",
]
