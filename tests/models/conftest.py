"""Each model's traces are verified after every stage, and its tensors compared with their proxies."""

from __future__ import annotations

from soundness.isolation import every_trace_is_verified

__all__ = ["every_trace_is_verified"]
