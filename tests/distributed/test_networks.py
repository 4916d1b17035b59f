"""Times of collectives beside messages that are simulated one by one, and what any formula has to keep."""

from __future__ import annotations

import math

import pytest
import torch

import thunder
from distributed.message_simulation import Message, by_level, channels, ring, simulated
from thunder.distributed import Level, Network
from thunder_distributed.collective_costs import ALGORITHMS, collective_cost, contended
from thunder_distributed.meshes.mesh_layouts import MeshLayout
from thunder_distributed.networks import expected_maximum

FLAT = Network(levels=(Level(name="all", devices=None, bandwidth=4.0, latency=0.5),))


def nodes(
    size: int, *, within: float = 16.0, between: float = 1.0, latencies=(0.0, 0.0), **options
) -> Network:
    return Network(
        levels=(
            Level(name="node", devices=size, bandwidth=within, latency=latencies[0]),
            Level(name="nodes", devices=None, bandwidth=between, latency=latencies[1]),
        ),
        **options,
    )


def with_only(network: Network, algorithm: str) -> Network:
    return Network(levels=network.levels, algorithms=(algorithm,))


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_a_ring_of_equal_links_takes_what_its_messages_take(size):
    cost = collective_cost("all_gather", 24.0, range(size), FLAT)
    assert cost.seconds == pytest.approx(simulated(FLAT, ring(range(size), 24.0)))
    assert collective_cost("reduce_scatter", 24.0, range(size), FLAT).seconds == cost.seconds
    both = collective_cost("all_reduce", 24.0, range(size), with_only(FLAT, "ring")).seconds
    assert both == pytest.approx(2 * cost.seconds)


@pytest.mark.parametrize(("count", "node"), [(2, 4), (4, 4), (2, 8), (8, 2)])
@pytest.mark.parametrize("latencies", [(0.0, 0.0), (0.01, 0.2)])
def test_rings_through_nodes_use_all_adapters(count, node, latencies):
    network = nodes(node, latencies=latencies)
    ranks = range(count * node)
    seconds = collective_cost("all_gather", 640.0, ranks, with_only(network, "ring")).seconds
    messages = simulated(network, channels(ranks, node, 640.0))
    # filling the pipe takes each channel a little more than the formula says
    assert seconds <= messages * 1.02
    assert messages <= 1.3 * seconds


@pytest.mark.parametrize(("algorithm", "doubling"), [("rings", False), ("doubling", True)])
@pytest.mark.parametrize(("count", "node"), [(2, 4), (4, 2), (8, 4)])
def test_algorithms_by_level_take_what_their_messages_take(algorithm, doubling, count, node):
    network = nodes(node, latencies=(0.01, 0.2))
    ranks = range(count * node)
    seconds = collective_cost("all_gather", 96.0, ranks, with_only(network, algorithm)).seconds
    assert seconds == pytest.approx(simulated(network, by_level(ranks, node, 96.0, doubling=doubling)))


def test_one_message_to_the_next_and_one_to_each():
    network = nodes(4, latencies=(0.1, 0.3))
    around = [Message(i, (i + 1) % 8, 10.0) for i in range(8)]
    assert collective_cost("rotate", 10.0, range(8), network).seconds == pytest.approx(
        simulated(network, around)
    )
    each = [Message(i, (i + d) % 8, 8.0 / 8) for d in range(1, 8) for i in range(8)]
    seconds = collective_cost("all_to_all", 8.0, range(8), FLAT).seconds
    sent = simulated(FLAT, each)
    assert seconds - 7 * 0.5 == pytest.approx(sent - 0.5)  # the messages of the simulation overlap latencies


def test_collectives_that_share_links_take_the_time_of_their_bytes():
    network = nodes(2)
    first, second = channels(range(4), 2, 64.0), channels(range(4), 2, 160.0)
    costs = [collective_cost("all_gather", n, range(4), with_only(network, "ring")) for n in (64.0, 160.0)]
    at_once = contended(costs)
    assert at_once == pytest.approx(simulated(network, first + second), rel=0.1)
    assert at_once == pytest.approx(sum(cost.seconds for cost in costs))
    # in nodes and between nodes, they share nothing
    apart = [collective_cost("all_gather", 64.0, ranks, network) for ranks in (range(2), (0, 2))]
    assert contended(apart) == max(cost.seconds for cost in apart)


def random_network(generator: torch.Generator) -> Network:
    def between(low: float, high: float) -> float:
        return low * (high / low) ** torch.rand((), generator=generator).item()

    bandwidth = between(1, 100)
    node = 2 ** int(torch.randint(1, 4, (), generator=generator))
    return Network(
        levels=(
            Level(name="a", devices=node, bandwidth=bandwidth, latency=between(0.01, 1)),
            Level(name="b", devices=4 * node, bandwidth=bandwidth / between(1, 20), latency=between(1, 3)),
            Level(name="c", devices=None, bandwidth=bandwidth / between(20, 50), latency=between(3, 5)),
        )
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_collective_is_faster_than_its_bytes_or_faster_with_more_of_them(seed):
    generator = torch.Generator().manual_seed(seed)
    network = random_network(generator)
    size = 2 ** int(torch.randint(1, 8, (), generator=generator))
    stride = 2 ** int(torch.randint(0, 3, (), generator=generator))
    ranks = range(0, size * stride, stride)
    for algorithm in ALGORITHMS:
        kinds = ("all_reduce",) if algorithm == "tree" else ("all_gather", "all_reduce")
        only = with_only(network, algorithm)
        for kind in kinds:
            seconds = [collective_cost(kind, n, ranks, only).seconds for n in (1.0, 10.0, 1000.0)]
            assert seconds == sorted(seconds)
            # each device receives what it does not have, on links of the innermost level at best
            rounds = 2 if kind == "all_reduce" else 1
            assert seconds[-1] >= 1000.0 * (size - 1) / size / network.levels[0].bandwidth * rounds
            assert collective_cost(kind, 1.0, range(1), only).seconds == 0
            more = collective_cost(kind, 1000.0, range(0, 2 * size * stride, stride), only).seconds
            assert more >= seconds[-1] * (1 - 1e-12)
    fastest = collective_cost(
        "all_reduce", 10.0, ranks, Network(levels=network.levels, algorithms=tuple(ALGORITHMS))
    )
    each = [collective_cost("all_reduce", 10.0, ranks, with_only(network, a)).seconds for a in ALGORITHMS]
    assert fastest.seconds == min(each)


def test_faster_links_are_not_slower():
    for better in (nodes(4, within=32.0), nodes(4, between=2.0)):
        for kind in ("all_gather", "all_reduce", "rotate", "all_to_all"):
            ranks = range(16)
            before = collective_cost(kind, 100.0, ranks, nodes(4)).seconds
            assert collective_cost(kind, 100.0, ranks, better).seconds <= before


def test_trees_are_for_small_tensors_of_many_devices():
    network = nodes(8, latencies=(0.1, 1.0))
    small, large = (collective_cost("all_reduce", n, range(512), network) for n in (1.0, 1e7))
    assert (small.algorithm, large.algorithm) == ("tree", "ring")
    assert small.seconds >= math.log2(512) * 0.1


def test_a_group_lies_in_units_of_the_levels():
    network = nodes(8)
    span = network.span(range(0, 32, 2))
    assert (span.size, span.ways, span.members) == (16, (4, 4), (1, 4))
    assert network.name_of(span) == "nodes"
    assert network.name_of(network.span(range(8))) == "node"
    layout = MeshLayout(shards=4, pipeline=2, context=2, tensor=2, sharding="zero3")
    assert layout.ranks("tensor") == (0, 1)
    assert layout.ranks("pipeline") == (0, 4)
    assert layout.ranks("shards", "context") == (0, 2, 8, 10, 16, 18, 24, 26)


def test_levels_are_parts_of_each_other():
    inner = Level(name="a", devices=8, bandwidth=1.0, latency=0.0)
    for levels in ((inner,), (), (inner, Level(name="b", devices=12, bandwidth=1.0, latency=0.0))):
        with pytest.raises(thunder.InvalidArgument, match="are not parts of each other"):
            Network(levels=levels)
    with pytest.raises(thunder.InvalidArgument, match="'star' is not an algorithm"):
        collective_cost("all_gather", 1.0, range(2), with_only(FLAT, "star"))
    with pytest.raises(thunder.InvalidArgument, match="no algorithm for all_gather of 3 devices"):
        collective_cost("all_gather", 1.0, range(3), with_only(FLAT, "doubling"))


@pytest.mark.parametrize("count", [2, 5, 64, 1024, 16384])
def test_the_expected_slowest_of_many_is_that_of_the_integral(count):
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    below = torch.special.ndtr(x)
    density = torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    expected = torch.trapezoid(x * count * density * below ** (count - 1), x).item()
    assert expected_maximum(count) == pytest.approx(expected, rel=0.05 if count < 5 else 0.02)
    assert expected_maximum(1) == 0
