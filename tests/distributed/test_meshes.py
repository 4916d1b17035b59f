"""Layouts of many devices: memory, operations and bytes beside plans, and the search beside trying all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import thunder
from thunder.__main__ import main
from thunder.distributed import (
    Decoder,
    FSDPType,
    Level,
    Machine,
    MeshLayout,
    Network,
    Training,
    column_parallel,
    context_parallel,
    estimate_mesh,
    find_mesh,
    fsdp,
    plan,
    row_parallel,
)
from thunder_distributed.meshes.clusters import CLUSTERS, cluster_named
from thunder_distributed.meshes.decoders import DECODERS, decoder_of
from thunder_distributed.meshes.mesh_layouts import layouts_of
from thunder_distributed.meshes.mesh_memory import memory_of_layout, memory_of_rank, saved_by_block
from thunder_distributed.meshes.stages_of_ranks import blocks_of_stages, parts_of_ranks
from thunder_distributed.meshes.step_costs import FORMULAS, StepCosts

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = Decoder(layers=3, width=64, heads=4, groups=2, hidden=96, vocabulary=128)
LENGTH, BATCH = 32, 2


@pytest.fixture
def llama(monkeypatch):
    """The model of the examples, by number of layers, without memory."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from llama import Llama, LlamaConfig

    def model(layers: int) -> nn.Module:
        with torch.device("meta"):
            return Llama(
                LlamaConfig(
                    vocabulary=SMALL.vocabulary,
                    context=LENGTH,
                    layers=layers,
                    width=SMALL.width,
                    heads=SMALL.heads,
                    groups=SMALL.groups,
                    hidden=SMALL.hidden,
                    tied_head=False,
                )
            ).bfloat16()

    return model


def zero3(mesh):
    return [fsdp(process_group=mesh["shards"], sharding_strategy=FSDPType.ZERO3)]


def tensor(mesh):
    columns = ["*.query", "*.key", "*.value", "*.gate", "*.up"]
    rows = {"target_modules": ["*.output", "*.down"], "sequence_dim": 1}
    return [
        column_parallel(target_modules=columns, process_group=mesh["tensor"]),
        row_parallel(process_group=mesh["tensor"], **rows),
    ]


def ring(mesh):
    return [context_parallel(divide={"tokens": 1}, process_group=mesh["context"])]


LAYOUTS = {
    "zero3": (MeshLayout(shards=4, sharding="zero3", microbatch=BATCH), zero3),
    "tensor of 2": (MeshLayout(tensor=2, microbatch=BATCH), tensor),
}
TRAINING = Training(batch=BATCH * 4, length=LENGTH, parameters="bf16", gradients="bf16")


def plans(llama, name):
    """Return the layout, and the plans of models of one block and of two."""
    layout, transforms = LAYOUTS[name]
    found = [
        plan(
            llama(layers),
            torch.zeros(BATCH, LENGTH, dtype=torch.long, device="meta"),
            mesh=layout.mesh,
            transforms=transforms,
            executors=["torch"],
            overlap_collectives=0,
        )
        for layers in (1, 2)
    ]
    return layout, *found


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_a_block_computes_saves_and_sends_is_what_its_plan_says(llama, name):
    layout, one, two = plans(llama, name)
    tokens, size = BATCH * LENGTH, layout.tensor
    # the attention of a plan is not fused: it saves probabilities, a mask, and which rows see nothing; a norm
    # saves the scale of each vector
    probabilities = tokens * SMALL.heads // size * (2 * LENGTH + 1) + LENGTH * LENGTH + 2 * 2 * tokens // size
    of_queries = 4 * tokens * SMALL.heads // size
    saved = two.plan.memory.saved - one.plan.memory.saved
    assert saved_by_block(SMALL, layout, TRAINING) == saved - probabilities + of_queries
    flops = 2 * tokens * SMALL.products // size + 4 * tokens * LENGTH * SMALL.queries // size
    assert two.forward.flops - one.forward.flops == flops
    costs = StepCosts(SMALL, TRAINING, cluster_named("h100")[0])
    products = costs.block(layout).forward["products"] * costs._rates["bf16"]
    attention = costs.block(layout).forward["attention"] * costs._rates["bf16"]
    memory_bound = costs.item * SMALL.products / size / costs.machine.bandwidth * costs._rates["bf16"]
    assert max(2 * tokens * SMALL.products / size, memory_bound) == pytest.approx(products)
    assert 2 * tokens * LENGTH * SMALL.queries / size == pytest.approx(attention)  # half, as it is causal

    def sent(result, trace: str) -> dict[str, int]:
        rows: dict[str, int] = {}
        for c in result.communication:
            if c.trace == trace and (size == 1 or c.name != "all_reduce"):
                rows[c.name] = rows.get(c.name, 0) + c.nbytes
        return rows

    for trace in ("forward", "backward"):
        before, after = sent(one, trace), sent(two, trace)
        found = {kind: after[kind] - before.get(kind, 0) for kind in after}
        if size > 1:
            assert found == dict.fromkeys(("all_gather", "reduce_scatter"), 2 * 2 * tokens * SMALL.width)
        elif trace == "forward":
            assert found == {"all_gather": 2 * SMALL.block}
        else:
            assert found == {"all_gather": 2 * SMALL.block, "reduce_scatter": 2 * SMALL.block}


def test_parts_of_parameters_and_of_the_optimizer_are_those_of_the_plan(llama):
    layout, _, result = plans(llama, "zero3")
    decoder = replace(SMALL, layers=2)
    memory = memory_of_layout(decoder, layout, TRAINING)
    assert {name: memory[name] for name in ("parameters", "optimizer")} == {
        name: result.memory[name] for name in ("parameters", "optimizer")
    }
    assert decoder.parameters == sum(p.numel() for p in llama(2).parameters())


def test_a_ring_passes_the_bytes_that_its_plan_passes(llama):
    counts = []
    for layers in (1, 2):
        result = plan(
            llama(layers), torch.zeros(BATCH, LENGTH, dtype=torch.long, device="meta"), mesh={"context": 4},
            transforms=ring, executors=["torch"],
        )  # fmt: skip
        counts.append([sum(c.nbytes for c in result.communication if c.name == "rotate" and c.trace == t)
                       for t in ("forward", "backward")])  # fmt: skip
    layout = MeshLayout(context=4, microbatch=BATCH)
    costs = StepCosts(SMALL, TRAINING, cluster_named("h100")[0])
    bandwidth = costs.network.levels[0].bandwidth
    for backward in (False, True):
        nbytes = counts[1][backward] - counts[0][backward]
        assert costs._ring(layout, backward=backward).busy == pytest.approx((nbytes / bandwidth,))


# -- properties ----------------------------------------------------------------------------------------------

MACHINE = Machine(
    flops={"bf16": 1e12, "f32": 1e11}, bandwidth=1e11, within=1e10, between=1e9, devices=4, spread=0.01
)


def fitting(decoder, training, devices, machine, limit):
    """Estimates of all layouts that fit, the fastest first: no bound, and no order."""
    found = [
        estimate_mesh(decoder, layout, training, machine) for layout in layouts_of(decoder, training, devices)
    ]
    return sorted((e for e in found if e.peak <= limit), key=lambda e: e.seconds)


@pytest.mark.parametrize(
    ("devices", "batch", "part"),
    [(4, 8, 1.0), (8, 8, 0.5), pytest.param(8, 16, 0.3, marks=pytest.mark.sweep)],
)
def test_the_search_finds_what_trying_all_finds(devices, batch, part):
    training = Training(batch=batch, length=LENGTH)
    every = fitting(SMALL, training, devices, MACHINE, float("inf"))
    limit = int(sorted(e.peak for e in every)[int(part * (len(every) - 1))])
    of_mesh: dict[tuple, object] = {}
    for estimate in every:
        if estimate.peak <= limit:
            of_mesh.setdefault(tuple(estimate.layout.mesh.items()), estimate)
    expected = list(of_mesh.values())[:4]
    found = find_mesh(
        SMALL, devices, batch=batch, length=LENGTH, machine=MACHINE, memory=limit, headroom=0.0, most=4
    )
    assert [e.seconds for e in found] == [e.seconds for e in expected]
    assert [e.peak <= limit for e in found] == [True] * 4
    assert all(costs.least(e.layout) <= e.seconds for e in every for costs in (e.costs,))
    assert all(
        e.costs.least(e.layout, of_computing=True) <= e.costs.least(e.layout) * (1 + 1e-12) for e in every
    )


@pytest.mark.parametrize("seed", range(12))
def test_better_machines_and_less_work_take_no_longer(seed):
    generator = torch.Generator().manual_seed(seed)
    training = Training(batch=16, length=64)
    layouts = list(layouts_of(SMALL, training, 16))
    layout = layouts[int(torch.randint(len(layouts), (), generator=generator))]
    seconds = estimate_mesh(SMALL, layout, training, MACHINE).seconds
    assert sum(StepCosts(SMALL, training, MACHINE).parts(layout).values()) == seconds
    for field in ("bandwidth", "within", "between", "efficiency"):
        better = replace(MACHINE, **{field: 2 * getattr(MACHINE, field)})
        assert estimate_mesh(SMALL, layout, training, better).seconds <= seconds
    assert estimate_mesh(SMALL, layout, training, replace(MACHINE, spread=0.0)).seconds < seconds
    assert estimate_mesh(replace(SMALL, hidden=48), layout, training, MACHINE).seconds <= seconds
    memory = memory_of_layout(SMALL, layout, training)
    assert sum(memory_of_layout(replace(SMALL, width=32), layout, training).values()) < sum(memory.values())
    kept = [
        memory_of_layout(SMALL, replace(layout, checkpointing=c), training)["activations"]
        for c in ("none", "products")
    ]
    assert kept[0] >= kept[1] or layout.tensor == 1


def test_memory_is_that_of_the_rank_that_needs_the_most():
    training = Training(batch=16, length=64)
    layout = MeshLayout(pipeline=2, tensor=2, stages=2, schedule="interleaved")
    rows = [
        memory_of_rank(SMALL, layout, training, rank, parts)
        for rank, parts in enumerate(parts_of_ranks(SMALL, layout))
    ]
    assert memory_of_layout(SMALL, layout, training) == max(rows, key=lambda row: sum(row.values()))
    decoder = DECODERS["llama-3-405b"]
    deep = MeshLayout(pipeline=16, tensor=8, stages=8, schedule="interleaved")
    every = [
        memory_of_rank(decoder, deep, Training(batch=32, length=8192), rank, parts)
        for rank, parts in enumerate(parts_of_ranks(decoder, deep))
    ]
    most = memory_of_layout(decoder, deep, Training(batch=32, length=8192))
    assert sum(most.values()) == max(sum(row.values()) for row in every)


def test_stages_at_the_ends_have_the_fewest_blocks():
    assert blocks_of_stages(126, 128) == (0, *(1,) * 126, 0)
    assert blocks_of_stages(126, 16) == (7, *(8,) * 14, 7)
    assert blocks_of_stages(7, 3) == (2, 3, 2)
    for layers, stages in ((5, 2), (9, 4), (3, 5)):
        assert sum(blocks_of_stages(layers, stages)) == layers


def test_layouts_are_all_divisions_of_the_devices():
    training = Training(batch=8, length=64)
    layouts = list(layouts_of(SMALL, training, 8))
    assert len(set(layouts)) == len(layouts)
    assert {layout.devices for layout in layouts} == {8}
    assert {layout.tensor for layout in layouts} == {1, 2}  # two groups of keys
    assert all(layout.microbatches(8) * layout.data * layout.microbatch == 8 for layout in layouts)
    fixed = list(layouts_of(SMALL, training, 8, {"tensor": 2, "sharding": "zero3"}))
    assert fixed == [la for la in layouts if (la.tensor, la.sharding) == (2, "zero3")]
    with pytest.raises(thunder.InvalidArgument, match="no field 'tensors'"):
        find_mesh(SMALL, 8, batch=8, length=64, fixed={"tensors": 2})


def test_pods_that_share_links_make_layouts_slower_that_cross_them():
    machine, _ = cluster_named("llama-3-h100")
    pod = Level(name="pod", devices=None, bandwidth=50e9, latency=15e-6)
    levels, algorithms = (machine.links.levels[0], pod), machine.links.algorithms
    flat = replace(machine, network=Network(levels=levels, algorithms=algorithms))
    training = Training(batch=2048, length=8192)
    shards = MeshLayout(shards=64, pipeline=16, tensor=8, sharding="zero2", stages=4, schedule="interleaved")
    seconds = [estimate_mesh("llama-3-405b", shards, training, m).parts["data"] for m in (machine, flat)]
    assert seconds[0] > seconds[1] > 0


# -- what users pass and read --------------------------------------------------------------------------------


def test_configurations_name_the_same_decoder():
    of_transformers = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
        "tie_word_embeddings": False,
    }  # fmt: skip
    of_litgpt = SimpleNamespace(
        n_layer=32, n_embd=4096, n_head=32, n_query_groups=8, intermediate_size=14336,
        padded_vocab_size=128256, head_size=128, mlp_class_name="LLaMAMLP",
    )  # fmt: skip
    expected = DECODERS["llama-3-8b"]
    assert decoder_of(of_transformers) == decoder_of("Llama-3-8B") == expected
    assert replace(decoder_of(of_litgpt), head_width=None) == expected
    # table 3 of the paper says 8B, 70B, 405B
    assert [round(d.parameters / 1e9, 1) for d in DECODERS.values()] == [8.0, 70.6, 405.9]


def test_modules_and_unknown_configurations(llama):
    module = llama(2)
    module.config = {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
    }  # fmt: skip
    assert decoder_of(module) == replace(SMALL, layers=2)
    module.config["intermediate_size"] = 95
    with pytest.raises(thunder.InvalidArgument, match="is not the decoder that its configuration describes"):
        decoder_of(module)
    with pytest.raises(thunder.InvalidArgument, match="'gpt_oss'"):
        decoder_of({**module.config, "model_type": "gpt_oss"})
    with pytest.raises(thunder.InvalidArgument, match="missing"):
        decoder_of({"model_type": "llama"})
    with pytest.raises(thunder.InvalidArgument, match="is not the name of a decoder"):
        decoder_of("llama-9")


def test_what_does_not_fit_is_refused():
    with pytest.raises(thunder.InvalidArgument, match=r"no layout fits the memory"):
        find_mesh("llama-3-405b", 8, batch=8, length=8192)
    with pytest.raises(thunder.InvalidArgument, match="no layout divides the model"):
        find_mesh(SMALL, 8, batch=8, length=64, fixed={"tensor": 3})
    with pytest.raises(thunder.InvalidArgument, match="devices=0 is not"):
        find_mesh(SMALL, 0, batch=8, length=64)
    with pytest.raises(thunder.InvalidArgument, match="no network is known of 'cpu'"):
        find_mesh(SMALL, 8, batch=8, length=64, device="cpu")
    with pytest.raises(thunder.InvalidArgument, match="no figure for products of f8"):
        find_mesh(SMALL, 8, batch=8, length=64, device="a100", products="f8")
    with pytest.raises(thunder.InvalidArgument, match="no whole number of microbatches"):
        estimate_mesh(SMALL, MeshLayout(microbatch=3), Training(batch=8, length=64))


def test_the_text_has_each_figure_with_its_formula():
    found = find_mesh("llama-3-8b", 16, batch=32, length=8192, most=2, fixed={"tensor": 2, "context": 2})
    head, *rows = str(found).splitlines()
    assert head.split()[:3] == ["layout", "memory", "step,"]
    assert len(rows) == 2
    assert f"{found[0].mfu:.1%}" in rows[0]
    assert rows[0].startswith(str(found[0].layout))
    text = found[0].explain()
    for name, seconds in found[0].parts.items():
        assert (f"{name}: {FORMULAS[name]}" in text) == bool(seconds)
    assert "by ring" in text
    assert "rotate" in text
    model_flops = 6 * (DECODERS["llama-3-8b"].parameters - 128256 * 4096 - 65 * 4096)
    attention = 6 * 32 * 8192 * 4096
    rate = (model_flops + attention) * found[0].tokens_per_second / 989e12
    assert found[0].mfu == pytest.approx(rate)


def test_the_command_prints_the_table(capsys, tmp_path):
    arguments = ["mesh", "llama-3-8b", "--devices", "8", "--batch", "8", "--fix", "tensor=8", "--most", "1"]
    assert main([*arguments, "--explain"]) == 0
    out = capsys.readouterr().out
    assert "tensor 8" in out
    assert FORMULAS["products"] in out
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama"}))
    assert main(["mesh", str(file), "--devices", "8"]) == 2
    assert "is not the configuration of a decoder" in capsys.readouterr().err
    assert main(["mesh", "thunder_distributed.meshes.decoders:DECODERS['llama-3-8b']", *arguments[2:]]) == 0


def test_each_cluster_has_a_machine():
    for name, cluster in CLUSTERS.items():
        machine, memory = cluster_named(name)
        assert machine.links.levels == cluster.levels
        assert memory > 2**35
        assert "bf16" in machine.flops
        assert cluster.source


# -- published steps -----------------------------------------------------------------------------------------

TITAN = {"replicas": 1, "pipeline": 1, "context": 1, "tensor": 1, "sharding": "zero3"}
LLAMA = {
    "replicas": 1,
    "pipeline": 16,
    "tensor": 8,
    "sharding": "zero2",
    "checkpointing": "none",
    "microbatch": 1,
}
DEEP = {**TITAN, "tensor": 8, "pipeline": 8, "sharding": "zero2", "microbatch": 1}
AGAIN = {"checkpointing": "blocks"}
KEPT = {"checkpointing": "products"}
#: cluster, bandwidth if not the data sheet's, model, devices, batch, length, dtype of products, fixed → the
#: published figure (tokens per second, or Tflop/s), and the estimate; sources are in docs/distributed.md
PUBLISHED = [
    ("llama-3-h100", 0, "405b", 8192, 2048, 8192, "bf16", {**LLAMA, "context": 1}, "430 Tflop/s", 428),
    ("llama-3-h100", 0, "405b", 16384, 2048, 8192, "bf16", {**LLAMA, "context": 1}, "400 Tflop/s", 400),
    ("llama-3-h100", 0, "405b", 16384, 128, 131072, "bf16", {**LLAMA, "context": 16}, "380 Tflop/s", 402),
    ("a100", 0, "8b", 64, 64, 8192, "bf16", {**TITAN, **KEPT, "microbatch": 1}, "2,973 tokens/s", 3052),
    ("a100", 0, "70b", 64, 64, 8192, "bf16", {**TITAN, **AGAIN, "microbatch": 1}, "331 tokens/s", 273),
    ("h100", 2.4e12, "8b", 8, 16, 8192, "bf16", {**TITAN, **KEPT, "microbatch": 2}, "6,667 tokens/s", 9088),
    ("h100", 2.4e12, "8b", 128, 256, 8192, "bf16", {**TITAN, **KEPT, "microbatch": 2},
     "6,514 tokens/s", 9032),
    ("h100", 2.4e12, "70b", 256, 512, 8192, "f8", {**TITAN, **AGAIN, "tensor": 8, "microbatch": 16},
     "829 tokens/s", 1092),
    ("h100", 2.4e12, "405b", 512, 256, 8192, "f8", {**DEEP, **AGAIN, "schedule": "1f1b"},
     "100 tokens/s", 188),
    ("h100", 2.4e12, "405b", 512, 256, 8192, "f8", {**DEEP, **AGAIN, "schedule": "interleaved"},
     "128 tokens/s", 221),
]  # fmt: skip


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row[2]} on {row[3]}")
def test_the_page_has_what_is_estimated_of_published_steps(row):
    cluster, bandwidth, name, devices, batch, length, dtype, fixed, published, expected = row
    machine, _ = cluster_named(cluster)
    if bandwidth:
        machine = replace(machine, bandwidth=bandwidth)
    (found,) = find_mesh(
        f"llama-3-{name}", devices, batch=batch, length=length, machine=machine, memory=2**50,
        fixed=fixed, most=1, products=dtype,
    )  # fmt: skip
    rate = found.tokens_per_second
    if "Tflop/s" in published:
        rate *= DECODERS[f"llama-3-{name}"].flops_of_token(length) / 1e12
    assert round(rate) == expected
    page = (EXAMPLES.parent / "docs/distributed.md").read_text(encoding="utf-8")
    error = f"{expected / float(published.split()[0].replace(',', '')) - 1:+.0%}".replace("%", " %")
    error = "0 %" if error in ("+0 %", "-0 %") else error
    assert f"| {published} | {expected:,} | {error} |" in page


@pytest.mark.parametrize(("schedule", "stages"), [("1f1b", 1), ("interleaved", 2), ("zero bubble", 1)])
def test_many_microbatches_take_what_their_whole_schedule_takes(schedule, stages):
    decoder = replace(SMALL, layers=11)
    layout = MeshLayout(pipeline=4, schedule=schedule, stages=stages)
    training = Training(batch=64, length=LENGTH)
    for links in (1e6, 1.0):
        machine = replace(MACHINE, within=links * 1e10, between=links * 1e9)
        costs = StepCosts(decoder, training, machine)
        assert costs.pipelined(layout) == pytest.approx(costs._simulated(layout, 64), rel=0.02)
