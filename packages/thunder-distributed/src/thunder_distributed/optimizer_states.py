"""Optimizers of parameters in parts: which parameters they have, and how torch's tools see their state.

Note [State of optimizers]
An optimizer computes with plain tensors of the shapes of the parts. In what its `state_dict()` returns, those
that are laid out as a parameter is are DTensors of the whole shape, on the same memory; so
`torch.distributed.checkpoint` saves each part under its place. `load_state_dict` takes DTensors, whole
tensors and parts. That is done by hooks, which an optimizer gets before its first step: before that it has
no state but a loaded one, whose tensors are brought into form then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final
from weakref import WeakSet

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from thunder.core.errors import UnsupportedProgram
from thunder.core.interpreter import is_jitting

from .expert_modules import OwnedLayout
from .part_gradients import Part, part_of
from .parts_in_use import Forwarding
from .sharded_tensors import as_dtensor, part_of_value

__all__ = ["before_steps", "is_elsewhere", "present_state", "state_in_use", "use_parameters_in_use"]

#: the optimizers whose state dicts are translated
_hooked: Final[WeakSet[Any]] = WeakSet()


@cache
def before_steps() -> None:
    """Look at each optimizer before it steps, from now on."""
    register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: _before_step(optimizer))


def _before_step(optimizer: Optimizer) -> None:
    if is_jitting():  # the step of a program that is being traced: its optimizer is as it was before
        return
    use_parameters_in_use(optimizer)
    if optimizer not in _hooked and any(part_of(p) is not None for p in _parameters(optimizer)):
        _hooked.add(optimizer)
        optimizer.register_state_dict_post_hook(_presented)
        optimizer.register_load_state_dict_pre_hook(_accepted)
        for parameter in _parameters(optimizer):
            if parameter in optimizer.state:
                optimizer.state[parameter] = state_in_use(parameter, optimizer.state[parameter])


def use_parameters_in_use(optimizer: Optimizer) -> None:
    """Give an optimizer the parameters in use in the place of those of the user's module that are not.

    Those that have a gradient of their own stay: the user's module is trained apart. Raises InvalidArgument
    for one in whose place several compiled modules have parameters with gradients.
    """
    state: Any = optimizer.state
    for group in optimizer.param_groups:
        for index, parameter in enumerate(group["params"]):
            if not isinstance(parameter, Forwarding) or parameter.own_gradient is not None:
                continue
            in_use = parameter.in_use()
            if in_use is not None:
                group["params"][index] = in_use
                if parameter in state:
                    state[in_use] = state_in_use(in_use, state.pop(parameter))


def present_state(parameter: torch.Tensor, state: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the state of a parameter with DTensors; nothing of one that is in another process.

    Raises UnsupportedProgram for a tensor that is laid out neither as the parameter nor equally everywhere.
    """
    part = part_of(parameter)
    if part is None or parameter.is_meta:
        return dict(state)
    if is_elsewhere(parameter):
        return {}
    return {name: _as_dtensor(parameter, part, name, value) for name, value in state.items()}


def is_elsewhere(parameter: torch.Tensor) -> bool:
    """Return whether another process has all of a parameter."""
    part = part_of(parameter)
    layouts = () if part is None else part.layouts
    return any(isinstance(layout, OwnedLayout) and not layout.is_here for layout in layouts)


def _as_dtensor(parameter: torch.Tensor, part: Part, name: Any, value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or isinstance(value, DTensor) or not value.ndim:
        return value
    if value.shape == parameter.shape:
        return as_dtensor(part.layouts, value)
    if value.numel() == 1:
        return value
    raise UnsupportedProgram(
        f"the state {name!r} of an optimizer belongs to {part.layouts[0].name}, which is in parts, and has "
        "another shape",
        found={"state": tuple(value.shape), "part": tuple(parameter.shape)},
        hint="An optimizer of parts computes element by element: AdamW, SGD, Adagrad, … With ddp it is any.",
    )


def state_in_use(parameter: torch.Tensor, state: Any) -> Any:
    """Return the state of a parameter in the form in which the optimizer computes."""
    part = part_of(parameter)
    if part is None or not isinstance(state, Mapping):
        return state
    return {name: _in_use(parameter, part, name, value) for name, value in state.items()}


def _in_use(parameter: torch.Tensor, part: Part, name: Any, value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or name == "step":  # a number, also of a parameter that is one
        return value
    return part_of_value(part.layouts, parameter, value)


def _parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _presented(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return the state dict of an optimizer with DTensors: a hook of torch."""
    state = dict(state_dict["state"])
    for index, parameter in enumerate(_parameters(optimizer)):
        if index in state:
            state[index] = present_state(parameter, state[index])
            if not state[index]:
                del state[index]
    return {**state_dict, "state": state}


def _accepted(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return the state dict of an optimizer with the parts of this process: a hook of torch."""
    names = [name for group in state_dict["param_groups"] for name in group["params"]]
    state = dict(state_dict["state"])
    for name, parameter in zip(names, _parameters(optimizer), strict=False):
        if name in state:
            state[name] = state_in_use(parameter, state[name])
    return {**state_dict, "state": state}
