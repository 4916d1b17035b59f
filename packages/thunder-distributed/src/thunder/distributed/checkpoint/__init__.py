"""State dicts of distributed modules, and their files."""

from thunder_distributed.checkpoint import (
    StateDictOptions,
    get_model_state_dict,
    has_fsdp_modules,
    load_model_state_dict,
)
from thunder_distributed.checkpoint_files import async_save, load, save

__all__ = [
    "StateDictOptions",
    "async_save",
    "get_model_state_dict",
    "has_fsdp_modules",
    "load",
    "load_model_state_dict",
    "save",
]
