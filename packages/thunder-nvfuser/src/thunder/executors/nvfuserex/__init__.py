"""Regions of programs, compiled by nvFuser."""

from thunder_nvfuser.executor import nvfuser_ex, nvfuserex, replaying_executor
from thunder_nvfuser.recorder import RecordedDefinition

__all__ = ["RecordedDefinition", "nvfuser_ex", "nvfuserex", "replaying_executor"]
