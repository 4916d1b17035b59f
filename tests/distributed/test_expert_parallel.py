"""Experts divided between processes: equal to one process on the joined batch; what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers.integrations.moe  # noqa: F401  (registers the operator)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.expert_cases import EXPERTS, LAYOUTS, TRAINED, LitGPT, Mixture, Modules, mixture, trained
from distributed.trainings import distance
from sweeping import one_in
from thunder.distributed import checkpoint, communication, ddp, expert_parallel, fsdp, run_ranks

TOLERANCE = 1e-10
NAMES = EXPERTS[Mixture]


#: the modules whose cases four processes run
FOUR_PROCESSES = ("expert_cases",)


@pytest.mark.multi_process
@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_equal_those_of_one_process(results, name: str):
    for outcome in results[name]:
        result = outcome.get()
        assert max(result["losses"], result["gradients"], result["norms"], result["state"]) < TOLERANCE
        exchanges = [c for c in result["collectives"] if c.startswith("expert_")]
        products = 4 if "Mixtral" in name else 3 if "modules" in name else 2  # of two layers, of one
        # the products, their gradients for the rows, and those for the weights
        assert Counter(exchanges) == {"expert_gradient": products, "expert_product": 2 * products}


@pytest.mark.multi_process
def test_a_process_without_rows_takes_part(results):
    differences, gradients = zip(*(o.get() for o in results["experts_without_rows"]), strict=True)
    assert max(differences) < TOLERANCE
    assert gradients[0] > 0
    assert gradients[-1] == 0


def _text(compiled) -> str:
    traces = [*thunder.last_traces(compiled), *thunder.last_backward_traces(compiled)]
    return "\n".join(trace.python(print_depth=-1, include_timing=False) for trace in traces)


def test_the_three_forms_have_equal_traces(fake_group):
    forms = [
        thunder.jit(mixture(), transforms=[expert_parallel(experts=NAMES)]),
        thunder.jit(expert_parallel(mixture(), NAMES)),
        expert_parallel(thunder.jit(mixture()), NAMES),
    ]
    texts = set()
    for compiled in forms:
        compiled(torch.randn(6, 6, dtype=torch.float64))
        texts.add(_text(compiled))
    assert len(texts) == 1


class Indexed(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(torch.randn(4, 3, 3))

    def forward(self, x):
        return x @ self.experts[1]


def test_another_use_of_experts_is_refused_with_its_line(fake_group):
    compiled = thunder.jit(Indexed(), transforms=[expert_parallel(experts=["experts"])])
    with pytest.raises(thunder.UnsupportedProgram, match=r"does not divide torch\..*getitem") as error:
        compiled(torch.ones(2, 3))
    assert "grouped_mm" in str(error.value)
    assert "test_expert_parallel.py" in str(error.value)


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        (["experts.*"], "found no parameter 'experts"),
        ("up", "It is a list of names|received experts='up'"),
        ([], "received experts="),
        (["router.weight"], "router.weight is not a stack of the matrices of all experts"),
    ],
)
def test_misuse_is_an_error_with_the_remedy(fake_group, experts, message: str):
    with pytest.raises(thunder.InvalidArgument, match=message):
        thunder.jit(mixture(), transforms=[expert_parallel(experts=experts)])


class Separate(nn.Module):
    """Experts that are modules, for rows that are selected by data."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(3, 4), nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def forward(self, x):
        chosen = self.router(x).argmax(-1)
        y = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == index)
            y[rows] += expert(x[rows])
        return y


def test_a_loop_that_selects_rows_is_refused(fake_group):
    compiled = thunder.jit(Separate(), transforms=[expert_parallel(experts=["experts.*"])])
    with pytest.raises(thunder.ThunderError, match=r"depends on data|where"):
        compiled(torch.randn(5, 3))


def test_experts_are_divided_equally(fake_four):
    with pytest.raises(thunder.InvalidArgument, match="2 experts of stack are not divided among 4 processes"):
        thunder.jit(Stack(), transforms=[expert_parallel(experts=["stack"])])


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = nn.Parameter(torch.randn(2, 3, 3))


#: how gradients are used: what `trained` is called with
USES = {
    "plain": {},
    "clipped": {"clip": 0.05},
    "accumulated": {"accumulated": 2, "local": lambda compiled: compiled.no_sync()},
}


@pytest.mark.parametrize(("layout", "use"), one_in(11, [(layout, use) for layout in LAYOUTS for use in USES]))
def test_experts_are_divided_beside_other_parameters_in_each_layout(layout: str, use: str):
    for result in run_ranks(lambda: trained(layout, steps=4, **USES[use]), 4):
        assert max(result["losses"], result["gradients"], result["norms"], result["state"]) < TOLERANCE
        assert result["attributes"]


def saved_and_loaded(layout: str, kind: type[nn.Module], folder: Path) -> float:
    """Save the parts of a module, and load them into those of another one; return the largest difference."""
    transforms = LAYOUTS[layout]
    saved = thunder.jit(mixture(kind), transforms=transforms(EXPERTS[kind])[0])
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.mul_(2)
    checkpoint.save(checkpoint.get_model_state_dict(saved), folder / "state")
    loaded = thunder.jit(mixture(kind), transforms=transforms(EXPERTS[kind])[0])
    checkpoint.load(checkpoint.get_model_state_dict(loaded), folder / "state")
    whole = mixture(kind).state_dict()
    checkpoint.load(whole, folder / "state")
    expected = saved.original_state_dict()
    return distance(loaded.original_state_dict(), expected) + distance(whole, expected)


@pytest.mark.parametrize(
    ("layout", "kind"),
    one_in(
        3, [(n, kind) for n in ("experts", "experts, fsdp", "experts x fsdp") for kind in (Mixture, Modules)]
    ),
)
def test_files_have_the_parts_of_experts(tmp_path, layout: str, kind: type[nn.Module]):
    results = run_ranks(lambda: saved_and_loaded(layout, kind, tmp_path), 4 if "x" in layout else 2)
    assert set(results) == {0}


@pytest.mark.sweep  # the import of litgpt takes seconds
def test_the_mixture_of_litgpt_is_divided():
    for result in run_ranks(lambda: trained(steps=4, kinds=(LitGPT, LitGPT)), 2):
        # litgpt computes the weights of experts in float32
        assert max(result["losses"], result["gradients"], result["state"]) < 1e-6
        assert "expert_product" in result["collectives"]
        assert result["compiles"] == 1


def test_a_mixture_of_modules_computes_as_a_loop_without_the_transform():
    model, x = mixture(Modules), torch.randn(5, 6, dtype=torch.float64)
    inner = torch.tanh(model.inner(x))
    weights, chosen = model.router(inner).softmax(-1).topk(2, -1)
    y = [sum(w * model.experts[e](row) for w, e in zip(ws, es, strict=True))
         for row, ws, es in zip(inner, weights, chosen, strict=True)]  # fmt: skip
    torch.testing.assert_close(model(x), (inner + torch.stack(y)).square().mean())


class Sums(nn.Module):
    """An expert whose rows depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Scaled(nn.Module):
    """An expert with a parameter that is not that of a linear layer."""

    def __init__(self, power: int = 1) -> None:
        super().__init__()
        self.layer, self.power = nn.Linear(6, 6), power
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.layer(x) * self.scale


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Sums, r"computes with torch.*mean(.|\n)*x - x.mean"),
        (Scaled, r"computes with torch.*mul(.|\n)*self.scale"),
    ],
)
def test_what_an_expert_may_not_compute_is_refused_with_its_line(fake_group, make, message: str):
    model = mixture(Modules)
    model.experts = nn.ModuleList(make().double() for _ in range(4))
    compiled = thunder.jit(model, transforms=[expert_parallel(experts=["experts.*"])])
    with pytest.raises(thunder.UnsupportedProgram, match=message):
        compiled(torch.randn(4, 6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        ([nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)], "3 experts of experts are not divided among 2"),
        (
            [nn.Linear(6, 6), nn.Linear(6, 6, bias=False)],
            r"experts.0 and experts.1 differ in their parameters",
        ),
        ([Scaled(), Scaled(2)], "experts.0 and experts.1 differ in power"),
        ([nn.Linear(6, 6), nn.Bilinear(6, 6, 6)], "experts.0 and experts.1 differ in their class"),
        ([nn.BatchNorm1d(6), nn.BatchNorm1d(6)], "buffers, which each expert has"),
    ],
)
def test_modules_that_are_no_experts_are_refused(fake_group, experts, message: str):
    model = mixture(Modules)
    model.experts = nn.ModuleList(experts)
    with pytest.raises(thunder.InvalidArgument, match=message):
        thunder.jit(model, transforms=[expert_parallel(experts=["experts.*"])])


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (lambda first, second: [fsdp(process_group=second), first], "put expert_parallel before fsdp"),
        (lambda first, second: [ddp(process_group=second), first], "put expert_parallel before ddp"),
        (
            lambda first, second: [first, fsdp(process_group=second)],
            "Let ddp replicate them after",
        ),
        (lambda first, second: [first, ddp()], "Give each its own dimension of a mesh"),
    ],
)
def test_an_order_of_transforms_that_is_not_meant_is_an_error_with_the_right_one(
    fake_four, transforms, message
):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("first", "second"))
    first = expert_parallel(experts=NAMES, process_group=mesh["first"])
    with pytest.raises(thunder.InvalidArgument, match=message):
        thunder.jit(mixture(), transforms=transforms(first, mesh["second"]))


def test_what_distributes_the_other_parameters_is_in_the_same_list(fake_group):
    compiled = thunder.jit(mixture(), transforms=[expert_parallel(experts=NAMES)])
    with pytest.raises(thunder.InvalidArgument, match="Give both in one list"):
        fsdp(compiled)


def test_collectives_are_statements(fake_group):
    compiled = thunder.jit(mixture(), transforms=[expert_parallel(experts=NAMES)])
    compiled(torch.randn(6, 6, dtype=torch.float64))
    first = next(c for c in communication(compiled) if c.name == "expert_product")
    assert first.shape == (12, 6)
    assert "expert_cases.py" in first.source
