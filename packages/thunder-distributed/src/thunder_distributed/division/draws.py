"""The check that the processes of a divided program draw the same random numbers.

Each process draws what the whole program draws, and uses its part. So their generators have to be in one
state when the program begins:

    t0 = generator_state('cpu')
    t1 = all_gather(t0, '1')
    check_equal_states(t1, '1')
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
import torch.distributed as dist

from thunder import TensorProxy, dtypes
from thunder.core.errors import UserError
from thunder.core.proxies import is_proxy
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags

from ..collectives import all_gather, ex, gathered
from ..process_groups import group_named

__all__ = ["DrawsDiffer", "check_draws", "compare_states", "devices_of_draws"]


class DrawsDiffer(UserError, RuntimeError):
    """Processes that compute parts of the same result would draw other random numbers than each other."""


def devices_of_draws(bsyms: Iterable[BoundSymbol]) -> set[str]:
    """Return the devices on which calls, or those that they consist of, draw random numbers."""
    devices = set[str]()
    for bsym in bsyms:
        if OpTags.RANDOM_OP in bsym.sym.tags:
            outputs = (p for p in bsym.flat_proxy_outs if is_proxy(p) and isinstance(p, TensorProxy))
            devices |= {p.device.device_str() for p in outputs}
        else:
            devices |= devices_of_draws(bsym.subsymbols)
    return devices


def check_draws(group: str, device: str) -> None:
    """Record the check for the generator of a device."""
    check_equal_states(all_gather(generator_state(device), group), group)


def compare_states(group: str, device: str) -> None:
    """Compare the generators of a device, outside of programs; raise DrawsDiffer if they differ."""
    _check_equal_states(gathered(_generator_state(device), group), group)


def _generator_state(device: str) -> torch.Tensor:
    """Return a digest of the state of the default generator of a device."""
    kind = torch.device(device)
    if kind.type == "cpu":
        state = torch.get_rng_state()
    else:
        state = torch.get_device_module(kind.type).get_rng_state(kind)
    digest = hashlib.sha256(state.numpy().tobytes()).digest()
    return torch.tensor([int.from_bytes(digest[:8], "big", signed=True)]).to(kind, non_blocking=True)


def _check_equal_states(states: torch.Tensor, group: str) -> None:
    if dist.get_backend(group_named(group)) == "fake":
        return  # its collectives have no values
    are_equal = (states == states[0]).all()
    if states.is_cuda:  # a check that does not wait for the device
        torch._assert_async(are_equal)
    elif not bool(are_equal):
        raise DrawsDiffer(
            "the processes that compute parts of the same result are about to draw other random numbers",
            found={"digests of generators": states.tolist()},
            hint="Give the processes of a group of tensor parallelism, or of a pipeline, the same seed, by "
            "torch.manual_seed, and let each of them draw equally often, also outside of the program.",
        )


generator_state = ex.register_operator(
    "generator_state",
    meta=lambda device: TensorProxy(shape=(1,), device=device, dtype=dtypes.int64, requires_grad=False),
    fn=_generator_state,
    tags=(OpTags.RANDOM_OP, OpTags.NONDIFFERENTIABLE),
)
check_equal_states = ex.register_operator(
    "check_equal_states",
    meta=lambda states, group: None,
    fn=_check_equal_states,
    tags=(OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE),
)
