"""Random numbers as a function of a seed and an offset, so that they can be computed again."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import to_torch_dtype
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import IntegerProxy, TensorProxy
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

__all__ = ["get_and_update_rng_state", "uniform_philox"]

#: by how much one draw advances the offset of a generator on CUDA
OFFSET_PER_DRAW = 4

_MASK = (1 << 64) - 1


def _uniform_philox_meta(
    shape: tuple[int, ...],
    minval: float,
    maxval: float,
    *,
    device: Device,
    dtype: Dtype,
    seed: int,
    offset: int,
) -> TensorProxy:
    if not dtype.is_floating_point:
        raise OperatorError(f"uniform numbers are floating-point numbers, and the dtype is {dtype}")
    return TensorProxy(shape=shape, device=device, dtype=dtype)


def _uniform_philox(
    shape: tuple[int, ...], minval: float, maxval: float, *, device: Any, dtype: Any, seed: int, offset: int
) -> torch.Tensor:
    device = to_torch_device(device)
    generator = torch.Generator(device)
    if device.type == "cuda":
        generator.manual_seed(seed)
        generator.set_offset(offset)
    else:  # a generator without offsets: each pair is a seed
        generator.manual_seed(_mixed(seed, offset))
    new = torch.empty(shape, device=device, dtype=to_torch_dtype(dtype))
    return new.uniform_(minval, maxval, generator=generator)


def _mixed(seed: int, offset: int) -> int:
    """Return 64 well-mixed bits of two integers.

    The mixing function is that of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, 2014).
    """
    bits = (seed + (offset + 1) * 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def _get_and_update_rng_state_meta(
    seed: int | None, offset: int | None, device: Device
) -> tuple[IntegerProxy, IntegerProxy]:
    if (seed is None) != (offset is None):
        raise OperatorError("a seed and an offset are passed together, or neither")
    return IntegerProxy(python_type=int), IntegerProxy(python_type=int)


def _get_and_update_rng_state(seed: int | None, offset: int | None, device: Any) -> tuple[int, int]:
    if seed is not None and offset is not None:
        return seed, offset + OFFSET_PER_DRAW
    device = to_torch_device(device)
    if device.type != "cuda":
        return int(torch.randint(1 << 62, (), device=device)), 0
    generator = torch.cuda.default_generators[device.index or 0]
    state = generator.initial_seed(), generator.get_offset()
    generator.set_offset(state[1] + OFFSET_PER_DRAW)
    return state


#: numbers between two bounds. The same seed and offset give the same numbers, on CUDA those that torch draws
#: when the generator of the device has this state; so the call may be made again, and draws from no generator
uniform_philox = primitive(
    "uniform_philox", _uniform_philox_meta, eager=_uniform_philox, vjp=NONDIFFERENTIABLE
)

#: a seed and an offset for `uniform_philox`: those after the ones passed; for None, from the default
#: generator of the device, which the call advances
get_and_update_rng_state = primitive(
    "get_and_update_rng_state",
    _get_and_update_rng_state_meta,
    eager=_get_and_update_rng_state,
    tags=(OpTags.RANDOM_OP,),
    vjp=NONDIFFERENTIABLE,
)
