"""Traces of programs that are divided, and misuse, in one process of a pretended group."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.attention_models import COLUMNS, ROWS, pages, reader
from distributed.tensor_cases import in_parts
from distributed.test_distributed_traces import CHECKED, text
from thunder.distributed import (
    ColumnParallelTransform,
    RowParallelTransform,
    column_parallel,
    communication,
    context_parallel,
    ddp,
    fsdp,
    row_parallel,
)


def network(width: int = 8) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))


def called(compiled, *args):
    compiled(*(args or (torch.ones(2, 4, requires_grad=True),))).sum().backward()
    return compiled


def pair(group=None):
    return [
        column_parallel(target_modules=["0"], process_group=group),
        row_parallel(target_modules=["2"], process_group=group),
    ]


def names(compiled):
    return [c.name for c in communication(compiled)]


def test_the_three_forms_have_equal_traces(fake_group):
    as_transform = called(thunder.jit(network(), transforms=pair()))
    as_module = called(thunder.jit(row_parallel(column_parallel(network(), ["0"]), ["2"])))
    as_compiled = called(row_parallel(column_parallel(thunder.jit(network()), ["0"]), ["2"]))
    assert text(as_transform) == text(as_module) == text(as_compiled)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_pair_of_layers_needs_one_reduction_each_way(fake_group, reverse):
    transforms = pair()[::-1] if reverse else pair()
    compiled = called(thunder.jit(network(), transforms=transforms, debug_options=CHECKED))
    assert [c.signature for c in communication(compiled)] == ["all_reduce f32[2, 3]", "all_reduce f32[2, 4]"]
    shapes = {name: tuple(p.shape) for name, p in compiled.named_parameters()}
    assert shapes == {"0.weight": (4, 4), "0.bias": (4,), "2.weight": (3, 4), "2.bias": (3,)}


def test_a_result_that_the_program_reads_is_whole(fake_group):
    compiled = thunder.jit(network(), transforms=[column_parallel(target_modules=["0", "2"])])
    assert called(compiled)(torch.ones(2, 4)).shape == (2, 3)
    assert names(called(compiled)) == ["all_gather", "all_gather", "reduce_scatter", "all_reduce"]


def test_heads_are_divided_with_the_layers_before_them(fake_group):
    transforms = [column_parallel(target_modules=COLUMNS), row_parallel(target_modules=ROWS)]
    compiled = thunder.jit(reader(), transforms=transforms, debug_options=CHECKED)
    tokens, targets = pages(1, 2)[0]
    called(compiled, tokens, targets)
    program = thunder.last_traces(compiled)[-1].python(print_depth=1)
    assert '"cpu f64[2, 8, 2, 2]"' in program  # of four heads
    assert '"cpu f64[2, 8, 4, 2]"' not in program
    forward = [c.name for c in communication(compiled) if c.trace == "forward"]
    assert forward == ["all_reduce"] * 5 + ["all_gather"]  # the logits of the tied head


class Heads(nn.Module):
    """Three heads, which two processes cannot have parts of."""

    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        q = self.query(x).view(*x.shape[:2], 3, 2).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, q, q)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def test_heads_that_cannot_be_divided_are_gathered(fake_group):
    transforms = [column_parallel(target_modules=["query"]), row_parallel(target_modules=["out"])]
    compiled = thunder.jit(Heads(), transforms=transforms)
    assert compiled(torch.ones(2, 4, 6)).shape == (2, 4, 6)
    assert names(compiled) == ["all_gather", "all_reduce", "all_gather"]


class Selecting(nn.Module):
    """Operators along the rows, between layers whose columns are divided."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.down(F.pad(self.up(x).cumsum(0).sort(0)[0], (0, 0, 1, 0)))


def test_operators_along_other_dimensions_compute_on_parts(fake_group):
    transforms = [column_parallel(target_modules=["up"]), row_parallel(target_modules=["down"])]
    compiled = thunder.jit(Selecting(), transforms=transforms, debug_options=CHECKED)
    assert names(called(compiled)) == ["all_reduce", "all_reduce"]


def test_collectives_have_the_users_lines(fake_group):
    compiled = called(thunder.jit(network(), transforms=pair()))
    assert all("container.py" in c.source or "linear.py" in c.source for c in communication(compiled))


def test_parts_are_sharded_and_replicated_over_another_dimension(fake_mesh):
    for data_parallel, expected in ((fsdp, "reduce_scatter"), (ddp, "all_reduce")):
        transforms = [*pair(fake_mesh["tp"]), data_parallel(process_group=fake_mesh["dp"])]
        compiled = called(thunder.jit(network(), transforms=transforms))
        dp, tp = (fake_mesh[name].get_group().group_name for name in ("dp", "tp"))
        groups = {c.group: set() for c in communication(compiled)}
        for c in communication(compiled):
            groups[c.group].add(c.name)
        assert groups[tp] == {"all_reduce"}
        assert expected in groups[dp]


def test_the_users_module_has_no_attribute_of_ours(fake_group):
    model = network()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    called(thunder.jit(row_parallel(column_parallel(model, ["0"]), ["2"])))
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: column_parallel(target_modules="0"), "is a list of names"),
        (lambda: column_parallel(), "has no target_modules"),
        (lambda: row_parallel(target_modules=["0"], sequence_dim=True), "is not a dimension"),
        (lambda: thunder.jit(network(), transforms=[column_parallel(target_modules=["1"])]), "'1' is none"),
        (lambda: thunder.jit(network(), transforms=[row_parallel(target_modules=["9*"])]), "'9\\*' is none"),
        (lambda: column_parallel(network(), ["up"]), "layers:  0, 2"),
        (lambda: thunder.jit(lambda x: x, transforms=pair()), "is not one"),
        (
            lambda: thunder.jit(network(), transforms=[*pair(), ddp()]),
            "ddp takes processes for copies of each other",
        ),
        (
            lambda: thunder.jit(reader(), transforms=[row_parallel(target_modules=["head", "embedding"])]),
            "is the same parameter as",
        ),
    ],
)
def test_misuse_is_an_error_with_the_remedy(fake_group, make, message):
    with pytest.raises(thunder.InvalidArgument, match=message):
        make()


def test_parameters_are_divided_before_they_are_sharded(fake_mesh):
    transforms = [fsdp(process_group=fake_mesh["dp"]), *pair(fake_mesh["tp"])]
    with pytest.raises(thunder.InvalidArgument, match="column_parallel comes after fsdp"):
        thunder.jit(network(), transforms=transforms)


def test_without_a_process_group_there_is_an_error():
    with pytest.raises(thunder.InvalidArgument, match="no process group is initialised"):
        thunder.jit(network(), transforms=pair())


def test_a_quantised_weight_is_not_divided(fake_group):
    class Stored(thunder.Transform):
        def transform_module(self, model):
            weight = model.get_parameter("0.weight")
            model.override("0.weight", nn.Parameter(weight.detach().reshape(-1, 1)))

    with pytest.raises(thunder.InvalidArgument, match=r"(?s)0\.weight is stored in another form.*before it"):
        thunder.jit(network(), transforms=[Stored(), *pair()])


def test_a_parameter_with_a_hook_is_not_divided(fake_group):
    model = network()
    model[0].weight.register_hook(lambda g: g * 3)
    with pytest.raises(thunder.UnsupportedProgram, match=r"place of 0\.weight, whose hooks would not run"):
        thunder.jit(model, transforms=pair())


def test_the_transforms_are_those_of_the_functions():
    assert isinstance(column_parallel(target_modules=["a"]), ColumnParallelTransform)
    assert isinstance(row_parallel(target_modules=["a"]), RowParallelTransform)


@pytest.fixture
def fake_mesh(fake_four):
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def test_sequences_are_divided_beside_layers_without_joining_their_parts(fake_four):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("context", "tp"))
    sequences = context_parallel(divide={"tokens": 1, "targets": 1}, process_group=mesh["context"])
    used = []
    for others in ([], [sequences]):
        compiled = thunder.jit(reader(), transforms=[*others, *in_parts(group=mesh["tp"])])
        compiled(*pages(1, 2)[0])
        group = mesh["tp"].get_group().group_name
        used.append([c.name for c in communication(compiled) if c.trace == "forward" and c.group == group])
    # heads stay divided in the ring; the table, two sums of each of two layers, and the scores are joined
    assert used[0] == used[1] == ["all_reduce"] * (1 + 2 * 2) + ["all_gather"]


@pytest.mark.parametrize("cache", ["constant values", "symbolic values"])
def test_sizes_that_were_asked_to_stay_free_do_where_layers_are_divided(fake_group, cache: str):
    compiled = thunder.jit(network(), transforms=pair(), cache=cache, dynamic_sizes={"input": 0})
    for rows in (2, 5, 3):
        assert compiled(torch.ones(rows, 4)).shape == (rows, 3)
    assert thunder.cache_misses(compiled) == 1
    assert communication(compiled)[0].shape == (2, 3)


def test_sizes_that_were_asked_to_stay_free_are_refused_where_sequences_are_divided(fake_group):
    sequences = context_parallel(divide={"input": 0}, otherwise="gather")
    compiled = thunder.jit(network(), transforms=[sequences], dynamic_sizes={"input": 0})
    with pytest.raises(thunder.UnsupportedProgram, match="changes how the program reads its inputs"):
        compiled(torch.ones(4, 4))


def test_gradients_of_parts_alone_are_not_left_uncommunicated(fake_group):
    with pytest.raises(AttributeError, match="belongs to data parallelism"):
        thunder.jit(network(), transforms=pair()).no_sync()
