"""`thunder.distributed.save` and `load`: a model and its optimizer, for any number of processes and layout.

Note [What the files have]
Each tensor is stored as that of the whole model, under the names of the user's module, by Distributed
Checkpoint of torch. So what has one layout is loaded into another one. A parameter without dimensions, and
its state, are one row, since only rows can be in parts.

    model.<name>                  parameters and buffers
    optimizer.<name>.<key>        the state of a parameter
    groups.<index>.<key>          the settings of a group of parameters, and their names as `params`
    step
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

import thunder
from thunder.core.errors import InvalidArgument

from . import checkpoint_files
from .optimizer_states import is_elsewhere, present_state, use_parameters_in_use
from .parts_in_use import all_layouts_of
from .sharded_tensors import presented

__all__ = ["Saved", "load", "load_checked", "save", "state_of"]

_Path = str | os.PathLike[str]


def save(model: Any, optimizer: Any, step: int, folder: _Path) -> None:
    """Save a model, its optimizer and the number of the step into a folder; every process calls it.

    A checkpoint that is there already is replaced when the new one is complete. Processes in any number and
    layout load it, by :func:`load`.

    Args:
        model: a compiled module, or another one.
        optimizer: an optimizer of parameters of the model, or None.
        step: the number of steps that were taken.
        folder: the path of a folder that all processes know.

    Raises InvalidArgument for a parameter of the optimizer that the model does not have.
    """
    checkpoint_files.save(state_of(model, optimizer, step), folder, no_dist=not dist.is_initialized())


def state_of(model: Any, optimizer: Any, step: int) -> dict[str, Any]:
    """Return what :func:`save` saves."""
    state: dict[str, Any] = {"model": _model_state(model), "step": int(step)}
    if optimizer is not None:
        names = _names(model, optimizer)
        state["groups"] = {
            str(index): {**group, "params": [names[id(p)] for p in group["params"]]}
            for index, group in enumerate(optimizer.param_groups)
        }
        state["optimizer"] = {
            names[id(parameter)]: _rows_of_numbers(parameter, model, names, present_state(parameter, values))
            for parameter, values in optimizer.state.items()
        }
    return state


def load(model: Any, optimizer: Any = None, step: Any = None, folder: _Path | None = None) -> int:
    """Load what :func:`save` has saved, in whatever number and layout of processes; return its step.

    Every process calls it. The parameters, buffers, state and settings are then those that were saved.

    Args:
        model: a compiled module, or another one.
        optimizer: an optimizer of parameters of the model in the same groups, or None to leave its state.
        step: the step that the files have to be of; None for any. `load(model, optimizer, folder)` leaves it
            out.
        folder: the path of the folder.

    Raises InvalidArgument for files of another step, of a model with other names, of other groups, and
    CheckpointCorrupted for those that are not what was written.
    """
    if folder is None:
        step, folder = None, step
    if not isinstance(folder, str | os.PathLike):
        raise InvalidArgument(f"load received folder={folder!r}", hint="load(model, optimizer, folder)")
    checkpoint_files.check(folder, no_dist=not dist.is_initialized())
    return _checked_step(load_checked(model, optimizer, Saved(folder)), step, folder)


def load_checked(model: Any, optimizer: Any, saved: Saved, others: Mapping[str, Any] | None = None) -> int:
    """Load files that were compared with their digests; `others` has further entries of their state dict."""
    state: dict[str, Any] = {"model": _model_state(model), "step": 0, **(others or {})}
    saved.check_names(model, state["model"])
    if optimizer is None:
        saved.load(state)
        return int(state["step"])
    names = _names(model, optimizer)
    state["groups"] = saved.nested("groups")
    values = {
        names[id(p)]: saved.state_of(p, names[id(p)]) for g in optimizer.param_groups for p in g["params"]
    }
    state["optimizer"] = {
        name: _rows_of_numbers(parameter, model, names, present_state(parameter, values[name]))
        for parameter in (p for g in optimizer.param_groups for p in g["params"])
        if values[name := names[id(parameter)]]
    }
    saved.load(state)
    for name, shown in state["optimizer"].items():  # numbers are new objects
        values[name].update({k: v for k, v in shown.items() if not isinstance(v, torch.Tensor)})
    _load_optimizer(optimizer, names, values, state["groups"])
    return int(state["step"])


def _checked_step(found: int, expected: int | None, folder: _Path) -> int:
    if expected is not None and found != expected:
        raise InvalidArgument(f"{os.fspath(folder)} is of step {found}, and not of step {expected}")
    return found


def _model_state(model: Any) -> dict[str, Any]:
    """Return the tensors in use, by the names of the module; those without dimensions as one row."""
    state = {name: t.detach() if isinstance(t, torch.Tensor) else t for name, t in _in_use(model).items()}
    if isinstance(model, thunder.ThunderModule):
        state = presented(model, state)
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {n: t.view(1) if n in parameters and t.ndim == 0 else t for n, t in state.items()}


def _in_use(model: Any) -> dict[str, Any]:
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    return state


def _names(model: Any, optimizer: Any) -> dict[int, str]:
    """Return the names of the parameters of an optimizer, by their id.

    Raises InvalidArgument for one that the model does not have.
    """
    use_parameters_in_use(optimizer)
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    names = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise InvalidArgument(
                    f"{type(optimizer).__name__} has a parameter that the model does not have",
                    found={"shape": tuple(parameter.shape)},
                    hint="Make the optimizer of the parameters of the model that is saved or loaded: "
                    "compiled.parameters().",
                )
            names[id(parameter)] = known[id(parameter)]
    return names


def _rows_of_numbers(
    parameter: torch.Tensor, model: Any, names: Mapping[int, str], state: dict[Any, Any]
) -> dict[Any, Any]:
    """Return the state of a parameter that has no dimensions as rows; that of another one as it is."""
    if not _is_number(parameter, model, names):
        return state
    return {k: v.view(1) if isinstance(v, torch.Tensor) and not v.ndim else v for k, v in state.items()}


def _is_number(parameter: torch.Tensor, model: Any, names: Mapping[int, str]) -> bool:
    """Return whether the whole parameter has no dimensions."""
    layouts = all_layouts_of(model) if isinstance(model, thunder.ThunderModule) else {}
    first = next(iter(layouts.get(names[id(parameter)], ())), None)
    return parameter.ndim == 0 if first is None else first.shape == ()


class Saved:
    """What the files of a folder have, by their metadata."""

    def __init__(self, folder: _Path) -> None:
        reader = FileSystemReader(checkpoint_files.complete_folder(folder))
        metadata = reader.read_metadata()
        self.folder, self._entries = os.fspath(folder), metadata.state_dict_metadata
        #: the paths of values in the state dict that was saved → their keys in the files
        self._keys = {tuple(path): key for key, path in metadata.planner_data.items()}

    def load(self, state: dict[str, Any]) -> None:
        """Load the entries of a state dict; every process calls it."""
        checkpoint_files.load_checked(state, self.folder, no_dist=not dist.is_initialized())

    def check_names(self, model: Any, own: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a model with other names."""
        saved = {str(path[1]) for path in self._keys if path[0] == "model"}
        expected = set(own)
        if isinstance(model, thunder.ThunderModule):  # with those that are in other processes
            expected |= {name for name in _in_use(model) if name in saved}
        if saved != expected:
            raise InvalidArgument(
                f"{self.folder} was saved of a model with other names",
                found={
                    "missing": ", ".join(sorted(expected - saved)) or "none",
                    "unexpected": ", ".join(sorted(saved - expected)) or "none",
                },
            )

    def nested(self, first: str) -> dict[str, dict[str, Any]]:
        """Return the dictionaries that were saved under a name, without the values."""
        result: dict[str, dict[str, Any]] = {}
        for path in self._keys:
            if path[0] == first:
                result.setdefault(str(path[1]), {})[str(path[2])] = self._empty(path)
        return result

    def state_of(self, parameter: torch.Tensor, name: str) -> dict[str, Any]:
        """Return the state of a parameter, as an optimizer has it, without the values."""
        if is_elsewhere(parameter):
            return {}
        state = {}
        for path in self._keys:
            if path[:2] == ("optimizer", name):
                key, empty = str(path[2]), self._empty(path)
                if isinstance(empty, torch.Tensor):
                    is_number = key == "step" or (empty.numel() == 1 and empty.ndim == 0)
                    shape = () if is_number else parameter.shape
                    empty = torch.zeros(
                        shape, dtype=empty.dtype, device="cpu" if is_number else parameter.device
                    )
                state[key] = empty
        return state

    def _empty(self, path: tuple[Any, ...]) -> Any:
        entry = self._entries[self._keys[path]]
        if isinstance(entry, TensorStorageMetadata):
            return torch.empty(entry.size, dtype=entry.properties.dtype)
        return None


def _load_optimizer(
    optimizer: Any, names: Mapping[int, str], values: Mapping[str, Any], groups: Mapping[str, Any]
) -> None:
    """Load the state and the settings of an optimizer. Raises InvalidArgument for other groups."""
    own = [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]
    saved = [groups[str(index)]["params"] for index in range(len(groups))]
    if own != saved:
        index = next(
            (i for i, (a, b) in enumerate(zip(own, saved, strict=False)) if a != b), min(len(own), len(saved))
        )
        raise InvalidArgument(
            f"{type(optimizer).__name__} has other groups of parameters than the one that was saved",
            found={
                "group": index,
                "saved": ", ".join(saved[index]) if index < len(saved) else "none",
                "own": ", ".join(own[index]) if index < len(own) else "none",
            },
            hint="Make the optimizer of the same parameters in the same order.",
        )
    numbers = {name: number for number, name in enumerate(name for group in own for name in group)}
    optimizer.load_state_dict(
        {
            "state": {numbers[name]: state for name, state in values.items() if state},
            "param_groups": [
                {**groups[str(index)], "params": [numbers[name] for name in group]}
                for index, group in enumerate(own)
            ],
        }
    )
