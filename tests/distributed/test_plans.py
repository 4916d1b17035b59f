"""Plans of many processes in one: bytes, memory and time, beside what is counted and what is known."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
from distributed.plan_cases import COUNTED, LAYOUTS, arguments
from distributed.small_models import words
from thunder.distributed import FSDPBucketingStrategy, FSDPType, Machine, ddp, fsdp, plan
from thunder.extend import profile_named

#: easy figures: one operation, and one byte of memory, in a second; links that are slower
SIMPLE = Machine(
    flops={"f32": 1.0, "f64": 1.0},
    bandwidth=1.0,
    within=0.5,
    between=0.125,
    devices=2,
    latency_within=0.0,
    latency_between=0.0,
)


def planned(transform, processes: int = 4, model: nn.Module | None = None, **options):
    model = nn.Linear(8, 8, bias=False) if model is None else model
    return plan(model, torch.ones(2, 8), mesh=(processes,), transforms=[transform], **options)


#: the modules whose cases four processes run
FOUR_PROCESSES = ("plan_cases",)


@pytest.mark.multi_process
@pytest.mark.parametrize("name", COUNTED)
def test_predicted_bytes_are_those_that_processes_communicate(results, name: str):
    layout, size = LAYOUTS[name.removeprefix("bytes of ")], len(results[name])
    for rank, outcome in enumerate(results[name]):
        expected = plan(
            words(), *arguments(rank, size), mesh=(size,), transforms=[layout()], rank=rank, device="h100"
        )
        rows = {t.collective: (t.count, t.nbytes) for t in expected.traffic}
        assert rows == outcome.get()
        assert sum(nbytes for _, nbytes in rows.values()) == expected.communication.nbytes > 0


def test_memory_by_category_is_the_memory_of_the_plan():
    for layout in LAYOUTS.values():
        result = plan(words(), *arguments(0, 4), mesh=(4,), transforms=[layout()])
        memory = result.plan.memory
        assert result.peak - result.memory["optimizer"] == memory.peak
        assert result.memory["optimizer"] == 2 * result.memory["parameters"]


def test_parameters_and_optimizer_are_parts_and_gathered_parameters_are_whole():
    wide = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4)))
    whole = 4 * 64 * 64 * 4
    x = torch.ones(1, 64)
    results = {
        name: plan(wide, x, mesh=(4,), transforms=[transform], overlap_collectives=0)
        for name, transform in (
            ("ddp", ddp()),
            ("zero2", fsdp()),
            ("zero3", fsdp(sharding_strategy=FSDPType.ZERO3)),
        )
    }
    assert {name: r.memory["parameters"] for name, r in results.items()} == {
        "ddp": whole,
        "zero2": whole // 4,
        "zero3": whole // 4,
    }
    gathered = {name: r.memory["gathered parameters"] for name, r in results.items()}
    assert gathered["ddp"] == 0
    assert gathered["zero3"] < gathered["zero2"] < whole


def test_the_time_of_a_step_is_that_of_the_roofline():
    result = planned(fsdp(), machine=SIMPLE, overlap_collectives=0)
    # x is (2, 8), w (8, 8), in float32: 2 * 2 * 8 * 8 operations; 64 + 256 + 64 bytes are more
    assert result.forward.flops == 256
    assert result.forward.compute == 384
    # 256 bytes in a ring of 4 processes on 2 nodes: 192 bytes, over two adapters of 0.125 bytes a second
    assert result.forward.communication == 192 / 0.25
    assert result.forward.total == 384 + 768
    assert result.forward.exposed == 768
    assert [t.link for t in result.traffic] == ["between nodes"] * 2
    # 64 bytes of parameters, of a gradient, and of two tensors of the optimizer
    assert result.optimizer == (3 + 2 * 2) * 64


def test_a_group_within_a_node_uses_its_links():
    result = planned(fsdp(), processes=2, machine=SIMPLE, overlap_collectives=0)
    assert result.forward.communication == 128 / 0.5
    assert {t.link for t in result.traffic} == {"within a node"}


def test_gathers_ahead_are_hidden_by_computation():
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(6)))
    exposed = [
        planned(fsdp(), model=model, machine=SIMPLE, overlap_collectives=depth).forward.exposed
        for depth in (0, 1)
    ]
    assert 0 < exposed[1] < exposed[0]


def test_dimensions_of_a_mesh_are_selected_by_name():
    result = plan(
        nn.Linear(8, 8, bias=False),
        torch.ones(2, 8),
        mesh={"replicate": 128, "shard": 8},
        transforms=lambda mesh: [fsdp(process_group=mesh["shard"]), ddp(process_group=mesh["replicate"])],
        rank=1000,
    )
    rows = [(t.collective, t.link, t.nbytes) for t in result.traffic]
    assert rows == [
        ("all_gather", "within a node", 256),
        ("reduce_scatter", "within a node", 256),
        ("all_reduce", "between nodes", 32),
    ]
    assert not dist.is_initialized()
    assert "rank 1000 of replicate 128, shard 8" in str(result)


def test_a_plan_needs_a_mesh_and_no_other_group(fake_group):
    with pytest.raises(thunder.InvalidArgument, match="mesh=8 is not a mesh"):
        plan(nn.Linear(8, 8), torch.ones(2, 8), mesh=8)
    with pytest.raises(thunder.InvalidArgument, match="rank=4 is not one of 4 processes"):
        planned(fsdp(), rank=4)
    with pytest.raises(thunder.InvalidArgument, match=r"is initialised already\n.*processes:  2"):
        planned(fsdp())
    assert planned(fsdp(), processes=2).communication


def test_a_plan_with_a_mesh_is_a_plan_of_this_package():
    model, x = nn.Linear(8, 8, bias=False), torch.ones(2, 8)
    mesh, device = {"replicate": 2, "shard": 4}, profile_named("a100")

    def transforms(mesh):
        return [fsdp(process_group=mesh["shard"]), ddp(process_group=mesh["replicate"])]

    result = thunder.plan(model, x, mesh=mesh, device=device, transforms=transforms, overlap_collectives=0)
    expected = plan(model, x, mesh=mesh, device="a100", transforms=transforms, overlap_collectives=0)
    assert str(result) == str(expected)
    assert result.seconds == expected.seconds != plan(model, x, mesh=mesh, transforms=transforms).seconds
    assert result.plan.device is device
    with pytest.raises(thunder.InvalidArgument, match="mesh='8' is not a mesh"):
        thunder.plan(model, x, mesh="8")


def test_a_device_without_figures_is_refused():
    with pytest.raises(
        thunder.InvalidArgument, match=r"no arithmetic and links are known of the device 'cpu'"
    ):
        planned(fsdp(), device="cpu")
    with pytest.raises(thunder.InvalidArgument, match="no figure for products of f32"):
        planned(fsdp(), machine=Machine(flops={}, bandwidth=1e3, within=1.0, between=1.0))


# -- large models --------------------------------------------------------------------------------------------

#: layers, width, heads, hidden of Llama 3 (Grattafiori et al., The Llama 3 Herd of Models, 2024, table 3)
LLAMAS = {
    "8B": (32, 4096, 32, 14336),
    "70B": (80, 8192, 64, 28672),
    "405B": (126, 16384, 128, 53248),
}


def test_the_example_of_layouts_has_a_row_for_each(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    monkeypatch.delitem(sys.modules, "llama", raising=False)
    import llama_plans

    assert llama_plans.MODELS == LLAMAS
    monkeypatch.setattr(llama_plans, "MODELS", {"tiny": (1, 64, 8, 96)})
    llama_plans.main(["--length", "64"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert [row[:2] for row in cells] == [["tiny", name] for name in llama_plans.LAYOUTS]
    assert {len(row) for row in cells} == {head.count("|") - 1}
    assert all(float(row[5].split()[0]) > 0 for row in cells)


@pytest.mark.sweep
@pytest.mark.parametrize("name", LLAMAS)
def test_a_llama_is_planned_on_1024_processes(name: str, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    monkeypatch.delitem(sys.modules, "llama", raising=False)
    from llama import Llama, LlamaConfig

    layers, width, heads, hidden = LLAMAS[name]
    with torch.device("meta"):
        config = LlamaConfig(
            vocabulary=128256, context=4096, layers=layers, width=width, heads=heads, groups=8, hidden=hidden,
            tied_head=False,
        )  # fmt: skip
        model, tokens = Llama(config).bfloat16(), torch.zeros(1, 4096, dtype=torch.long)
    zero3 = fsdp(sharding_strategy=FSDPType.ZERO3, bucketing_strategy=FSDPBucketingStrategy.BLOCK)
    result = plan(model, tokens, mesh=(1024,), transforms=[zero3])
    padded = sum(2 * math.ceil(p.shape[0] / 1024) * 1024 * p[0].numel() for p in model.parameters())
    assert result.memory["parameters"] == padded // 1024
    reduced = sum(t.nbytes for t in result.traffic if t.collective == "reduce_scatter")
    gathered = sum(t.nbytes for t in result.traffic if t.collective == "all_gather")
    assert reduced == padded
    assert padded < gathered <= 2 * padded
    attention = layers * 4 * 4096 * 4096 * width
    assert result.forward.flops == 2 * 4096 * products_of_matrices(model) + attention


def products_of_matrices(model: nn.Module) -> int:
    """Return the number of elements of the weights of linear layers."""
    return sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
