"""Clusters that searches know: devices, and the levels of their networks, each figure with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from thunder.core.errors import InvalidArgument
from thunder.extend import profile_named

from ..machines import MACHINES, Machine, machine_named
from ..networks import Level, Network

__all__ = ["CLUSTERS", "EFFICIENCY", "SPREAD", "Cluster", "cluster_named"]

#: The part of the peak that matrix products reach in a training. Chosen once, so that the published steps of
#: Llama 3 405B and of torchtitan's on A100 are met on the whole (docs/distributed.md has each row). A product
#: alone reaches more: cuBLAS 741 of an H100's 989 Tflop/s (benchmarks of github.com/pranjalssh/fast.cu).
EFFICIENCY: Final = 0.55
#: The standard deviation of a step's time among devices, as a part of its mean: assumed. Llama 3's throughput
#: varied by 1 to 2 % with the time of the day (Grattafiori et al., 2024, section 3.3.4).
SPREAD: Final = 0.01


@dataclass(frozen=True)
class Cluster:
    """Devices and their network.

    Attributes:
        device: the name of a profile.
        levels: of the network, the innermost first.
        source: of the levels.
        algorithms: of collectives.
    """

    device: str
    levels: tuple[Level, ...]
    source: str
    algorithms: tuple[str, ...] = ("ring", "tree")

    def machine(self) -> Machine:
        """Return the machine of a device, with this network, and what products reach."""
        network = Network(levels=self.levels, algorithms=self.algorithms)
        known = machine_named(self.device)
        return replace(known, network=network, efficiency=EFFICIENCY, spread=SPREAD)


#: Latencies of a hop: NVLink and adapters as in `Machine`; between pods one more stage of switches. Assumed.
_NODE, _NODES, _PODS = 3e-6, 15e-6, 20e-6


def _nodes(gigabits: int, nvlink: float) -> tuple[Level, ...]:
    node = Level(name="within a node", devices=8, bandwidth=nvlink, latency=_NODE)
    return node, Level(name="between nodes", devices=None, bandwidth=gigabits / 8 * 1e9, latency=_NODES)


#: name → cluster
CLUSTERS: Final[Mapping[str, Cluster]] = {
    "a100": Cluster("a100", _nodes(200, 300e9), "NVIDIA DGX SuperPOD A100: 200 Gbit/s a device"),
    "h100": Cluster("h100", _nodes(400, 450e9), "NVIDIA DGX SuperPOD H100: 400 Gbit/s a device"),
    "h200": Cluster("h200", _nodes(400, 450e9), "NVIDIA DGX SuperPOD H200: 400 Gbit/s a device"),
    "b200": Cluster("b200", _nodes(400, 900e9), "NVIDIA DGX SuperPOD B200: 400 Gbit/s a device"),
    "gb200-nvl72": Cluster(
        "b200",
        (
            Level(name="within a rack", devices=72, bandwidth=900e9, latency=_NODE),
            Level(name="between racks", devices=None, bandwidth=50e9, latency=_NODES),
        ),
        "NVIDIA GB200 NVL72 data sheet: 72 devices on NVLink; 400 Gbit/s a device",
    ),
    "llama-3-h100": Cluster(
        "h100",
        (
            Level(name="within a node", devices=8, bandwidth=450e9, latency=_NODE),
            Level(name="within a pod", devices=3072, bandwidth=50e9, latency=_NODES),
            Level(name="between pods", devices=None, bandwidth=50e9 / 7, latency=_PODS),
        ),
        "Grattafiori et al., 2024, section 3.3.1: pods of 3,072 devices with 400 Gbit/s each, 7 times less "
        "between pods; recursive doubling and halving instead of rings, as Meta wrote of its collectives "
        "(How Meta trains large language models at scale, 2024)",
        ("ring", "tree", "doubling"),
    ),
}


def cluster_named(name: str) -> tuple[Machine, int]:
    """Return the machine of a cluster, and the bytes of a device's memory.

    Raises InvalidArgument for a name that is not known.
    """
    cluster = CLUSTERS.get(name)
    if cluster is None:
        raise InvalidArgument(
            f"no network is known of {name!r}",
            found={"known": ", ".join(CLUSTERS), "devices with figures": ", ".join(MACHINES)},
            hint="Pass machine=thunder.distributed.Machine(…) and memory=, the bytes of a device.",
        )
    memory = profile_named(cluster.device).memory_bytes
    assert memory is not None, "a named device has a memory"
    return cluster.machine(), memory
