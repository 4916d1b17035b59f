"""Cutting a graph into runs of consecutive nodes, each run a graph module."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import torch

from .context_calls import ContextPair, context_pairs, is_context_call
from .split_reasons import SplitReason

__all__ = ["Run", "Runner", "calls_of", "module_of", "runs_of", "with_items_beside_calls"]


class Runner(Enum):
    """The compilers, or torch without one, that execute a run."""

    THUNDER = "thunder"
    INDUCTOR = "inductor"
    TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive nodes as a graph module.

    `inputs` and `outputs` are names of nodes of the graph that was cut: the arguments of the module in order,
    and what its tuple of results is.
    """

    runner: Runner
    module: torch.fx.GraphModule
    nodes: tuple[torch.fx.Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reasons: tuple[SplitReason, ...]


def calls_of(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return the nodes of a graph that compute, in order."""
    return [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]


def with_items_beside_calls(gm: torch.fx.GraphModule) -> None:
    """Move reads of a tuple's items directly after the call that returns it: no cut divides them."""
    for node in calls_of(gm):
        if node.target is not operator.getitem or not isinstance(node.args[1], int):
            continue
        call = node.args[0]
        if isinstance(call, torch.fx.Node) and isinstance(call.meta.get("example_value"), tuple | list):
            call.append(node)


def runs_of(
    gm: torch.fx.GraphModule, refused: Mapping[torch.fx.Node, SplitReason], grad_enabled: bool
) -> list[Run]:
    """Return the runs of a graph in order: consecutive nodes with the same runner.

    Args:
        refused: the nodes that thunder does not compile. Items of what they return belong to them.
        grad_enabled: the grad mode in which the graph is called.

    A pair of calls between which a state holds (autocast, grad mode, inference mode) is within a run if all
    nodes between them are; otherwise torch runs the two calls, and the runs between them meet that state.
    """
    nodes = calls_of(gm)
    runners = _runners(nodes, refused, grad_enabled)
    borders = [i for i in range(1, len(nodes)) if _is_border(runners, i)]
    groups = [nodes[start:end] for start, end in pairwise([0, *borders, len(nodes)])]
    chosen = [runners[start] for start in [0, *borders]] if nodes else []
    return [
        _run(gm, group, runner, tuple(dict.fromkeys(refused[node] for node in group if node in refused)))
        for group, runner in zip(groups, chosen, strict=True)
    ]


def _is_border(runners: Sequence[Runner], position: int) -> bool:
    return runners[position] is not runners[position - 1] or runners[position] is Runner.TORCH


def _runners(
    nodes: Sequence[torch.fx.Node], refused: Mapping[torch.fx.Node, SplitReason], grad_enabled: bool
) -> list[Runner]:
    runners = [Runner.INDUCTOR if node in refused else Runner.THUNDER for node in nodes]
    for i, node in enumerate(nodes):
        if is_context_call(node):
            runners[i] = Runner.TORCH if node in refused else Runner.THUNDER
        elif i and node.target is operator.getitem and _item_follows(node, nodes[i - 1]):
            runners[i] = runners[i - 1]
    pairs = context_pairs(nodes, grad_enabled)
    while broken := [pair for pair in pairs if _is_broken(pair, runners)]:
        for pair in broken:
            runners[pair.start] = Runner.TORCH
            if pair.end is not None:
                runners[pair.end] = Runner.TORCH
        pairs = [pair for pair in pairs if pair not in broken]
    return runners


def _item_follows(node: torch.fx.Node, previous: torch.fx.Node) -> bool:
    """Return whether a node reads an item of the node before it, or of what that reads an item of."""
    source = node.args[0]
    return source is previous or (previous.target is operator.getitem and previous.args[0] is source)


def _is_broken(pair: ContextPair, runners: Sequence[Runner]) -> bool:
    """Return whether a node from the start to the end of a pair does not run in thunder."""
    if pair.end is None:
        return True
    return any(runner is not Runner.THUNDER for runner in runners[pair.start : pair.end + 1])


def _run(
    gm: torch.fx.GraphModule,
    nodes: Sequence[torch.fx.Node],
    runner: Runner,
    reasons: tuple[SplitReason, ...],
) -> Run:
    inside = set(nodes)
    sources = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return Run(
        runner=runner,
        module=module_of(gm, nodes, outputs),
        nodes=tuple(nodes),
        inputs=tuple(s.name for s in sources if s not in inside and s.op != "get_attr"),
        outputs=tuple(node.name for node in outputs),
        reasons=reasons,
    )


def module_of(
    gm: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node], outputs: Sequence[torch.fx.Node]
) -> torch.fx.GraphModule:
    """Return some nodes of a graph as a module; its arguments are the values from outside."""
    inside = set(nodes)
    sources = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
    outside = [source for source in sources if source not in inside]
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for source in outside:
        if source.op != "get_attr":
            copies[source] = graph.placeholder(source.name)
            copies[source].meta = dict(source.meta)
    for node in (*(source for source in outside if source.op == "get_attr"), *nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    return torch.fx.GraphModule(gm, graph)
