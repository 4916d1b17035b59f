"""Queries of the CUDA device by a program that is planned for an absent device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.base import dtypes
from thunder.base.langctx import LanguageContext
from thunder.plugins.specs import DeviceProfile

__all__ = ["with_device_profile"]


def with_device_profile(language: LanguageContext, profile: DeviceProfile) -> LanguageContext:
    """Return the language in which queries of CUDA return the facts of a profile.

    if torch.cuda.get_device_capability() >= (9, 0): …
    """
    if profile.type != "cuda":
        return language
    queries: dict[Any, Callable[..., Any]] = {
        torch.cuda.is_available: lambda: True,
        torch.cuda.device_count: lambda: 1,
        torch.cuda.current_device: lambda: 0,
        torch.cuda.get_device_name: lambda device=None: profile.name,
        torch.cuda.get_device_capability: lambda device=None: profile.features.get(
            "torch_capability", profile.capability
        ),
        torch.cuda.is_bf16_supported: lambda including_emulation=True: (
            including_emulation or dtypes.bfloat16 in profile.dtypes
        ),
    }
    return LanguageContext(language.name, {**language.functions, **queries})
