"""Programs in stages, run by a schedule, compute what one process computes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

import thunder
from distributed import pipeline_cases
from distributed.pipeline_cases import KINDS, NAMES, by_one_process, model, on_a_mesh, tokens
from distributed.random_pipelines import SCHEDULES, Training, differences
from distributed.trainings import distance
from sweeping import in_turn, one_in
from thunder.core.errors import ThunderError
from thunder.distributed import DrawsDiffer, column_parallel, ddp, pipeline, row_parallel, run_ranks
from thunder.distributed.schedules import check, gpipe
from thunder_distributed.disagreements import ProgramsDiffer

#: the modules whose cases four processes run
FOUR_PROCESSES = ("pipeline_mesh_cases",)
TOLERANCE = 1e-12

expected = cache(by_one_process)


@pytest.mark.parametrize("seed", one_in(25, range(100)))
def test_ranks_compute_the_losses_and_gradients_of_one_process(seed: int):
    training = Training(seed)
    assert max(differences(training, run_ranks(training.staged, training.ranks))) < TOLERANCE


@pytest.mark.multi_process
@pytest.mark.parametrize("name", NAMES)
def test_processes_train_as_one_does(outcomes, name: str):
    _check_training([outcome.get() for outcome in outcomes[name]])


@pytest.mark.parametrize(("kind", "schedule"), in_turn(KINDS, ("1f1b", "zero bubble")))
def test_stages_are_distributed_over_another_dimension_of_a_mesh(kind: str, schedule: str):
    results = run_ranks(lambda: on_a_mesh(kind, schedule), 4)
    whole = expected()
    for result in results:
        assert distance(result, {name: whole[name] for name in result}) < TOLERANCE


@pytest.mark.multi_process
@pytest.mark.sweep
@pytest.mark.parametrize(("kind", "schedule"), [(k, s) for k in KINDS for s in ("1f1b", "zero bubble")])
def test_four_processes_train_as_one_does(four, kind: str, schedule: str):
    for outcome in four[f"pipeline {kind}, {schedule}"]:
        result = outcome.get()
        assert distance(result, {name: expected()[name] for name in result}) < TOLERANCE


def _check_training(results: list[dict[str, torch.Tensor]]) -> None:
    whole, names = expected(), set()
    for result in results:
        assert distance(result, {name: whole[name] for name in result}) < TOLERANCE
        own = result.keys() - {"losses", "norms"}
        assert own
        assert not own & names
        names |= own
    assert whole.keys() == {*names, "losses", "norms"}


def test_a_weight_of_two_stages_belongs_to_the_first_and_is_sent_to_the_other():
    def program():
        module = model()
        step = pipeline(module, pipeline_cases.loss, microbatches=2, executors=["torch"])
        step(tokens())
        sent = sum(p.untyped_storage().nbytes() > 8 for p in module.parameters())
        return (
            sent,
            dict(step.named_parameters()).keys(),
            str(step.traces["rank"]),
            module.head.weight.isnan().any(),
        )

    (first, own, text, _), (second, others, other_text, is_released) = run_ranks(program, 2)
    assert first + second == len(list(model().parameters()))
    assert "embedding.weight" in own
    assert not own & others
    assert text.count("= send(t_model_embedding_weight, ") == 1
    returned = len(step_results := [line for line in other_text.splitlines() if " = arrived(" in line]) - 1
    assert step_results
    assert other_text.count("= send(") == returned + 1, "gradients of what was received, and of the weight"
    assert is_released


def test_the_program_of_a_rank_has_messages_and_stages_as_statements():
    def program():
        module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        step = pipeline(module, _mse, microbatches=2, schedule="gpipe", executors=["torch"])
        step(torch.randn(2, 4), torch.randn(2, 4))
        lines = str(step.traces["rank"]).splitlines()
        return [line.split("#")[0].strip() for line in lines if "(" in line and "def " not in line]

    first, _ = run_ranks(program, 2)
    calls = [line.split(" = ")[-1].split("(")[0] for line in first]
    acts = ("forward", "backward", "send", "receive", "sent", "arrived")
    assert [call for call in calls if call.split("_")[0] in acts] == [
        "forward_0", "send", "forward_0", "sent", "send", "receive", "arrived", "backward_0", "receive",
        "arrived", "backward_0", "sent",
    ]  # fmt: skip


def _mse(model, x, y):
    return F.mse_loss(model(x), y)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero bubble"])
def test_a_rank_saves_as_many_microbatches_as_its_schedule_says(name: str):
    def program():
        step = pipeline(model(), pipeline_cases.loss, microbatches=6, schedule=name, executors=["torch"])
        step(tokens())
        alive, most = set(), 0
        for bsym in step.traces["rank"].bound_symbols:
            outs = {p.name for p in bsym.flat_proxy_outs if p.name.startswith(("saved_", "kept_"))}
            if bsym.sym.name == "python_del":
                alive -= {p.name for p in bsym.flat_proxy_args}
            alive |= outs
            # what B keeps for W is of a microbatch that is counted until then
            most = max(most, len({saved.split("_")[-1] for saved in alive}))
        assert not alive
        return most, check(step.schedule).saved[dist.get_rank()], step.messages

    for most, expected_most, messages in run_ranks(program, 3):
        assert most == expected_most
        assert {m.name for m in messages} == {"send", "receive"}
        assert messages.sent == sum(m.nbytes for m in messages if m.name == "send") > 0


def test_norms_of_single_gradients_need_no_other_process():
    def program():
        net = model()
        step = pipeline(net, pipeline_cases.loss, microbatches=2, executors=["torch"])
        step(tokens())
        return {name: p.grad.norm().item() for name, p in step.named_parameters()}

    one = model()
    pipeline_cases.loss(one, tokens()).backward()
    norms = {name: p.grad.norm().item() for name, p in one.named_parameters()}
    first, second = run_ranks(program, 2)
    assert len(first) != len(second)
    assert first | second == pytest.approx(norms)


class _Switched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.order = [0, 1, 2]

    def forward(self, x):
        for i in self.order:
            x = self.layers[i](x)
        return x


def test_a_program_that_reads_parameters_in_other_stages_is_refused():
    def program():
        net = _Switched()
        step = pipeline(net, _mse, microbatches=1, stages=["layers.1"], executors=["torch"])
        x = torch.randn(2, 4)
        step(x, x)
        net.order = [2, 1, 0]
        step(x, x)

    with pytest.raises(thunder.UnsupportedProgram, match="first in a stage of another process than before"):
        run_ranks(program, 2, timeout=5)


class Dropped(nn.Module):
    """Dropout in two stages, and random numbers of a shape; a part that is computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.fourth = nn.Linear(6, 4)

    def forward(self, x):
        x = F.dropout(self.first(x), 0.3)
        x = checkpoint(lambda x: F.dropout(torch.tanh(self.second(x)), 0.4), x, use_reentrant=False)
        x = F.dropout(self.third(x + torch.rand_like(x)), 0.2)
        return self.fourth(x)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_draws_are_those_of_one_process(schedule: str):
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.randn(8, 4, dtype=torch.float64)

    def module():
        torch.manual_seed(0)
        return Dropped().double()

    def program():
        net = module()
        stages = 4 if schedule == "interleaved" else 2
        step = pipeline(net, _mse, microbatches=4, stages=stages, schedule=schedule, executors=["torch"])
        torch.manual_seed(7)
        value = step(x, y).item(), step(x, y).item()
        return value, {n: p.grad for n, p in net.named_parameters() if p.grad is not None}, torch.rand(2)

    one, losses = module(), []
    torch.manual_seed(7)
    for _ in range(2):
        terms = [_mse(one, a, b) / 4 for a, b in zip(x.chunk(4), y.chunk(4), strict=True)]
        sum(terms).backward()
        losses.append(sum(terms).item())
    after, found = torch.rand(2), {}
    for values, gradients, drawn in run_ranks(program, 2):
        assert values == pytest.approx(losses, abs=TOLERANCE)
        assert torch.equal(drawn, after)
        found |= gradients
    assert distance(found, {n: p.grad for n, p in one.named_parameters()}) < TOLERANCE


def test_draws_in_layers_in_parts_are_those_of_one_process():
    x, y = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)

    def module():
        torch.manual_seed(0)
        return Dropped().double()

    def program():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "parts"))
        parts = [
            column_parallel(target_modules=["model.first"], process_group=mesh["parts"]),
            row_parallel(target_modules=["model.second"], process_group=mesh["parts"]),
        ]
        options = {"process_group": mesh["stages"], "transforms": parts, "executors": ["torch"]}
        step = pipeline(module(), _mse, microbatches=2, **options)
        torch.manual_seed(7)
        return step(x, y).item()

    one = module()
    torch.manual_seed(7)
    whole = sum(_mse(one, a, b).item() / 2 for a, b in zip(x.chunk(2), y.chunk(2), strict=True))
    assert run_ranks(program, 4) == pytest.approx([whole] * 4, abs=TOLERANCE)


def test_generators_in_different_states_are_an_error():
    def program():
        step = pipeline(Dropped(), _mse, microbatches=1, executors=["torch"])
        torch.manual_seed(dist.get_rank())
        step(torch.randn(2, 4), torch.randn(2, 4))

    with pytest.raises(DrawsDiffer, match="other random numbers"):
        run_ranks(program, 2)


def test_without_gradients_the_forwards_alone_run():
    def program():
        module = model()
        step = pipeline(module, pipeline_cases.loss, microbatches=4, executors=["torch"])
        with torch.no_grad():
            value = step(tokens())
        return (
            value.item(),
            [p.grad for p in module.parameters() if p.grad is not None],
            str(step.traces["rank"]),
        )

    whole = pipeline_cases.loss(model(), tokens()).item()
    for value, gradients, text in run_ranks(program, 2):
        assert value == pytest.approx(whole, abs=TOLERANCE)
        assert not gradients
        assert "backward" not in text


def test_a_sum_is_not_divided_by_the_number_of_microbatches():
    def program():
        module = model()
        step = pipeline(module, _summed, microbatches=3, reduction="sum", executors=["torch"])
        return step(tokens()).item()

    assert run_ranks(program, 2) == pytest.approx([_summed(model(), tokens()).item()] * 2)


def _summed(module, tokens):
    return F.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten(), reduction="sum")


def test_a_state_dict_of_all_ranks_is_that_of_the_module_and_loads():
    def program():
        module = model()
        step = pipeline(module, pipeline_cases.loss, microbatches=2, executors=["torch"])
        before = step(tokens()).item()
        state = {name: value.clone() for name, value in step.state_dict().items()}
        assert distance(state, {name: model().state_dict()[name] for name in state}) == 0
        other = {name: torch.zeros_like(value) for name, value in state.items()}
        step.load_state_dict(other)
        changed = step(tokens()).item()
        step.load_state_dict(state)
        with pytest.raises(thunder.InvalidArgument, match="lacks parameters"):
            step.load_state_dict({})
        return before, changed, step(tokens()).item(), state

    results = run_ranks(program, 2)
    assert not results[0][3].keys() & results[1][3].keys()
    state = {
        name: value for result in results for name, value in model().state_dict().items() if name in result[3]
    }
    assert state.keys() == model().state_dict().keys()
    for before, changed, after, _ in results:
        assert changed != before == after


class _Counted(nn.Module):
    def __init__(self, norm) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), norm, nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


class _Counts(_Counted):
    def __init__(self) -> None:
        super().__init__(nn.Tanh())
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x):
        x = super().forward(x)
        self.largest = x.detach().max()
        return x


def _printing(model, x, y):
    value = _mse(model, x, y)
    print("a loss", value)
    return value


class _Position(nn.Module):
    """A parameter in a form that depends on the size of a microbatch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.place = nn.Parameter(torch.ones(1, 1, 4))

    def forward(self, x):
        places = self.place.expand(len(x), 1, 4).cos()
        return self.last(torch.cat([self.first(x).unsqueeze(1), places], 1)).sum(1)


def test_what_is_computed_of_parameters_for_the_size_of_a_microbatch_is_a_part_of_it():
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)

    def module():
        torch.manual_seed(0)
        return _Position().double()

    def program():
        net = module()
        step = pipeline(net, _mse, microbatches=2, executors=["torch"])
        values = [step(x, y).item(), step(x[:4], y[:4]).item()]
        return values, {n: p.grad for n, p in net.named_parameters() if p.grad is not None}

    one, values_of_one, found = module(), [], {}
    for size in (5, 4):
        value = _mse(one, x[:size], y[:size])
        value.backward()
        values_of_one.append(value.item())
    for values, gradients in run_ranks(program, 2):
        assert values == pytest.approx(values_of_one, abs=TOLERANCE)
        found |= gradients
    assert distance(found, {n: p.grad for n, p in one.named_parameters()}) < TOLERANCE


def _step(module, fn=_mse, **options):
    arguments = {"microbatches": 2, "executors": ["torch"], **options}
    return pipeline(module, fn, **arguments)(torch.randn(5, 4), torch.randn(5, 4))


REFUSED = {
    "writes": (lambda: _step(_Counted(nn.BatchNorm1d(4))), "writes to norm"),
    "attributes": (lambda: _step(_Counts()), "writes tensors to its objects"),
    "prints": (lambda: _step(_Counted(nn.Tanh()), _printing), "has an effect: python_call"),
    "whole": (lambda: _step(_Counted(nn.Tanh()), whole=["z"]), "whole= names 'z'"),
    "result": (lambda: _step(_Counted(nn.Tanh()), lambda m, x, y: m(x)), "trains with a loss"),
    "draws": (
        lambda: _step(
            _Counted(nn.Tanh()), lambda m, x, y: torch.bernoulli(m(x).sigmoid()).mean() + m(x).mean()
        ),
        "draws random numbers by bernoulli",
    ),
    "gradients of arguments": (
        lambda: pipeline(_Counted(nn.Tanh()), _mse, microbatches=1)(
            torch.randn(2, 4, requires_grad=True), torch.randn(2, 4)
        ),
        "an argument of a pipeline requires grad",
    ),
    "stages": (lambda: _step(_Counted(nn.Tanh()), stages=["middle"]), "no stage can begin at 'middle'"),
    "first": (lambda: _step(_Counted(nn.Tanh()), stages=["first"]), "no parameters before it"),
    "same processes": (
        lambda: _step(_Counted(nn.Tanh()), transforms=[ddp()]),
        "ddp and pipeline are over the same processes",
    ),
    "schedule": (
        lambda: _step(_Counted(nn.Tanh()), schedule=gpipe(ranks=3, microbatches=2)),
        "the schedule is for another pipeline",
    ),
    "reduction": (lambda: _step(_Counted(nn.Tanh()), reduction="max"), "is not 'mean' or 'sum'"),
    "batch": (lambda: _step(_Counted(nn.Tanh()), microbatches=6), "cannot be divided into 6 microbatches"),
    "dimensions": (
        lambda: pipeline(_Counted(nn.Tanh()), _mse, microbatches=1)(torch.randn(2, 4), torch.randn(4)),
        "first dimensions of different sizes",
    ),
    "compiled": (lambda: _step(thunder.jit(_Counted(nn.Tanh()))), "received a compiled one"),
    "module": (lambda: pipeline(_mse, _mse, microbatches=1), "takes a module and the function of its loss"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_pipeline_does_not_do_is_refused_by_name(name: str):
    program, match = REFUSED[name]
    with pytest.raises(ThunderError, match=match):
        run_ranks(program, 2, timeout=5)


@pytest.mark.sweep
@pytest.mark.parametrize("schedule", ["1f1b", "zero bubble"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "llama, checkpointed"])
def test_published_models_are_trained_as_by_one_process(family: str, schedule: str):
    transformers = pytest.importorskip("transformers")
    sizes = {
        "gpt2": {"n_layer": 4, "n_head": 2, "n_embd": 16, "n_positions": 16},
        "llama": {
            **{"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4},
            **{"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16},
        },
    }

    def module():
        torch.manual_seed(0)
        name = family.partition(",")[0]
        config = transformers.AutoConfig.for_model(name, vocab_size=31, **sizes[name])
        net = transformers.AutoModelForCausalLM.from_config(config).double().train()
        if "checkpointed" in family:
            net.gradient_checkpointing_enable()
        return net

    def loss(net, ids):
        return net(input_ids=ids, labels=ids).loss

    ids = torch.randint(31, (4, 8), generator=torch.Generator().manual_seed(2))

    def program():
        net = module()
        step = pipeline(net, loss, microbatches=4, schedule=schedule, executors=["torch"])
        torch.manual_seed(3)
        step(ids)
        return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}

    one, found = module(), {}
    torch.manual_seed(3)
    for part in ids.chunk(4):
        (loss(one, part) / 4).backward()
    for gradients in run_ranks(program, 2):
        found |= gradients
    assert distance(found, {name: p.grad for name, p in one.named_parameters()}) < TOLERANCE


def test_what_reads_no_values_is_done_for_each_microbatch(capsys):
    def program():
        def loss(model, x, y):
            if dist.get_rank() == 0:
                print("a microbatch")
            return _mse(model, x, y)

        net = _Counted(nn.Tanh())
        step = pipeline(net, loss, microbatches=3, executors=["torch"])
        step(torch.randn(3, 4), torch.randn(3, 4))
        step(torch.randn(3, 4), torch.randn(3, 4))

    run_ranks(program, 2)
    assert capsys.readouterr().out == "a microbatch\n" * 6


def test_an_effect_is_refused_with_its_line():
    with pytest.raises(thunder.UnsupportedProgram) as raised:
        run_ranks(REFUSED["writes"][0], 2, timeout=5)
    assert "writes to norm.num_batches_tracked" in str(raised.value)
    assert "test_pipelines.py:" in str(raised.value)


def test_ranks_with_other_programs_are_named():
    def program():
        stages = ["blocks.2"] if dist.get_rank() else ["blocks.1"]
        pipeline(model(), pipeline_cases.loss, microbatches=2, stages=stages, executors=["torch"])(tokens())

    with pytest.raises(ProgramsDiffer, match="ranks 0 and 1"):
        run_ranks(program, 2, timeout=5)


def test_whole_arguments_are_not_divided():
    def weighted(module, x, y, scale):
        return ((module(x) - y) ** 2 * scale).mean()

    x, y, scale = torch.randn(4, 4), torch.randn(4, 4), torch.rand(4)
    torch.manual_seed(0)
    module = _Counted(nn.Tanh())

    def program():
        torch.manual_seed(0)
        step = pipeline(_Counted(nn.Tanh()), weighted, microbatches=2, whole=["scale"], executors=["torch"])
        return step(x, y, scale=scale).item()

    assert run_ranks(program, 2) == pytest.approx([weighted(module, x, y, scale).item()] * 2, rel=1e-5)
