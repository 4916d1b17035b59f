"""State dicts of distributed modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.errors import InvalidArgument

from .data_parallel import layouts_of
from .layouts import DistParallelType
from .sharded_tensors import accepted, presented

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "has_fsdp_modules",
    "load_model_state_dict",
]


@dataclass(frozen=True, kw_only=True)
class StateDictOptions:
    """Options that say how a state dict is read and loaded.

    Args:
        full_state_dict: whole tensors, the state dict of the original model, and not the parts of processes.
        strict: whether names that are missing or unexpected are an error.
        cpu_offload: tensors on the CPU.
        rank0_only: the other processes get an empty state dict; only with `full_state_dict`.
    """

    full_state_dict: bool = False
    strict: bool = True
    cpu_offload: bool = False
    rank0_only: bool = False


def has_fsdp_modules(module: Any) -> bool:
    """Return whether a module was compiled with fsdp."""
    return isinstance(module, thunder.ThunderModule) and any(
        layout.kind is DistParallelType.FULLY_SHARDED for layout in layouts_of(module).values()
    )


def get_model_state_dict(
    module: Any, options: StateDictOptions | None = None, rank: int | None = None
) -> dict[str, Any]:
    """Return the state of a compiled module; every process has to call it.

    Parts of parameters are DTensors of the shape of the whole parameter. With `full_state_dict` it is the
    state dict of the original model. `rank` is that of this process; None for the default group's.
    Raises InvalidArgument for a module that is not compiled, and for `rank0_only` without `full_state_dict`.
    """
    options = options or StateDictOptions()
    if options.rank0_only and not options.full_state_dict:
        raise InvalidArgument("rank0_only needs full_state_dict: parts are in each process")
    _check_compiled(module)
    if not options.full_state_dict:
        state = presented(module, _state_in_use(module))
        return {name: _on_cpu(t) for name, t in state.items()} if options.cpu_offload else state
    whole = {
        name: _on_cpu(t) if options.cpu_offload else t for name, t in module.original_state_dict().items()
    }
    own = torch.distributed.get_rank() if rank is None else rank
    return {} if options.rank0_only and own != 0 else whole


def load_model_state_dict(
    state_dict: Mapping[str, Any],
    module: Any,
    options: StateDictOptions | None = None,
    rank: int | None = None,
) -> None:
    """Load a state dict that `get_model_state_dict` returned, or one of the original model.

    With `full_state_dict` each process has the whole tensors. Raises InvalidArgument for tensors of another
    shape, and for missing or unexpected names unless `strict` is False.
    """
    options = options or StateDictOptions()
    _check_compiled(module)
    if options.full_state_dict:
        known = module.original_state_dict() if not options.strict else None
        chosen = {n: t for n, t in state_dict.items() if known is None or n in known}
        module.load_original_state_dict({**(known or {}), **chosen})
        return
    own = presented(module, _state_in_use(module))
    if options.strict and own.keys() != state_dict.keys():
        raise InvalidArgument(
            "the state dict has other names than the module",
            found={
                "missing": ", ".join(own.keys() - state_dict.keys()) or "none",
                "unexpected": ", ".join(state_dict.keys() - own.keys()) or "none",
            },
            hint="StateDictOptions(strict=False) loads those that there are.",
        )
    values = accepted(module, {name: state_dict[name] for name in own if name in state_dict})
    with torch.no_grad():
        for name, tensor in _state_in_use(module).items():
            if name in values:
                tensor.copy_(values[name])


def _state_in_use(module: Any) -> dict[str, torch.Tensor]:
    """Return the tensors in use, parts of parameters among them."""
    state = module.state_dict(keep_vars=True).items()
    return {name: t.detach() if isinstance(t, torch.Tensor) else t for name, t in state}


def _check_compiled(module: Any) -> None:
    if not isinstance(module, thunder.ThunderModule):
        raise InvalidArgument(
            f"a compiled module is needed, and {type(module).__name__} is not one",
            hint="Pass what thunder.jit returned; module.state_dict() is the state of another module.",
        )


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu()
