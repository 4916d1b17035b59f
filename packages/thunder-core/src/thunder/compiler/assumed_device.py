"""What a program is told that asks about its device while it is planned for one that need not be here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.base import dtypes
from thunder.base.langctx import LanguageContext
from thunder.plugins.specs import DeviceProfile

__all__ = ["answering"]


def answering(language: LanguageContext, profile: DeviceProfile) -> LanguageContext:
    """The language in which questions about CUDA are answered from the profile: there is one such device.

    if torch.cuda.get_device_capability() >= (9, 0): …
    """
    if profile.type != "cuda":
        return language
    answers: dict[Any, Callable[..., Any]] = {
        torch.cuda.is_available: lambda: True,
        torch.cuda.device_count: lambda: 1,
        torch.cuda.current_device: lambda: 0,
        torch.cuda.get_device_name: lambda device=None: profile.name,
        torch.cuda.get_device_capability: lambda device=None: profile.capability,
        torch.cuda.is_bf16_supported: lambda including_emulation=True: (
            including_emulation or dtypes.bfloat16 in profile.dtypes
        ),
    }
    return LanguageContext(language.name, {**language.functions, **answers})
