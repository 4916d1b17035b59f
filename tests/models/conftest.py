"""One thread; each model's traces are verified after every stage, its tensors compared with their proxies."""

from __future__ import annotations

from soundness.isolation import every_trace_is_verified, torch_state_is_restored

__all__ = ["every_trace_is_verified", "torch_state_is_restored"]
