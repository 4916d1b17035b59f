"""Describes machines for the roofline of a plan: arithmetic and links of each device, nodes, latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from thunder.core.errors import InvalidArgument
from thunder.extend import profile_named

from .networks import Level, Network

__all__ = ["MACHINES", "Machine", "machine_named"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Nodes of equal devices.

    Attributes:
        flops: dtype, as `bf16` → operations per second of matrix products, without sparsity.
        bandwidth: of the memory of a device, in bytes per second.
        within: what a device sends to the others of its node, in bytes per second, in one direction.
        between: what a device sends to other nodes, in bytes per second, in one direction.
        devices: in a node.
        latency_within: seconds of a step of a ring between two devices of a node.
        latency_between: seconds of a step of a ring between two nodes.
        network: levels of links; None for the two of `within` and `between`.
        efficiency: the part of `flops` that matrix products reach.
        spread: the standard deviation of a step's time among devices, as a part of its mean.
    """

    flops: Mapping[str, float]
    bandwidth: float
    within: float
    between: float
    devices: int = 8
    latency_within: float = 3e-6
    latency_between: float = 15e-6
    network: Network | None = None
    efficiency: float = 1.0
    spread: float = 0.0

    @property
    def links(self) -> Network:
        """The levels of links."""
        if self.network is not None:
            return self.network
        within = Level(
            name="within a node",
            devices=self.devices,
            bandwidth=self.within,
            latency=self.latency_within,
        )
        between = Level(
            name="between nodes", devices=None, bandwidth=self.between, latency=self.latency_between
        )
        return Network(levels=(within, between))


#: Name of a device → operations per second, NVLink and network of a device in bytes per second.
#:
#: The figures are the makers' peaks for modules with NVLink (A100, H100, H200 and B200 data sheets): matrix
#: products of dense matrices; f32 without TF32. Half of NVLink's figure is for each direction. The network is
#: one adapter for each device: 200 Gbit/s in DGX A100, 400 Gbit/s in DGX H100, H200 and B200. Latencies of
#: steps are assumed.
MACHINES: Final[Mapping[str, tuple[Mapping[str, float], float, float]]] = {
    "a100": ({"f64": 19.5e12, "f32": 19.5e12, "f16": 312e12, "bf16": 312e12}, 300e9, 25e9),
    "h100": ({"f64": 67e12, "f32": 67e12, "f16": 989e12, "bf16": 989e12, "f8": 1_979e12}, 450e9, 50e9),
    "h200": ({"f64": 67e12, "f32": 67e12, "f16": 989e12, "bf16": 989e12, "f8": 1_979e12}, 450e9, 50e9),
    "b200": ({"f64": 37e12, "f32": 75e12, "f16": 2_250e12, "bf16": 2_250e12, "f8": 4_500e12}, 900e9, 50e9),
}


def machine_named(name: str) -> Machine:
    """Return the machine of a device profile; raise InvalidArgument for one that has no row."""
    row = MACHINES.get(name)
    if row is None:
        raise InvalidArgument(
            f"no arithmetic and links are known of the device {name!r}",
            found={"known": ", ".join(MACHINES)},
            hint="Pass machine=thunder.distributed.Machine(flops=…, bandwidth=…, within=…, between=…).",
        )
    flops, within, between = row
    bandwidth = profile_named(name).features["bandwidth"]
    assert isinstance(bandwidth, int), "a named device has a bandwidth in bytes per second"
    return Machine(flops=flops, bandwidth=float(bandwidth), within=within, between=between)
