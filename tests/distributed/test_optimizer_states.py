"""Torch's own tools with optimizers and gradients of parts; training that goes on elsewhere."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

import thunder
from distributed.trainings import distance
from thunder.distributed import column_parallel, ddp, fsdp, load, row_parallel, run_ranks, save
from thunder_distributed.part_gradients import PartGradient

TOLERANCE = 1e-12


class Mixed(nn.Module):
    """Rows that nothing divides evenly, a number, a weight whose strides are not contiguous, a tied one."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.head = nn.Linear(4, 8), nn.Linear(8, 5), nn.Linear(5, 8, bias=False)
        self.again = self.head.weight
        self.number = nn.Parameter(torch.tensor(1.5))
        self.kernel = nn.Conv2d(2, 3, 2, bias=False).to(memory_format=torch.channels_last)

    def forward(self, x):
        y = self.head(self.down(torch.tanh(self.up(x))) * self.number)
        factors = torch.arange(24.0, dtype=x.dtype).view(3, 2, 2, 2)
        return (y @ self.again).square().mean() + (self.kernel.weight * factors).sum().square()


def mixed(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return Mixed().double()


def data(index: int) -> torch.Tensor:
    return torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(index))


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.05)


def steps(call, parameters, optimizer, indices, rank: int = 0, size: int = 1) -> list[float]:
    """Train as scripts do, with torch's own clipping; return the norms."""
    norms = []
    for index in indices:
        optimizer.zero_grad()
        call(data(index).chunk(size)[rank]).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters(), 0.1).item())
        optimizer.step()
    return norms


def expected(count: int, optimizer_of=adamw) -> tuple[nn.Module, torch.optim.Optimizer, list[float]]:
    model = mixed()
    optimizer = optimizer_of(model.parameters())
    return model, optimizer, steps(model, model.parameters, optimizer, range(count))


@pytest.mark.parametrize("whose", ["compiled", "model", "model before"])
def test_an_optimizer_and_clipping_take_either_parameters(whose: str):
    def program():
        model = mixed()
        early = adamw(model.parameters())
        compiled = thunder.jit(model, transforms=[fsdp(release=whose == "model")])
        source = compiled if whose == "compiled" else model
        optimizer = early if whose == "model before" else adamw(source.parameters())
        norms = steps(
            compiled, source.parameters, optimizer, range(3), dist.get_rank(), dist.get_world_size()
        )
        return compiled.original_state_dict(), norms, len(optimizer.state_dict()["state"])

    plain, _, norms = expected(3)
    for state, found, count in run_ranks(program, 4):
        assert distance(state, dict(plain.state_dict())) < TOLERANCE
        assert found == pytest.approx(norms, rel=1e-12)
        assert count == len(list(plain.parameters()))


def test_the_users_module_is_trained_apart_by_its_own_gradients():
    def program():
        model = mixed()
        thunder.jit(model, transforms=[fsdp()])(data(9)).backward()
        steps(model, model.parameters, adamw(model.parameters()), range(2))
        return dict(model.state_dict())

    plain, *_ = expected(2)
    for state in run_ranks(program, 2):
        assert distance(state, dict(plain.state_dict())) < TOLERANCE


def test_gradients_that_several_modules_have_are_not_guessed():
    def program():
        model = mixed()
        for _ in range(2):
            compiled.append(thunder.jit(model, transforms=[fsdp()]))
            compiled[-1](data(0)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    compiled: list[Any] = []
    with pytest.raises(
        thunder.InvalidArgument, match=r"several compiled modules .*\n.*\n.*compiled.parameters"
    ):
        run_ranks(program, 1)


def test_the_functions_of_clipping_compute_what_they_do_for_whole_gradients():
    def results(parameters):
        gradients = [p.grad for p in parameters if p.grad is not None]
        orders = (1.0, 2.0, 3.0, float("inf"), 0.0)
        found = [
            torch.nn.utils.get_total_norm(gradients, order, foreach=f)
            for order in orders
            for f in (None, False)
        ]
        found += [torch.stack([g.norm() for g in gradients]), torch.stack([torch.norm(g) for g in gradients])]
        found += [torch.stack([torch.linalg.norm(g) for g in gradients])]
        torch.nn.utils.clip_grads_with_norm_(parameters, 0.01, found[2])
        found.append(torch.nn.utils.get_total_norm(gradients))
        torch.nn.utils.clip_grad_value_(parameters, 1e-4)
        return [*found, torch.nn.utils.get_total_norm(gradients)]

    def program():
        compiled = thunder.jit(mixed(), transforms=[fsdp()])
        compiled(data(0).chunk(2)[dist.get_rank()]).backward()
        parameters = list(compiled.parameters())
        copied = copy.deepcopy(parameters[0].grad)
        assert isinstance(copied, PartGradient)
        assert torch.equal(copied.norm(), parameters[0].grad.norm())
        assert type(parameters[0].grad * 2) is torch.Tensor
        doubled = thunder.jit(lambda g: g * 2)(parameters[0].grad)
        assert torch.equal(doubled, parameters[0].grad + parameters[0].grad)
        return results(parameters)

    plain = mixed()
    plain(data(0)).backward()
    whole = results(list(plain.parameters()))
    for found in run_ranks(program, 2):
        for ours, theirs in zip(found, whole, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_scaler_skips_the_step_of_all_processes():
    def program():
        compiled = thunder.jit(nn.Linear(4, 6), transforms=[fsdp()])
        optimizer, scaler = torch.optim.SGD(compiled.parameters(), lr=1.0), torch.amp.GradScaler("cpu")
        before = compiled.original_state_dict()
        scaler.scale(compiled(torch.ones(2, 4)).sum()).backward()
        if dist.get_rank() == 1:
            compiled.get_parameter("weight").grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        return distance(compiled.original_state_dict(), before), scaler.get_scale()

    for difference, scale in run_ranks(program, 2):
        assert difference == 0
        assert scale == 2.0**15


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_torchs_state_dicts_are_those_of_one_process(kind, tmp_path: Path):
    def optimizer_of(parameters):
        arguments = {"momentum": 0.9, "weight_decay": 0.1} if kind is torch.optim.SGD else {}
        return kind(parameters, lr=0.02, **arguments)

    plain, optimizer, _ = expected(2, optimizer_of)
    whole = copy.deepcopy(get_state_dict(plain, optimizer))
    steps(plain, plain.parameters, optimizer, range(2, 4))

    def trains_on(compiled, own) -> float:
        rank, size = dist.get_rank(), dist.get_world_size()
        steps(compiled, compiled.parameters, own, range(2, 4), rank, size)
        return distance(compiled.original_state_dict(), dict(plain.state_dict()))

    def program():
        rank, size = dist.get_rank(), dist.get_world_size()
        compiled = thunder.jit(mixed(), transforms=[fsdp()])
        own = optimizer_of(compiled.parameters())
        steps(compiled, compiled.parameters, own, range(2), rank, size)
        parts = get_optimizer_state_dict(compiled, own)["state"]["down.weight"]
        key = "momentum_buffer" if kind is torch.optim.SGD else "exp_avg"
        assert isinstance(parts[key], DTensor)
        assert parts[key].shape == (5, 8)
        gathered = get_optimizer_state_dict(compiled, own, options=StateDictOptions(full_state_dict=True))
        differences = [
            (value - gathered["state"][name][each].reshape(value.shape)).abs().max().item()
            for name, state in whole[1]["state"].items()
            for each, value in state.items()
        ]
        torch_checkpoint.save(
            dict(zip("mo", get_state_dict(compiled, own), strict=True)), checkpoint_id=tmp_path
        )
        other = thunder.jit(mixed(1), transforms=[fsdp()])
        loaded = optimizer_of(other.parameters())
        state = dict(zip("mo", get_state_dict(other, loaded), strict=True))
        torch_checkpoint.load(state, checkpoint_id=tmp_path)
        set_state_dict(other, loaded, model_state_dict=state["m"], optim_state_dict=state["o"])
        differences.append(trains_on(other, loaded))
        third = thunder.jit(mixed(2), transforms=[fsdp()])
        loaded = optimizer_of(third.parameters())
        model_state, state = copy.deepcopy(whole)
        options = StateDictOptions(full_state_dict=True)
        set_state_dict(third, loaded, model_state_dict=model_state, optim_state_dict=state, options=options)
        return [*differences, trains_on(third, loaded)]

    for differences in run_ranks(program, 2):
        assert max(differences) < TOLERANCE


def layout(kind: str) -> tuple[list[Any], int, int]:
    """Return transforms, into how many parts a batch is divided, and which one this process has."""
    if kind in ("ddp", "fsdp"):
        return [ddp() if kind == "ddp" else fsdp()], dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    pair = [
        column_parallel(target_modules=["up"], process_group=mesh["tp"]),
        row_parallel(target_modules=["down"], process_group=mesh["tp"]),
    ]
    data_parallel = fsdp if kind.endswith("fsdp") else ddp
    return [*pair, data_parallel(process_group=mesh["dp"])], mesh["dp"].size(), mesh["dp"].get_local_rank()


LAYOUTS = [
    ("fsdp", 4),
    ("fsdp", 2),
    ("fsdp", 8),
    ("ddp", 2),
    ("tensor fsdp", 4),
    ("tensor ddp", 4),
    ("ddp", 3),
]


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.sweep) for seed in range(6))])
def test_training_goes_on_in_any_number_of_processes_and_layout(seed: int | None, tmp_path: Path):
    chain = LAYOUTS if seed is not None else [LAYOUTS[0], LAYOUTS[1], LAYOUTS[4], LAYOUTS[3]]
    if seed is not None:
        chain = random.Random(seed).choices(LAYOUTS, k=6)
    folder = tmp_path / "run"

    def program(kind: str, done: int):
        transforms, size, rank = layout(kind)
        compiled = thunder.jit(mixed(seed=done), transforms=transforms)
        optimizer = adamw(compiled.parameters())
        assert done == 0 or load(compiled, optimizer, folder) == done
        steps(compiled, compiled.parameters, optimizer, range(done, done + 1), rank, size)
        save(compiled, optimizer, done + 1, folder)
        return compiled.original_state_dict()

    chain = [(kind, size) for kind, size in chain if 8 % size == 0]
    for done, (kind, size) in enumerate(chain):
        plain, *_ = expected(done + 1)
        for state in run_ranks(lambda kind=kind, done=done: program(kind, done), size):
            assert distance(state, dict(plain.state_dict())) < TOLERANCE
    alone, (plain, reference, _) = mixed(5), expected(len(chain))
    optimizer = adamw(alone.parameters())
    assert load(alone, optimizer, folder=folder) == len(chain)
    for model, own in ((alone, optimizer), (plain, reference)):
        steps(model, model.parameters, own, range(9, 11))
    assert distance(dict(alone.state_dict()), dict(plain.state_dict())) < TOLERANCE


def test_what_files_do_not_have_is_refused(tmp_path: Path):
    model, optimizer, _ = expected(1)
    save(model, optimizer, 7, tmp_path / "run")
    with pytest.raises(thunder.InvalidArgument, match="is of step 7, and not of step 8"):
        load(mixed(), None, 8, tmp_path / "run")
    with pytest.raises(thunder.InvalidArgument, match="other groups of parameters"):
        load(model, adamw(list(model.parameters())[:2]), tmp_path / "run")
    with pytest.raises(thunder.InvalidArgument, match="a parameter that the model does not have"):
        save(model, adamw(mixed().parameters()), 1, tmp_path / "run")
    with pytest.raises(thunder.InvalidArgument, match=r"a model with other names\n.*missing: +weight"):
        load(nn.Linear(2, 2, bias=False), None, tmp_path / "run")


def test_a_state_of_another_shape_is_refused():
    def program():
        compiled = thunder.jit(nn.Linear(4, 6), transforms=[fsdp()])
        optimizer = torch.optim.Adafactor(compiled.parameters())
        compiled(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.state_dict()

    with pytest.raises(
        thunder.UnsupportedProgram, match="'row_var' of an optimizer belongs to weight, which is in"
    ):
        run_ranks(program, 2)
