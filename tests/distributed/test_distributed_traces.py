"""Traces of distributed programs, and misuse, in one process of a pretended group."""

from __future__ import annotations

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.small_models import batches, part, words
from distributed.training_cases import STRATEGIES
from thunder.core.options import DebugOptions
from thunder.distributed import (
    DistParallelType,
    FSDPBucketingStrategy,
    FSDPType,
    communication,
    copy_default_process_group,
    ddp,
    fsdp,
    prims,
    skip_data_parallel_grad_sync,
)

CHECKED = DebugOptions(check_traces=True)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def called(compiled, backward: bool = True):
    result = compiled(torch.ones(2, 4))
    if backward:
        result.sum().backward()
    return compiled


def text(compiled) -> str:
    traces = [*thunder.last_traces(compiled), *thunder.last_backward_traces(compiled)]
    return "\n".join(trace.python(print_depth=-1, include_timing=False) for trace in traces)


@pytest.mark.parametrize("make", [ddp, fsdp])
def test_the_three_forms_have_equal_traces(fake_group, make):
    as_transform = called(thunder.jit(network(), transforms=[make()]))
    as_module = called(thunder.jit(make(network())))
    as_compiled = called(make(thunder.jit(network())))
    assert text(as_transform) == text(as_module) == text(as_compiled)


def test_a_plugin_of_recipes_is_the_transform(fake_group):
    plain = called(thunder.jit(network(), transforms=[fsdp()]))
    recipe = called(thunder.compile(network(), plugins="fsdp"))
    assert [c.signature for c in communication(recipe)] == [c.signature for c in communication(plain)]


def test_synchronisations_are_statements_with_the_users_line(fake_group):
    model = words()
    compiled = thunder.jit(model, transforms=[fsdp()], debug_options=CHECKED)
    compiled(*part(batches(1, 2)[0], 0))
    first = next(t for t in thunder.last_traces(compiled) if "synchronize(" in str(t)).python()
    assert "synchronize(t_scale, '0', _DistParallelType_FULLY_SHARDED_0, None" in first
    sources = [collective.source for collective in communication(compiled)]
    assert any("small_models.py" in source for source in sources)


def test_tied_parameters_are_communicated_once(fake_group):
    compiled = thunder.jit(words(), transforms=[fsdp()])
    compiled(*part(batches(1, 2)[0], 0)).backward()
    rows = [c for c in communication(compiled) if c.shape == (4, 5)]
    assert [c.name for c in rows] == ["all_gather"]


@pytest.mark.parametrize(
    ("megabytes", "sizes"), [(25.0, [51]), (100 / 2**20, [21, 6, 24]), (0, [3, 18, 6, 24])]
)
def test_a_bucket_of_gradients_has_at_most_its_size(fake_group, megabytes, sizes):
    compiled = called(thunder.jit(network(), transforms=[ddp(bucket_size_in_mb=megabytes)]))
    assert [c.nbytes // 4 for c in communication(compiled)] == sizes


def test_bucketing_and_levels_change_the_number_of_collectives(fake_group):
    counts, gathers = {}, {}
    for name, strategy in STRATEGIES.items():
        compiled = thunder.jit(words(), transforms=[strategy()])
        compiled(*part(batches(1, 2)[0], 0)).backward()
        names = [collective.name for collective in communication(compiled)]
        counts[name], gathers[name] = len(names), names.count("all_gather")
    # 15 parameters, of which one is frozen: each is gathered, and each gradient reduced
    assert counts["zero2-none"] == 15 + 14
    assert counts["zero2-none"] > counts["zero2-layer"] > counts["zero2-block"] == 6
    assert counts["zero3-none"] > counts["zero3-layer"] > counts["zero3-block"]
    assert counts["ddp-none"] == 14 > counts["ddp-small"] > counts["ddp-large"] == 1
    for bucket in ("none", "layer", "block"):  # ZeRO-3 gathers again in the backward
        assert gathers[f"zero2-{bucket}"] < gathers[f"zero3-{bucket}"] <= 2 * gathers[f"zero2-{bucket}"]


@pytest.mark.parametrize("elements", [40, 60, 120, 10_000])
def test_no_bucket_of_a_block_has_more_bytes_than_its_limit(fake_group, elements: int):
    limit = elements * 8
    block = FSDPBucketingStrategy.BLOCK
    transforms = [fsdp(bucketing_strategy=block, bucket_size_in_mb=limit / 2**20)]
    compiled = thunder.jit(words(), transforms=transforms)
    compiled(*part(batches(1, 2)[0], 0)).backward()
    # the limit is that of whole parameters, and parts are padded: those of a parameter of 5 rows have 6
    padded = {2 * math.prod(p.shape) * 8 for p in compiled.parameters()}
    alone = {nbytes for nbytes in padded if nbytes > limit}
    sizes = [c.nbytes for c in communication(compiled)]
    assert all(nbytes <= limit * 1.5 or nbytes in alone for nbytes in sizes)
    unlimited = thunder.jit(words(), transforms=[fsdp(bucketing_strategy=block)])
    unlimited(*part(batches(1, 2)[0], 0)).backward()
    count = len(communication(unlimited))
    assert len(sizes) == count if elements == 10_000 else len(sizes) > count
    assert sum(sizes) == communication(unlimited).nbytes


def test_gathers_are_issued_before_the_computation_that_precedes_their_use(fake_group):
    blocks = FSDPBucketingStrategy.LAYER
    compiled = called(thunder.jit(network(), transforms=[fsdp(bucketing_strategy=blocks)]))
    names = [
        b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.name != "python_del"
    ]
    issues = [i for i, name in enumerate(names) if name == "all_gather"]
    assert len(issues) == 2
    assert issues[1] < names.index("linear")
    late = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    first = late.index("reduce_scatter")
    assert "mm" in late[first : late.index("wait", first)]


def test_without_overlap_each_collective_is_waited_for_at_once(fake_group):
    compiled = thunder.jit(network(), transforms=[fsdp()], overlap_collectives=0)
    assert "FUTURE" not in text(called(compiled))
    assert "wait(" not in text(compiled)


def test_the_table_of_collectives_has_bytes_and_groups(fake_group):
    compiled = called(thunder.jit(network(), transforms=[ddp()]))
    table = communication(compiled)
    assert (table.nbytes, table.sent) == (204, 204)
    assert "all_reduce f32[51]  0      2          204    204" in str(table)


def test_local_gradients_are_another_program_of_the_cache(fake_group):
    compiled = thunder.jit(network(), transforms=[ddp()])
    called(compiled)
    with compiled.no_sync():
        called(compiled)
    assert communication(compiled) == ()
    with skip_data_parallel_grad_sync():
        called(compiled)
    called(compiled)
    called(compiled)
    assert len(communication(compiled)) == 1
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (3, 2)


def test_the_users_module_has_no_attribute_of_ours(fake_group):
    model = network()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    called(thunder.jit(fsdp(model)))
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_layouts_of_strided_empty_and_scalar_parameters(fake_group):
    model = nn.Module()
    model.strided = nn.Parameter(torch.randn(5, 3).t())
    model.empty = nn.Parameter(torch.randn(0, 3))
    model.scalar = nn.Parameter(torch.randn(()))
    model.forward = lambda x: x @ model.strided + model.empty.sum() + model.scalar
    transform = fsdp()
    compiled = thunder.jit(model, transforms=[transform])
    compiled(torch.ones(2, 3)).sum().backward()
    assert tuple(compiled.get_parameter("strided").shape) == (3, 3)
    assert tuple(compiled.get_parameter("scalar").grad.shape) == (1,)
    assert list(transform.layouts) == ["strided", "scalar"]
    layout = transform.layouts["strided"]
    rows = torch.cat([layout.shard(model.strided), torch.zeros(3, 3)])
    assert layout.whole(rows).stride() == model.strided.stride()


def test_released_parameters_have_no_memory(fake_group):
    model = network()
    compiled = thunder.jit(fsdp(model, release=True))
    called(compiled)
    with pytest.raises(thunder.RequirementNotMet, match="were released"):
        model[0].weight.sum()


# -- misuse --------------------------------------------------------------------------------------------------


def test_the_module_is_imported_without_a_process_group():
    assert not dist.is_initialized()
    with pytest.raises(
        thunder.InvalidArgument, match=r"no process group is initialised\n.*init_process_group"
    ):
        thunder.jit(network(), transforms=[fsdp()])
    with pytest.raises(RuntimeError, match="ddp distributes a program over processes"):
        ddp(network())


def test_a_mesh_of_two_dimensions_is_refused(fake_group):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    with pytest.raises(thunder.InvalidArgument, match="one dimension of a device mesh"):
        thunder.jit(network(), transforms=[fsdp(process_group=mesh)])
    called(thunder.jit(network(), transforms=[fsdp(process_group=mesh["dp"])]))


def test_a_group_without_this_process_is_refused(fake_group):
    other = dist.new_group([1])
    with pytest.raises(thunder.InvalidArgument, match="not a member"):
        thunder.jit(network(), transforms=[fsdp(process_group=other)])
    with pytest.raises(thunder.InvalidArgument, match="process_group='nccl'"):
        thunder.jit(network(), transforms=[fsdp(process_group="nccl")])


def test_wrong_arguments_are_refused(fake_group):
    with pytest.raises(thunder.InvalidArgument, match=r"Write FSDPType.ZERO2, FSDPType.ZERO3"):
        fsdp(sharding_strategy="zero3")
    with pytest.raises(thunder.InvalidArgument, match="bucket_size_in_mb=-1"):
        ddp(bucket_size_in_mb=-1)
    with pytest.raises(thunder.InvalidArgument, match="broadcast_from=2 is not a rank"):
        thunder.jit(network(), transforms=[ddp(broadcast_from=2)])
    with pytest.raises(thunder.InvalidArgument, match="distributes the parameters of a module"):
        thunder.jit(torch.sin, transforms=[fsdp()])
    with pytest.raises(thunder.InvalidArgument, match="takes a module, and received builtin_function"):
        fsdp(torch.sin)


def test_modules_that_torch_distributes_are_refused(fake_group):
    with pytest.raises(thunder.UnsupportedProgram, match="DistributedDataParallel"):
        thunder.jit(nn.parallel.DistributedDataParallel(network()), transforms=[ddp()])
    sharded = torch.distributed.fsdp.fully_shard(network())
    with pytest.raises(thunder.ThunderError, match=r"FSDP|DTensor"):
        thunder.jit(sharded, transforms=[ddp()])


@pytest.mark.parametrize("transform", [ddp, fsdp])
def test_a_call_within_torchs_data_parallelism_is_refused(fake_four, transform):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("first", "second"))
    compiled = thunder.jit(network(), transforms=[transform(process_group=mesh["first"])])
    other = nn.parallel.DistributedDataParallel(compiled, process_group=mesh["second"].get_group())
    called(other, backward=False)
    around = nn.parallel.DistributedDataParallel(nn.Sequential(compiled))
    with pytest.raises(thunder.InvalidArgument, match=r"within Distrib(.|\n)*Call the compiled"):
        called(around)


def test_replication_comes_after_sharding(fake_group):
    with pytest.raises(thunder.InvalidArgument, match=r"transforms=\[fsdp\(.*, ddp\("):
        thunder.jit(network(), transforms=[ddp(), fsdp()])


def test_a_tensor_that_cannot_be_divided_is_refused(fake_group):
    with pytest.raises(
        thunder.InvalidArgument, match="divides dimension 0 of \\(3,\\) among the 2 processes"
    ):
        thunder.jit(lambda x: prims.reduce_scatter(x, "0"))(torch.ones(3))
    with pytest.raises(thunder.ThunderError, match="no process group 'other'"):
        thunder.jit(lambda x: prims.all_reduce(x, "other"))(torch.ones(3))


def test_a_transform_that_changes_sharded_weights_is_refused(fake_group):
    class Flat(thunder.Transform):
        def transform_module(self, model):
            for name, parameter in list(model.named_parameters()):
                model.override(name, nn.Parameter(parameter.detach().reshape(-1, 1)))

        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            return prologue_trace, computation_trace, epilogue_trace

    with pytest.raises(thunder.InvalidArgument, match=r"changed after fsdp.*\n(.*\n)*.*list of transforms"):
        called(thunder.jit(network(), transforms=[fsdp(), Flat()]))


def test_a_program_that_writes_a_sharded_parameter_is_refused(fake_group):
    class Normalised(nn.Linear):
        def forward(self, x):
            with torch.no_grad():
                self.weight.clamp_(-1, 1)
            return super().forward(x)

    with pytest.raises(thunder.UnsupportedProgram, match="writes to weight"):
        thunder.jit(Normalised(4, 4), transforms=[fsdp()])(torch.ones(2, 4))


def test_the_default_group_is_copied(fake_group):
    group = copy_default_process_group()
    assert dist.get_process_group_ranks(group) == [0, 1]


def test_enums_are_those_of_the_contract():
    assert [t.name for t in DistParallelType] == [
        *("NONE", "REPLICATED", "FULLY_SHARDED", "COLUMN_WISE", "ROW_WISE")
    ]
    assert [t.name for t in FSDPType] == ["ZERO2", "ZERO3"]


class ReadBySecondName(nn.Module):
    """A module whose layer has two names, of which the program reads the second one first."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = self.first

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


@pytest.mark.parametrize("transform", [ddp, fsdp])
def test_the_gradients_of_a_module_with_two_names_are_reduced(fake_group, transform):
    compiled = thunder.jit(ReadBySecondName(), transforms=[transform()])
    reduction = "all_reduce" if transform is ddp else "reduce_scatter"
    assert [c.name for c in communication(called(compiled))].count(reduction) == 1


def test_a_parameter_with_a_hook_is_not_sharded(fake_group):
    model = network()
    model[0].weight.register_hook(lambda g: g * 3)
    with pytest.raises(thunder.UnsupportedProgram, match=r"place of 0\.weight, whose hooks"):
        thunder.jit(model, transforms=[fsdp()])


@pytest.mark.parametrize("transform", [ddp, fsdp])
def test_gradients_that_are_not_accumulated_are_refused_without_synchronisation(fake_group, transform):
    compiled = thunder.jit(network(), transforms=[transform()])
    parameters = list(compiled.parameters())
    with compiled.no_sync():
        compiled(torch.ones(2, 4)).sum().backward()
        loss = compiled(torch.ones(2, 4)).sum()
    if transform is ddp:  # each process differentiates its own loss
        assert all(g is not None for g in torch.autograd.grad(loss, parameters))
        loss = compiled(torch.ones(2, 4)).sum()  # adds what was accumulated
    with pytest.raises(thunder.UnsupportedProgram, match=r"torch\.autograd\.grad or backward\(inputs=…\)"):
        torch.autograd.grad(loss, parameters)
    compiled(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("transform", [ddp, fsdp])
def test_a_parameter_that_came_later_is_refused(fake_group, transform):
    model = network()
    compiled = thunder.jit(model, transforms=[transform()])
    model[1] = nn.PReLU()
    with pytest.raises(thunder.InvalidArgument, match=r"1\.weight requires grad, and came after"):
        compiled(torch.ones(2, 4))


def test_the_ledger_has_the_group_and_the_bytes_of_collectives(fake_group):
    compiled = called(thunder.jit(network(), transforms=[fsdp()]))
    ledger = thunder.explain(compiled)
    rows = [row for row in ledger.rows if row.facts]
    assert [(row.facts["group"], row.facts["bytes"]) for row in rows] == [
        ("'0'", collective.nbytes) for collective in communication(compiled)
    ]
    # 6 rows of 4 float32 elements
    assert "distributed.all_gather" in str(ledger)
    assert "   - group '0', bytes 96\n" in str(ledger)
    assert '"facts": {"group": "\'0\'", "bytes": 96}' in ledger.to_json()
