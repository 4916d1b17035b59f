"""Each test verifies every trace, and leaves torch's global state as it was."""

from __future__ import annotations

from soundness.isolation import every_trace_is_verified, torch_state_is_restored

__all__ = ["every_trace_is_verified", "torch_state_is_restored"]
