"""All ranks of a program in one process compute what gloo processes compute."""

from __future__ import annotations

import random

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import thunder
from distributed.launching import CASES
from distributed.rank_cases import NAMES
from distributed.small_models import words
from distributed.training_cases import distance
from thunder.distributed import FSDPType, ddp, fsdp, run_ranks
from thunder_distributed.disagreements import ProcessMissing, ProgramsDiffer


@pytest.mark.multi_process
@pytest.mark.parametrize("name", NAMES)
def test_ranks_in_one_process_compute_what_processes_compute(outcomes, name: str):
    results = run_ranks(CASES[name], 2)
    for result, outcome in zip(results, outcomes[name], strict=True):
        expected = outcome.get()
        assert result.keys() == expected.keys()
        assert result.pop("collectives") == expected.pop("collectives") != []
        assert distance(result, expected) < 1e-12
        assert result["losses"].isfinite().all()


def test_eight_ranks_of_a_mesh_train_alike():
    def program():
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
        zero3 = fsdp(process_group=mesh["shard"], sharding_strategy=FSDPType.ZERO3)
        compiled = thunder.jit(words(), transforms=[zero3, ddp(process_group=mesh["replicate"])])
        tokens = torch.arange(6).view(2, 3) % 7
        compiled(tokens, tokens).backward()
        torch.optim.SGD(compiled.parameters(), lr=0.1).step()
        return compiled.original_state_dict()

    plain, tokens = words(), torch.arange(6).view(2, 3) % 7
    plain(tokens, tokens).backward()
    torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1).step()
    states = run_ranks(program, 8)
    assert len(states) == 8
    assert max(distance(state, dict(plain.state_dict())) for state in states) < 1e-12


def test_each_rank_draws_what_it_would_draw_alone_and_the_caller_draws_on():
    def program():
        torch.manual_seed(dist.get_rank())
        random.seed(dist.get_rank())
        drawn = []
        for _ in range(3):
            drawn.append((torch.rand(()).item(), random.random()))
            dist.barrier()
        return drawn

    torch.manual_seed(5)
    state = torch.get_rng_state()
    drawn = run_ranks(program, 3)
    assert torch.equal(torch.get_rng_state(), state)
    for rank, values in enumerate(drawn):
        generator, own = torch.Generator().manual_seed(rank), random.Random(rank)
        assert values == [(torch.rand((), generator=generator).item(), own.random()) for _ in range(3)]


def test_one_rank_runs_at_a_time_until_it_waits():
    seen = []

    def program():
        for step in range(2):
            seen.append((step, dist.get_rank(), "begins"))
            sum(range(100_000))
            seen.append((step, dist.get_rank(), "ends"))
            dist.all_reduce(torch.ones(1))

    run_ranks(program, 4)
    assert len(seen) == 16
    for begins, ends in zip(seen[::2], seen[1::2], strict=True):
        assert begins[:2] == ends[:2]
        assert (begins[2], ends[2]) == ("begins", "ends")


def test_the_error_of_a_rank_is_raised_with_its_rank():
    def program():
        if dist.get_rank() == 1:
            raise ZeroDivisionError("by this rank")
        dist.all_reduce(torch.ones(1))

    with pytest.raises(ZeroDivisionError, match="by this rank") as raised:
        run_ranks(program, 3)
    assert raised.value.__notes__ == ["on rank 1 of 3"]
    assert run_ranks(dist.get_rank, 2) == [0, 1]


def test_ranks_that_wait_for_each_other_are_named():
    def program():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(1))

    with pytest.raises(ProcessMissing, match="rank 0 in allreduce; rank 2 in allreduce") as raised:
        run_ranks(program, 3, timeout=0.3)
    assert "[1]" in str(raised.value)


def test_programs_that_differ_are_compared():
    def program():
        transform = ddp(bucket_size_in_mb=0) if dist.get_rank() else ddp()
        compiled = thunder.jit(words(), transforms=[transform])
        tokens = torch.zeros(2, 3, dtype=torch.long)
        compiled(tokens, tokens).backward()

    with pytest.raises(ProgramsDiffer, match="ranks 0 and 1 have begun programs with other collectives"):
        run_ranks(program, 2)


def test_a_number_of_ranks_is_needed_and_no_group(fake_group):
    with pytest.raises(thunder.InvalidArgument, match="size=0 is not a number of ranks"):
        run_ranks(dist.get_rank, 0)
    with pytest.raises(thunder.InvalidArgument, match="one is initialised already"):
        run_ranks(dist.get_rank, 2)


def test_messages_between_ranks_arrive_in_their_order():
    def program():
        rank, group = dist.get_rank(), dist.group.WORLD
        received = [torch.empty(2) for _ in range(3)]
        works = [dist.irecv(t, group=group, group_src=(rank - 1) % 3) for t in received]
        for i in range(3):
            works.append(dist.isend(torch.full((2,), 10.0 * rank + i), group=group, group_dst=(rank + 1) % 3))
        for work in works:
            work.wait()
        return [t[0].item() for t in received]

    assert run_ranks(program, 3) == [[20, 21, 22], [0, 1, 2], [10, 11, 12]]


def test_a_rank_that_sends_waits_until_the_other_one_receives():
    def program():
        other = 1 - dist.get_rank()
        dist.isend(torch.ones(1), group=dist.group.WORLD, group_dst=other).wait()
        dist.irecv(torch.empty(1), group=dist.group.WORLD, group_src=other).wait()

    with pytest.raises(ProcessMissing, match="rank 0 in a message from 0 to 1; rank 1 in a"):
        run_ranks(program, 2, timeout=0.3)
