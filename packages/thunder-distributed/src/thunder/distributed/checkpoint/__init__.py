"""State dicts of distributed modules, and their files."""

from thunder_distributed.checkpoint import (
    StateDictOptions,
    get_model_state_dict,
    has_fsdp_modules,
    load,
    load_model_state_dict,
    save,
)

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "has_fsdp_modules",
    "load",
    "load_model_state_dict",
    "save",
]
