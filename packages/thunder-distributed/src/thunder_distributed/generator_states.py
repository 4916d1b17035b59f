"""The states of random generators in checkpoints: those of each process, as bytes and numbers.

    generators.<rank>.torch             torch's generator of the CPU
    generators.<rank>.<accelerator>     that of the process's accelerator
    generators.<rank>.python            the 625 integers of Python's `random`, and what it keeps for `gauss`
    generators.<rank>.own.<name>        a `torch.Generator` of the user's

Generators of numpy are not among them.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping
from typing import Any

import torch

from .process_groups import process_device

__all__ = ["generator_states", "restore_generators"]

_States = Mapping[str, torch.Tensor]


def generator_states(own: Mapping[str, torch.Generator]) -> dict[str, torch.Tensor]:
    """Return the states of this process's generators, in new memory."""
    states = {"torch": torch.get_rng_state()}
    device = process_device()
    if device.type != "cpu":
        states[device.type] = _of_device(device).get_state()
    _, integers, gauss = random.getstate()
    states["python"] = torch.tensor(integers)
    states["python_gauss"] = torch.tensor([math.nan if gauss is None else gauss], dtype=torch.float64)
    return {**states, **{f"own.{name}": generator.get_state() for name, generator in own.items()}}


def restore_generators(saved: Mapping[str, _States], rank: int, own: Mapping[str, torch.Generator]) -> None:
    """Restore the generators of this process from the states of all processes, by rank.

    A process that had none when they were saved gets those that all had, if these are equal; else seeds that
    are made of the state of another one and its rank, so that no two processes draw the same numbers.
    """
    states = saved.get(str(rank))
    if states is not None:
        _restore(states, own)
        return
    first, *rest = saved.values()
    if all(_equal(first, other) for other in rest):
        _restore(first, own)
        return
    source = saved[str(rank % len(saved))]
    for name, generator in _generators(own).items():
        if name in source:
            generator.manual_seed(_seed(source[name], rank))
    random.seed(_seed(source["python"], rank))


def _restore(states: _States, own: Mapping[str, torch.Generator]) -> None:
    for name, generator in _generators(own).items():
        if name in states:  # a generator or an accelerator that was not there before is as it is
            generator.set_state(states[name])
    gauss = states["python_gauss"].item()
    integers = tuple(states["python"].tolist())
    random.setstate((3, integers, None if math.isnan(gauss) else gauss))


def _generators(own: Mapping[str, torch.Generator]) -> dict[str, torch.Generator]:
    """Return the generators of torch by the names of their states."""
    generators = {"torch": torch.default_generator}
    device = process_device()
    if device.type != "cpu":
        generators[device.type] = _of_device(device)
    return {**generators, **{f"own.{name}": generator for name, generator in own.items()}}


def _of_device(device: torch.device) -> torch.Generator:
    module: Any = torch.get_device_module(device)
    generator: torch.Generator = module.default_generators[device.index]
    return generator


def _equal(first: _States, second: _States) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first if name != "python_gauss"
    )


def _seed(state: torch.Tensor, rank: int) -> int:
    digest = hashlib.sha256(state.numpy().tobytes() + rank.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little") >> 1
