"""Sequences divided between processes, compared with one process; their traces; what is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from distributed.context_cases import ATTENTIONS, OF_A_MESH, OPERATORS, TRAINED
from distributed.context_models import Mixing, language_model, sequences, texts
from distributed.launching import Outcome
from thunder.core.options import DebugOptions
from thunder.distributed import communication, context_parallel, ddp
from thunder_distributed.sequences import ring_attention

TOLERANCE = 1e-10


def _values(outcomes: dict[str, list[Outcome]], name: str):
    return [outcome.get() for outcome in outcomes[name]]


#: the modules whose cases four processes run
FOUR_PROCESSES = ("context_cases",)


@pytest.mark.multi_process
@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_equal_those_of_one_process(results, name: str):
    for result in _values(results, name):
        assert max(result["losses"], result["gradients"], result["state"]) < TOLERANCE
        assert ("rotate" in result["collectives"]) == ("ring" in name)


@pytest.mark.multi_process
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_with_each_mask_is_that_of_one_process(results, name: str):
    for difference, _ in _values(results, name):
        assert difference < TOLERANCE


@pytest.mark.multi_process
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compute_parts_from_parts(results, name: str):
    for difference, _ in _values(results, name):
        assert difference < TOLERANCE


@pytest.mark.multi_process
def test_other_operators_compute_with_the_gathered_sequence(results):
    for difference, collectives in _values(results, "gathered_operators"):
        assert difference < TOLERANCE
        assert "all_gather" in collectives


@pytest.mark.multi_process
@pytest.mark.parametrize("name", OF_A_MESH)
def test_sequences_are_divided_over_one_dimension_of_a_mesh_and_batches_over_the_other(results, name: str):
    for result in _values(results, name):
        assert max(result["losses"], result["gradients"], result["state"]) < TOLERANCE


def _text(compiled) -> str:
    traces = [*thunder.last_traces(compiled), *thunder.last_backward_traces(compiled)]
    return "\n".join(trace.python(print_depth=-1, include_timing=False) for trace in traces)


def test_the_three_forms_have_equal_traces(fake_group):
    divide = {"tokens": 1}
    forms = [
        thunder.jit(language_model(), transforms=[context_parallel(divide=divide)]),
        thunder.jit(context_parallel(language_model(), divide)),
        context_parallel(thunder.jit(language_model()), divide),
    ]
    for compiled in forms:
        compiled(*texts(1)[0]).backward()
    assert len({_text(compiled) for compiled in forms}) == 1


def test_collectives_are_statements_with_the_users_line(fake_group):
    checked = DebugOptions(check_traces=True)
    transforms = [context_parallel(divide={"tokens": 1})]
    compiled = thunder.jit(language_model(), transforms=transforms, debug_options=checked)
    compiled(*texts(1)[0]).backward()
    final = thunder.last_traces(compiled)[-1].python()
    assert "= attention_block(" in final
    assert "FUTURE" in next(line for line in final.splitlines() if "= rotate(" in line)
    (rotation,) = (c for c in communication(compiled) if c.name == "rotate" and c.trace == "forward")
    assert "context_models.py" in rotation.source
    # keys and values of half of the sequence: 2 batches, 2 heads, 8 positions, 2 numbers, 8 bytes
    assert rotation.sent == rotation.nbytes == 2 * (2 * 2 * 8 * 2) * 8


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (6, 2), (6, 1)])
@pytest.mark.parametrize(("is_causal", "rows", "columns"), [(True, 10, 10), (False, 5, 10), (False, 10, 5)])
def test_torchs_kernel_computes_a_block_as_the_formula_does(
    monkeypatch, heads: int, groups: int, is_causal: bool, rows: int, columns: int
):
    torch.manual_seed(0)
    of_queries, of_keys = (rows, heads), (columns, groups)
    q, k, v, g, out = (
        torch.randn(2, length, count, 16, dtype=torch.float64).transpose(1, 2)
        for length, count in (of_queries, of_keys, of_keys, of_queries, of_queries)
    )
    assert ring_attention._has_kernel(q, k, v, None)
    block = q, k, v, None, is_causal, 0.3
    whole_lse = torch.randn(2, heads, 2 * rows, dtype=torch.float64)[..., rows:] + 4  # that of more keys
    by_kernel = *ring_attention._block(*block), *ring_attention._block_backward(g, out, whole_lse, *block)
    monkeypatch.setattr(ring_attention, "_has_kernel", lambda *tensors: False)
    by_formula = *ring_attention._block(*block), *ring_attention._block_backward(g, out, whole_lse, *block)
    torch.testing.assert_close(by_kernel, by_formula, rtol=1e-12, atol=1e-12)


def test_composites_stay_composites(fake_group):
    compiled = thunder.jit(language_model(), transforms=[context_parallel(divide={"tokens": 1})])
    compiled(*texts(1)[0])
    traces = thunder.last_traces(compiled)
    divided = next(t for t in traces if "Division" in str(t.get_provenance())).python()
    for operator in ("layer_norm", "rms_norm", "gelu", "linear", "embedding", "cat"):
        assert f"ltorch.{operator}(" in divided
    assert "broadcast_in_dim" not in divided


@pytest.mark.parametrize("index", range(len(Mixing.CALLS)))
def test_an_operator_along_the_sequence_is_refused_with_the_users_line(fake_group, index: int):
    compiled = thunder.jit(Mixing(index), transforms=[context_parallel(divide={"x": 1})])
    with pytest.raises(thunder.UnsupportedProgram, match="context_parallel does not divide") as error:
        compiled(*sequences(8))
    assert "context_models.py" in str(error.value)
    assert 'otherwise="gather"' in str(error.value)


class Dropped(nn.Module):
    def __init__(self, before: bool):
        super().__init__()
        self.before = before

    def forward(self, x):
        return F.dropout(torch.ones(4)) * x if self.before else F.dropout(x)


@pytest.mark.parametrize("before", [False, True])
def test_random_numbers_are_refused(fake_group, before: bool):
    compiled = thunder.jit(Dropped(before), transforms=[context_parallel(divide={"x": 1})])
    with pytest.raises(thunder.UnsupportedProgram, match="each process would draw other numbers"):
        compiled(*sequences(8))


class Attending(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


def test_dropout_of_attention_is_refused(fake_group):
    compiled = thunder.jit(Attending(), transforms=[context_parallel(divide={"x": 1})])
    with pytest.raises(thunder.UnsupportedProgram, match="draw other numbers"):
        compiled(*sequences(8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divide": {}}, "names no argument"),
        ({"divide": {"words": 1}}, "'words', which is not an argument of LanguageModel.forward"),
        ({"divide": {"tokens": 1}, "rotate": "star"}, "rotate='star' is not a choice"),
        ({"divide": {"tokens": 1}, "arrangement": "random"}, "arrangement='random' is not a choice"),
        ({"divide": {"tokens": 1}, "otherwise": "guess"}, "otherwise='guess' is not a choice"),
        ({"divide": {"tokens": 1}, "broadcast_from": 7}, "broadcast_from=7 is not a rank"),
        ({"divide": {"tokens": 2}}, "dimension 2 of tokens"),
    ],
)
def test_misuse_is_an_error_with_the_remedy(fake_group, options, message: str):
    with pytest.raises(thunder.InvalidArgument, match=message):
        thunder.jit(language_model(), transforms=[context_parallel(**options)])(*texts(1)[0])


def test_a_sequence_that_cannot_be_divided_is_refused(fake_group):
    compiled = thunder.jit(language_model(), transforms=[context_parallel(divide={"tokens": 1})])
    with pytest.raises(thunder.InvalidArgument, match="does not consist of 4 equal chunks"):
        compiled(*texts(1, length=14)[0])


def test_without_a_process_group_nothing_is_divided():
    with pytest.raises(thunder.InvalidArgument, match="no process group is initialised"):
        thunder.jit(language_model(), transforms=[context_parallel(divide={"tokens": 1})])


def test_gradients_are_summed_in_buckets(fake_group):
    sums = {}
    for nbytes in (0, 1100, 2**20):
        transforms = [context_parallel(divide={"tokens": 1}, bucket_size_in_mb=nbytes / 2**20)]
        compiled = thunder.jit(language_model(), transforms=transforms)
        compiled(*texts(1)[0]).backward()
        trained = [p for n, p in compiled.named_parameters() if p.requires_grad and n != "positions.weight"]
        reduced = [c for c in communication(compiled) if c.trace == "backward" and c.name == "all_reduce"]
        sums[nbytes] = [c.nbytes for c in reduced]
        # rows of a table are looked up in each process: their gradient is whole
        assert sum(sums[nbytes]) == sum(p.numel() * p.element_size() for p in trained)
    assert (len(sums[0]), len(sums[2**20])) == (len(trained), 1)
    assert 1 < len(sums[1100]) < len(trained)
    assert max(sums[1100]) <= 1100


def test_gradients_are_summed_over_parts_and_averaged_over_batches(fake_group):
    transforms = [context_parallel(divide={"tokens": 1}), ddp(bucket_size_in_mb=0)]
    compiled = thunder.jit(language_model(), transforms=transforms)
    compiled(*texts(1)[0]).backward()
    reduced = [c for c in communication(compiled) if c.trace == "backward" and c.name == "all_reduce"]
    trainable = [p for p in compiled.parameters() if p.requires_grad]
    # one sum over the parts, and one mean of each parameter
    assert len(reduced) == 1 + len(trainable)
