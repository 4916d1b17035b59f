"""Batching rules of operators, a module for each subject; importing them declares the rules."""

from __future__ import annotations

from thunder.batching.rules import (
    batched_attention,
    batched_indexing,
    batched_kernels,
    batched_nn,
    batched_products,
    batched_random,
    batched_reductions,
    batched_shapes,
)

__all__ = [
    "batched_attention",
    "batched_indexing",
    "batched_kernels",
    "batched_nn",
    "batched_products",
    "batched_random",
    "batched_reductions",
    "batched_shapes",
]
