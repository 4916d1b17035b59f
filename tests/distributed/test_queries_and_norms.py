"""What programs ask of process groups, `SyncBatchNorm`, and plans of tensor parallelism of transformers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

import thunder
from distributed.trainings import distance, gradients_of
from thunder.distributed import communication, ddp, fsdp, run_ranks, tensor_parallel

TOLERANCE = 1e-12


# -- queries -------------------------------------------------------------------------------------------------


def test_queries_of_process_groups_are_facts():
    group = None

    def asks(x):
        if not (dist.is_available() and dist.is_initialized()):
            return x
        y = x * 10 + dist.get_rank() + dist.get_world_size() * 100
        y = y + dist.get_rank(group) * 1000 + dist.get_world_size(group=dist.group.WORLD) * 10000
        ranks = dist.get_process_group_ranks(group) if group is not None else []
        return y + sum(ranks) if dist.get_backend(group) == "fake" else -y

    compiled = thunder.jit(asks)
    x = torch.ones(2)

    def agrees() -> None:
        assert torch.equal(compiled(x), asks(x))
        misses = thunder.cache_misses(compiled)
        assert torch.equal(compiled(x), asks(x))
        assert thunder.cache_misses(compiled) == misses

    agrees()
    for rank, size in ((1, 4), (2, 4), (1, 8)):
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        try:
            agrees()
            for ranks in ([0, rank], [rank, 3]):
                group = dist.new_group(ranks)
                agrees()
            group = None
            agrees()
        finally:
            dist.destroy_process_group()
        agrees()
    assert thunder.cache_misses(compiled) == 1 + 3 * 3


def test_a_query_without_a_group_raises_what_torch_raises():
    def asks(x):
        return x * dist.get_rank(None) + dist.get_world_size()

    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        thunder.jit(asks)(torch.ones(1))


# -- SyncBatchNorm -------------------------------------------------------------------------------------------


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.BatchNorm1d(64, momentum=None, affine=False),
        nn.Linear(64, 3),
        nn.BatchNorm1d(3, track_running_stats=False),
    ).double()


@pytest.mark.parametrize("transform", [ddp, pytest.param(fsdp, marks=pytest.mark.sweep)])
def test_batch_norm_over_processes_is_that_of_the_whole_batch(transform):
    generator = torch.Generator().manual_seed(1)
    batch = torch.randn(8, 2, 6, 6, dtype=torch.float64, generator=generator)
    factors = torch.randn(8, 3, dtype=torch.float64, generator=generator)

    def trained(model, parameters, batch, factors):
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            (model(batch) * factors).mean().backward()
            gradients = gradients_of(model)
            optimizer.step()
        model.eval()
        return gradients, model(batch[:2])

    def program():
        rank, size = dist.get_rank(), dist.get_world_size()
        compiled = thunder.jit(nn.SyncBatchNorm.convert_sync_batchnorm(normed()), transforms=[transform()])
        parts = batch.chunk(size)[rank], factors.chunk(size)[rank]
        gradients, result = trained(compiled, compiled.parameters(), *parts)
        return gradients, compiled.original_state_dict(), result

    plain = normed()
    expected, _ = trained(plain, plain.parameters(), batch, factors)
    for rank, (gradients, state, result) in enumerate(run_ranks(program, 4)):
        assert distance(gradients, expected) < TOLERANCE
        assert distance(state, dict(plain.state_dict())) < TOLERANCE
        torch.testing.assert_close(result, plain(batch.chunk(4)[rank][:2]), rtol=0, atol=TOLERANCE)


def test_batch_norm_over_processes_of_unequal_batches():
    batch = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def program():
        module = thunder.jit(nn.SyncBatchNorm(3).double())
        x = (batch[:2] if dist.get_rank() == 0 else batch[2:]).clone().requires_grad_()
        result = module(x)
        result.pow(3).sum().backward()
        return result.detach(), x.grad

    plain, x = nn.BatchNorm1d(3).double(), batch.clone().requires_grad_()
    expected = plain(x)
    expected.pow(3).sum().backward()
    found = run_ranks(program, 2)
    for ours, theirs in zip(map(torch.cat, zip(*found, strict=True)), (expected, x.grad), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)


# -- plans of transformers -----------------------------------------------------------------------------------


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 4, "vocab_size": 20, "n_positions": 16}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **none)).double()


def llama() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 24, "vocab_size": 20}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).double()


GPT2_PLAN = {"h.*.c_attn": "colwise", "h.*.c_fc": "colwise", "h.*.c_proj": "rowwise"}


@pytest.mark.parametrize(
    ("model", "plan", "sums"), [(gpt2, GPT2_PLAN, 2), pytest.param(llama, None, 2, marks=pytest.mark.sweep)]
)
def test_a_plan_of_transformers_divides_the_layers(model, plan, sums):
    tokens = torch.arange(12).view(2, 6)

    def program():
        own = model()
        compiled = thunder.jit(own, transforms=tensor_parallel(own, plan), executors=["torch"])
        loss = compiled(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        forward = [c.name for c in communication(compiled) if c.trace == "forward"]
        return loss.item(), gradients_of(compiled), forward.count("all_reduce")

    plain = model()
    loss = plain(tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    for found, gradients, count in run_ranks(program, 2):
        assert found == pytest.approx(loss.item(), rel=1e-12)
        assert distance(gradients, gradients_of(plain)) < TOLERANCE
        assert count == sums


def test_a_plan_names_layers_and_styles(fake_group):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    chosen = tensor_parallel(copy.deepcopy(model), {"0": "colwise", "1": "rowwise"}, sequence_dim=1)
    assert [(t.made_by, t.target_modules) for t in chosen] == [
        ("column_parallel", ("0",)),
        ("row_parallel", ("1",)),
    ]
    with pytest.raises(thunder.InvalidArgument, match="'moe_tp_experts', which is not a style"):
        tensor_parallel(model, {"0": "moe_tp_experts"})
    with pytest.raises(thunder.InvalidArgument, match=r"names 'up\.\*', and the module has no such layer"):
        tensor_parallel(model, {"up.*": "colwise"})
    with pytest.raises(thunder.InvalidArgument, match="Sequential has no plan of tensor parallelism"):
        tensor_parallel(model)
