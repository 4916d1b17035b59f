"""Each test leaves torch's global state as it was."""

from __future__ import annotations

from soundness.isolation import torch_state_is_restored

__all__ = ["torch_state_is_restored"]
