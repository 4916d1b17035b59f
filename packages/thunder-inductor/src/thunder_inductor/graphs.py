"""From a fusion region to a graph of ATen operators, as TorchInductor compiles it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from thunder.extend import EagerStrides, Region, evaluate_region, stand_in_tensor, unwritten

from .edge_values import WITH_EDGE_VALUES
from .gathers import CheckedIndices, reads_at_indices
from .kernels import Strides
from .maxima import WITH_INDICES, returns_indices
from .rounding import with_numbers_as_eager
from .run_time_numbers import is_number, with_numbers_opened

__all__ = ["Graph", "graph_of", "recorded_graph"]


@dataclass(frozen=True)
class Graph:
    """A region as a graph, for one combination of input strides.

    Attributes:
        module: the graph; it returns as a tuple the outputs of the region that it does not write to inputs.
        inputs: tensors without data in the place of the region's inputs.
        mode: the mode of these tensors.
        output_strides: eager's strides (elements) of the outputs that are not written to inputs, and of the
            bool that says whether an index is out of range.
    """

    module: GraphModule
    inputs: tuple[torch.Tensor, ...]
    mode: FakeTensorMode
    output_strides: tuple[Strides, ...]


def graph_of(region: Region, strides: Sequence[Strides], *, rounds: bool = True) -> Graph:
    """Return the graph of a region whose inputs have these strides (elements).

    The torch functions of the region's calls run on tensors without data, and what they dispatch is recorded
    with TorchInductor's decompositions. Nothing is traced by TorchDynamo.
    """
    mode = FakeTensorMode()
    with mode:
        inputs = tuple(
            torch.empty((), dtype=torch.float64)
            if is_number(p)
            else stand_in_tensor(p, torch.device(str(p.device)), strides=layout)
            for p, layout in zip(region.inputs, strides, strict=True)
        )
    known = [1.0 if is_number(p) else x for p, x in zip(region.inputs, inputs, strict=True)]
    layouts = EagerStrides(region).of(known)
    derived = [layout or () for layout in unwritten(region, layouts)]
    if reads_at_indices(region):
        derived.append(())
    opened = with_numbers_opened(region)

    def run(*tensors: torch.Tensor) -> tuple[Any, ...]:
        return tuple(evaluate_region(opened, tensors))

    module = recorded_graph(run, region, inputs, mode, rounds)
    _compute_in_inputs(module, region, strides, layouts)
    if region.copied:
        _write_to_inputs(module, region)
    # TorchInductor gives results of its own choice other strides than these only if they are not listed here.
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    output.meta["user_visible_output_idxs"] = list(range(len(derived)))
    output.meta["original_output_strides"] = derived
    return Graph(module, inputs, mode, tuple(derived))


def recorded_graph(
    run: Callable[..., Any], region: Region, inputs: Sequence[Any], mode: FakeTensorMode, rounds: bool
) -> GraphModule:
    """Return the graph of what a function, which computes a region, dispatches for tensors of a mode.

    One of a region that reads at indices has a result more: whether an index was out of range.
    """
    # Functions without tensor arguments, as torch.zeros, return fake tensors too.
    # A mode of the caller, as a default device, has no effect on the region.
    with mode, torch._C.DisableTorchFunction():
        module = _record(run, region, inputs, rounds)
        if any(_writes(node.target) for node in module.graph.nodes):
            module = _record(functionalize(run, remove="mutations"), region, inputs, rounds)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _compute_in_inputs(
    module: GraphModule, region: Region, strides: Sequence[Strides], layouts: Sequence[Strides | None]
) -> None:
    """Let the graph of a region compute outputs in the memory of inputs that have the same strides."""
    graph = module.graph
    inputs = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    values = list(output.args[0])
    with graph.inserting_before(output):
        for computed, target in region.reused:
            if layouts[computed] == strides[target] and values[computed].op != "placeholder":
                copy = graph.call_function(torch.ops.aten.copy_.default, (inputs[target], values[computed]))
                copy.meta["val"] = inputs[target].meta["val"]
                values[computed] = copy
    output.args = (tuple(values),)
    module.recompile()


def _write_to_inputs(module: GraphModule, region: Region) -> None:
    """Copy outputs to inputs at the end of a graph, instead of returning them."""
    graph = module.graph
    inputs = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    values = output.args[0]
    with graph.inserting_before(output):
        for written, target in region.copied:
            copy = graph.call_function(torch.ops.aten.copy_.default, (inputs[target], values[written]))
            copy.meta["val"] = inputs[target].meta["val"]
    output.args = (tuple(unwritten(region, values)),)
    module.recompile()


def _record(
    function: Callable[..., tuple[Any, ...]], region: Region, inputs: Sequence[Any], rounds: bool
) -> GraphModule:
    indices = CheckedIndices() if reads_at_indices(region) else None
    table = {**select_decomp_table(), **WITH_EDGE_VALUES}
    if any(map(returns_indices, region.bsyms)):
        table.update(WITH_INDICES)
    if indices is not None:
        table.update(indices.decompositions)
    if rounds:
        table = with_numbers_as_eager(table)

    def run(*tensors: torch.Tensor) -> tuple[Any, ...]:
        results = function(*tensors)
        return results if indices is None else (*results, indices.outside())

    record = make_fx(run, decomposition_table=table, tracing_mode="real", _allow_non_fake_inputs=True)
    recorded = record(*inputs)
    assert isinstance(recorded, GraphModule), f"make_fx returned {type(recorded).__name__}"
    return recorded


def _writes(target: object) -> bool:
    """Return whether a node of a graph calls an operator that writes to an argument."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
