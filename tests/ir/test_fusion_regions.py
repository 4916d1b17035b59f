"""The regions that core finds for fusion executors: programs fused at random do what eager does.

A property holds for any choice of the operators that can be fused, and any bounds. The judges are eager torch
for values, memory and effects, and networkx for the graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import networkx
import pytest
import torch

import thunder
from comparison.results import assert_same
from thunder.core.pytree import tree_map
from thunder.extend import Bounds, Cuts, EagerStrides, FusionExecutor, Refusal, Region, partition
from thunder.ops.operator import row_of

OPERATORS: dict[str, Callable[..., Any]] = {
    "torch.sin": lambda a, b: torch.sin(a),
    "torch.mul": lambda a, b: a * b,
    "torch.add": lambda a, b: a + b,
    "torch.sub": lambda a, b: a - b,
    "torch.transpose": lambda a, b: a.transpose(0, 1),
    "torch.reshape": lambda a, b: a.reshape(3, 3),
    "torch.cumsum": lambda a, b: a.cumsum(0),
    "torch.rand": lambda a, b: a + torch.rand(3, 3),
    "torch.sort": lambda a, b: a.sort(dim=1).values,
    "torch.relu": lambda a, b: a.relu(),
    "torch.broadcast_tensors": lambda a, b: torch.broadcast_tensors(a, b[0])[1],
}


class Interpreted(FusionExecutor):
    """Runs the calls of a region one by one."""

    def __init__(self, supported: tuple[str, ...], **options: Any) -> None:
        super().__init__("interpreted")
        self.regions: list[Region] = []
        for name, value in options.items():
            setattr(self, name, value)
        for id in supported:
            self.register_supported(id)

    def fuse(self, region: Region, fusion_counter: int) -> Any:
        self.regions.append(region)
        strides = EagerStrides(region)

        def run(*inputs: Any) -> list[Any]:
            values = {p.name: x for p, x in zip(region.inputs, inputs, strict=True)}
            for call in region.bsyms:
                args, kwargs = tree_map(
                    lambda x: values.get(getattr(x, "name", None), x), (call.args, call.kwargs)
                )
                result = row_of(call.sym).eager(*args, **kwargs)
                results = result if isinstance(result, tuple) else (result,)
                values.update(zip([p.name for p in call.flat_proxy_outs], results, strict=True))
            # results with memory and strides of their own, as a compiler's are
            outputs = [values[p.name].clone(memory_format=torch.contiguous_format) for p in region.outputs]
            return strides.apply(outputs, inputs)

        return self.register_temporary_operation(
            f"Interpreted{fusion_counter}",
            run,
            inputs=region.inputs,
            outputs=region.outputs,
            bsyms=region.bsyms,
        )


def random_program(seed: int) -> Callable[..., Any]:
    """A function of two tensors: operators, views, writes to inputs and random numbers in random order."""
    chooser = random.Random(seed)
    steps = [
        (chooser.choice([*OPERATORS, "write"]), chooser.random(), chooser.random())
        for _ in range(chooser.randint(4, 24))
    ]
    returned = [chooser.random() for _ in range(3)]

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        values = [x, y]
        for name, a, b in steps:
            left, right = values[int(a * len(values))], values[int(b * len(values))]
            if name == "write":
                x.add_(right.detach().sum())
            else:
                values.append(OPERATORS[name](left, right))
        return [values[int(r * len(values))] for r in returned]

    return program


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(3, 3, generator=generator) for _ in range(2))
    return (x.t(), y) if seed % 3 == 0 else (x, y)


def memory_of(results: list[torch.Tensor]) -> list[list[bool]]:
    """Return which of the results share memory."""
    return [
        [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in results] for a in results
    ]


@pytest.mark.parametrize("seed", range(60))
def test_any_regions_of_any_program_compute_the_same(seed: int) -> None:
    chooser = random.Random(seed)
    supported = tuple(name for name in OPERATORS if name != "torch.rand" and chooser.random() < 0.6)
    bounds = Bounds(operators=chooser.choice([None, None, 1, 3]), values=chooser.choice([None, None, 4]))
    executor = Interpreted(supported, bounds=bounds, horizontal=chooser.choice((False, True, "siblings")))
    executor.cuts = chooser.choice(
        (None, Cuts(after=lambda bsym: True, calls=chooser.randint(1, 3), values=4, repeats=2))
    )
    program = random_program(seed)
    compiled = thunder.jit(
        program, executors=[executor], debug_options=thunder.DebugOptions(check_traces=True)
    )
    theirs, ours = inputs(seed), inputs(seed)
    torch.manual_seed(0)
    expected = program(*theirs)
    torch.manual_seed(0)
    actual = compiled(*ours)
    assert_same(actual, expected)
    assert_same(list(ours), list(theirs))
    assert memory_of([*actual, *ours]) == memory_of([*expected, *theirs])
    assert [t.stride() for t in actual] == [t.stride() for t in expected]
    assert all(bounds.allow(region) for region in executor.regions)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_regions_are_convex_and_as_large_as_possible(seed: int) -> None:
    chooser = random.Random(seed)
    supported = {name for name in OPERATORS if chooser.random() < 0.6}
    compiled = thunder.jit(random_program(seed))
    compiled(*inputs(seed))
    trace = [
        t for t in thunder.last_traces(compiled) if all(b.sym.executor is None for b in t.bound_symbols)
    ][-1]
    regions = partition(trace, lambda bsym: bsym.sym.id in supported)
    assert [[str(b) for b in r.bsyms] for r in regions] == [
        [str(b) for b in r.bsyms] for r in partition(trace, lambda bsym: bsym.sym.id in supported)
    ]
    graph = data_flow(trace.bound_symbols)
    quotient = networkx.DiGraph()
    group = {b: i for i, region in enumerate(regions) for b in region.bsyms if b not in region.repeated}
    for a, b in graph.edges:
        if group.get(a, a) != group.get(b, b):
            quotient.add_edge(group.get(a, a), group.get(b, b))
    assert networkx.is_directed_acyclic_graph(quotient)
    for a, b in list(quotient.edges):
        if isinstance(a, int) and isinstance(b, int):
            quotient.remove_edge(a, b)
            assert networkx.has_path(quotient, a, b), f"regions {a} and {b} could be one"
            quotient.add_edge(a, b)


def data_flow(bsyms: Any) -> networkx.DiGraph:
    """Return the graph of the statements: edges to the readers of a value, and between random numbers."""
    graph, producer = networkx.DiGraph(), {}
    for bsym in bsyms:
        graph.add_node(bsym)
        graph.add_edges_from((producer[p.name], bsym) for p in bsym.flat_proxy_args if p.name in producer)
        if bsym.sym.id == "torch.rand":
            graph.add_edges_from([(producer["random"], bsym)] if "random" in producer else [])
            producer["random"] = bsym
        producer.update({p.name: bsym for p in bsym.flat_proxy_outs if p.name not in producer})
    return graph


def program_with_a_view(x: torch.Tensor) -> Any:
    a = torch.sin(x)
    b = a.transpose(0, 1)
    return a, b, b + 1


def lines(compiled: Any) -> list[str]:
    return [line.strip() for line in str(thunder.last_traces(compiled)[-1]).splitlines()]


def test_a_view_that_leaves_its_region_runs_behind_it_as_well() -> None:
    executor = Interpreted(("torch.sin", "torch.transpose", "torch.add"))
    compiled = thunder.jit(program_with_a_view, executors=[executor])
    compiled(torch.randn(3, 3))
    (region,) = executor.regions
    assert [b.sym.id for b in region.bsyms] == ["torch.sin", "torch.transpose", "torch.add"]
    assert [p.name for p in region.outputs] == [region.bsyms[0].output.name, region.bsyms[2].output.name]
    assert [b.sym.id for b in region.repeated] == ["torch.transpose"]
    row = next(row for row in thunder.explain(compiled).rows if row.symbol == "torch.transpose")
    assert (row.claimed_by, row.via) == ("torch", "always")
    assert "a region returns no memory of its inputs or values" in str(thunder.explain(compiled))


def test_the_argument_that_a_view_returns_leaves_the_region_that_computes_it() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = torch.broadcast_tensors(torch.sin(x), torch.cos(y))
        return b, a + b

    executor = Interpreted(("torch.sin", "torch.cos", "torch.broadcast_tensors", "torch.add"))
    compiled = thunder.jit(program, executors=[executor])
    x, y = torch.randn(3, 3), torch.randn(3)
    assert_same(compiled(x, y), program(x, y))
    (region,) = executor.regions
    assert [b.sym.id for b in region.repeated] == ["torch.broadcast_tensors"]
    assert {p.name for p in region.repeated[0].flat_proxy_args} <= {p.name for p in region.outputs}


def test_a_refusal_of_fuse_and_missing_fuel_are_in_the_ledger() -> None:
    class Choosy(Interpreted):
        def fuse(self, region: Region, fusion_counter: int) -> Any:
            if len(region.bsyms) < 2:
                return Refusal("small", "a region of one call gains nothing", calls=len(region.bsyms))
            return super().fuse(region, fusion_counter)

    def program(x: torch.Tensor) -> Any:
        return torch.linalg.inv(torch.sin(x)), torch.cos(torch.cos(x))

    choosy = Choosy(("torch.sin", "torch.cos"))
    compiled = thunder.jit(program, executors=[choosy])
    x = torch.randn(3, 3)
    assert_same(compiled(x), program(x))
    rows = {row.outputs[0]: row for row in thunder.explain(compiled).rows}
    assert [row.via for row in rows.values()].count("fusion") == 2
    assert "a region of one call gains nothing" in str(thunder.explain(compiled))
    choosy.set_fuel(0)
    compiled = thunder.jit(program, executors=[choosy])
    assert_same(compiled(x), program(x))
    assert "the fuel that set_fuel gave is used up" in str(thunder.explain(compiled))
    assert not any("Interpreted" in line for line in lines(compiled))


def test_regions_are_bounded_by_their_memory() -> None:
    def chain(x: torch.Tensor) -> Any:
        return x.sin().cos().sin().cos()

    size = 16 * 4
    for limit, count in ((size, 0), (2 * size, 4), (3 * size, 1), (None, 1)):
        executor = Interpreted(("torch.sin", "torch.cos"), bounds=Bounds(peak_bytes=limit))
        thunder.jit(chain, executors=[executor])(torch.randn(16))
        assert len(executor.regions) == count, limit
