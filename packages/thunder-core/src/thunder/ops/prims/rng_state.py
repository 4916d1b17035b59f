"""Primitives that create generators of random numbers, and read and change their states.

They are tagged as random operators, so that they stay in order with draws, which change those states too.
A primitive that changes a generator returns nothing, although torch's function returns the generator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from thunder.base.devices import to_device
from thunder.base.dtypes import uint8
from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import GeneratorProxy, IntegerProxy, TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive
from thunder.ops.torch_errors import OperatorTypeError

# fmt: off
__all__ = [
    "copy_generator", "get_cuda_rng_state", "get_generator_state", "make_generator", "manual_seed",
    "seed_cuda", "seed_cuda_all", "seed_from_entropy", "seed_generator", "seed_generator_from_entropy",
    "set_cuda_rng_state", "set_generator_state",
]
# fmt: on


def _declare(path: str, name: str, meta: Callable[..., Any]) -> Symbol:
    """Declare ``prims.<name>``, which prints and runs as the function of torch at ``path``."""
    eager: Any = torch
    for part in path.split(".")[1:]:
        eager = getattr(eager, part)
    return primitive(
        name, meta, eager=eager, eager_path=path, tags=(OpTags.RANDOM_OP,), vjp=NONDIFFERENTIABLE
    )


def _check_generator(generator: Any) -> None:
    if not isinstance(generator, GeneratorProxy):
        raise OperatorError(f"a torch.Generator is expected, not {type(generator).__name__}")


def _check_state(state: TensorProxy) -> None:
    if state.dtype is not uint8 or state.device.type != "cpu":
        raise OperatorTypeError("RNG state must be a torch.ByteTensor", found=f'"{state.type_string()}"')


@cache
def _state_size(device_type: str) -> int:
    """Return the size (bytes) of a generator's state. On CUDA it is a seed and an offset."""
    return int(torch.Generator().get_state().numel()) if device_type == "cpu" else 16


def _state(device_type: str) -> TensorProxy:
    return TensorProxy(shape=(_state_size(device_type),), device="cpu", dtype=uint8, strides=(1,))


# -- one generator -------------------------------------------------------------------------------------------


def _make_generator_meta(device: torch.device) -> GeneratorProxy:
    return GeneratorProxy(device=to_device(device))


def _seed_generator_meta(generator: GeneratorProxy, seed: int) -> None:
    _check_generator(generator)


def _seed_generator_from_entropy_meta(generator: GeneratorProxy) -> IntegerProxy:
    _check_generator(generator)
    return IntegerProxy(python_type=int)


def _get_generator_state_meta(generator: GeneratorProxy) -> TensorProxy:
    _check_generator(generator)
    return _state(generator.device.type)


def _set_generator_state_meta(generator: GeneratorProxy, state: TensorProxy) -> None:
    _check_generator(generator)
    _check_state(state)


def _copy_generator_meta(generator: GeneratorProxy) -> GeneratorProxy:
    _check_generator(generator)
    return GeneratorProxy(device=generator.device)


make_generator = _declare("torch.Generator", "make_generator", _make_generator_meta)
seed_generator = _declare("torch.Generator.manual_seed", "seed_generator", _seed_generator_meta)
#: seeds with random bits of the operating system, and returns the seed
seed_generator_from_entropy = _declare(
    "torch.Generator.seed", "seed_generator_from_entropy", _seed_generator_from_entropy_meta
)
get_generator_state = _declare("torch.Generator.get_state", "get_generator_state", _get_generator_state_meta)
set_generator_state = _declare("torch.Generator.set_state", "set_generator_state", _set_generator_state_meta)
copy_generator = _declare("torch.Generator.clone_state", "copy_generator", _copy_generator_meta)


# -- the default generators ----------------------------------------------------------------------------------


def _seed_meta(seed: int) -> None:
    """The meta function of a call that seeds and returns nothing."""


def _seed_from_entropy_meta() -> IntegerProxy:
    return IntegerProxy(python_type=int)


def _get_cuda_rng_state_meta(device: Any = "cuda") -> TensorProxy:
    return _state("cuda")


def _set_cuda_rng_state_meta(state: TensorProxy, device: Any = "cuda") -> None:
    _check_state(state)


#: of the CPU and of all other devices
manual_seed = _declare("torch.manual_seed", "manual_seed", _seed_meta)
seed_from_entropy = _declare("torch.seed", "seed_from_entropy", _seed_from_entropy_meta)
seed_cuda = _declare("torch.cuda.manual_seed", "seed_cuda", _seed_meta)
seed_cuda_all = _declare("torch.cuda.manual_seed_all", "seed_cuda_all", _seed_meta)
get_cuda_rng_state = _declare("torch.cuda.get_rng_state", "get_cuda_rng_state", _get_cuda_rng_state_meta)
set_cuda_rng_state = _declare("torch.cuda.set_rng_state", "set_cuda_rng_state", _set_cuda_rng_state_meta)
