"""The built-in device profiles: a plugin with the hook `thunder_devices`.

    thunder.plan(model, tokens, device="h200")

The figures are from the makers' data sheets, of the A100, H100, H200 and B200 for the modules with NVLink,
and from the CUDA C++ Programming Guide (section "Compute capabilities"). A driver reserves about one
percent of the memory. `SINCE` and `ARITHMETIC` have what follows from the compute capability alone, for
these devices and for present ones. AMD's devices are of torch's type "cuda" too, and have no compute
capability: what torch returns as one is the feature `torch_capability`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from thunder.base import dtypes
from thunder.base.dtypes import dtype
from thunder.plugins.markers import hookimpl
from thunder.plugins.specs import DeviceProfile

__all__ = ["amd_profile", "cuda_profile", "thunder_devices"]

Capability = tuple[int, int]

GIB: Final = 2**30

#: feature → the first compute capability that has it, and the first that has it no longer, or None
SINCE: Final[Mapping[str, tuple[Capability, Capability | None]]] = {
    "tensor_float32": ((8, 0), None),
    "asynchronous_copy": ((8, 0), None),  # global to shared memory, cp.async
    "float8_matmul": ((8, 9), None),
    "clusters": ((9, 0), None),  # of thread blocks, with distributed shared memory
    "tensor_memory_access": ((9, 0), None),  # TMA
    "warpgroup_matmul": ((9, 0), (10, 0)),  # wgmma, only on sm_90a
    "tensor_memory": ((10, 0), (12, 0)),  # tcgen05, on sm_100 and sm_103
    "float4_matmul": ((10, 0), None),
}

#: dtype → the first compute capability that computes with it; absent for dtypes that all compute with
ARITHMETIC: Final[Mapping[str, Capability]] = {
    "bfloat16": (8, 0),
    "float8_e4m3fn": (8, 9),
    "float8_e5m2": (8, 9),
}
# Formats of other makers, and formats for scales and storage only.
_NEVER = ("float4", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")

# The dtypes that eager computes with on every CPU. float8 tensors can only be stored and converted there.
_ON_CPU = frozenset(
    d for d in dtypes.all_dtypes if not d.name.startswith(("float8", "float4", "complex32", "bcomplex32"))
)
# The dtypes that AMD's CDNA 3 computes with: 8 bits without negative zero (CDNA 3 ISA guide, "Data formats").
_ON_CDNA3 = frozenset(
    d
    for d in dtypes.all_dtypes
    if not d.name.startswith(("float4", "float8")) or d.name in ("float8_e4m3fnuz", "float8_e5m2fnuz")
)


def _has(capability: Capability, since: Capability, until: Capability | None) -> bool:
    return since <= capability and (until is None or capability < until)


def _arithmetic(capability: Capability) -> frozenset[dtype]:
    return frozenset(
        d
        for d in dtypes.all_dtypes
        if capability >= ARITHMETIC.get(d.name, (0, 0)) and not d.name.startswith(_NEVER)
    )


def cuda_profile(name: str, capability: Capability, memory_bytes: int, **features: object) -> DeviceProfile:
    """Return the profile of a CUDA device: `features`, and those that its compute capability implies."""
    implied = {feature: _has(capability, *bounds) for feature, bounds in SINCE.items()}
    return DeviceProfile(
        name=name,
        type="cuda",
        capability=capability,
        memory_bytes=memory_bytes,
        dtypes=_arithmetic(capability),
        features=implied | features,
    )


def amd_profile(name: str, capability: Capability, memory_bytes: int, **features: object) -> DeviceProfile:
    """Return the profile of a device of CDNA 3 or later; `capability` is what torch returns as one."""
    return DeviceProfile(
        name=name,
        type="cuda",
        memory_bytes=memory_bytes,
        dtypes=_ON_CDNA3,
        features={"torch_capability": capability, **features},
    )


#: features: `multiprocessors`; the largest `shared_memory_per_block` (bytes); memory `bandwidth` (bytes/s)
PROFILES: Final = (
    DeviceProfile(name="cpu", type="cpu", dtypes=_ON_CPU),
    DeviceProfile(name="meta", type="meta", dtypes=frozenset(dtypes.all_dtypes)),
    cuda_profile(
        "t4", (7, 5), 16 * GIB,
        multiprocessors=40, shared_memory_per_block=64 * 1024, bandwidth=300 * 10**9,
    ),
    cuda_profile(
        "l4", (8, 9), 24 * GIB,
        multiprocessors=58, shared_memory_per_block=99 * 1024, bandwidth=300 * 10**9,
    ),
    cuda_profile(
        "l40s", (8, 9), 48 * GIB,
        multiprocessors=142, shared_memory_per_block=99 * 1024, bandwidth=864 * 10**9,
    ),
    cuda_profile(
        "rtx4090", (8, 9), 24 * GIB,
        multiprocessors=128, shared_memory_per_block=99 * 1024, bandwidth=1_008 * 10**9,
    ),
    cuda_profile(
        "rtx5090", (12, 0), 32 * GIB,
        multiprocessors=170, shared_memory_per_block=99 * 1024, bandwidth=1_792 * 10**9,
    ),
    cuda_profile(
        "a100", (8, 0), 80 * GIB,
        multiprocessors=108, shared_memory_per_block=163 * 1024, bandwidth=2_039 * 10**9,
    ),
    cuda_profile(
        "h100", (9, 0), 80 * GIB,
        multiprocessors=132, shared_memory_per_block=227 * 1024, bandwidth=3_350 * 10**9,
    ),
    cuda_profile(
        "h200", (9, 0), 141 * GIB,
        multiprocessors=132, shared_memory_per_block=227 * 1024, bandwidth=4_800 * 10**9,
    ),
    cuda_profile(
        "b200", (10, 0), 180 * GIB,
        multiprocessors=148, shared_memory_per_block=227 * 1024, bandwidth=8_000 * 10**9,
    ),
    amd_profile(
        "mi300x", (9, 4), 192 * GIB,
        multiprocessors=304, shared_memory_per_block=64 * 1024, bandwidth=5_300 * 10**9,
    ),
)  # fmt: skip


@hookimpl
def thunder_devices() -> Iterable[DeviceProfile]:
    """Return the profiles of the table above."""
    return PROFILES
